from __future__ import annotations

import numpy as np
import pytest

from kvstrata.api.events import describe, event_types, line, select
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EVENT_DTYPE, LAST_OF_CALL, PAYLOADS, EventType, Reason
from kvstrata.core.states import PageState

GROUPS = ("c4", "swa")


def sealed_event() -> np.void:
    event = np.zeros(1, EVENT_DTYPE)
    payload = np.zeros(1, PAYLOADS[EventType.PAGE_SEALED])
    payload["key"] = np.void(bytes(range(16)))
    payload["checksum"] = 2**63 + 1
    payload["unit"] = 7
    event["seqno"], event["time_ns"] = 2**40, 5
    event["type"], event["group"], event["page"] = EventType.PAGE_SEALED, 1, 3
    event["generation"], event["state"], event["flags"] = 2, PageState.SEALED, LAST_OF_CALL
    raw = bytearray(event.tobytes())
    raw[32:] = payload.tobytes()
    return np.frombuffer(raw, EVENT_DTYPE)[0]


def test_a_page_event_is_described_by_names() -> None:
    assert describe(sealed_event(), GROUPS) == {
        "seqno": 2**40,
        "time_ns": 5,
        "type": "PAGE_SEALED",
        "group": "swa",
        "page": 3,
        "generation": 2,
        "state": "SEALED",
        "references": 0,
        "reason": "NONE",
        "flags": ["LAST_OF_CALL"],
        "payload": {
            "key": "000102030405060708090a0b0c0d0e0f",
            "checksum": 2**63 + 1,
            "unit": 7,
            "parent": 0,
        },
    }


def test_a_line_names_page_state_reason_and_payload() -> None:
    event = sealed_event()
    event["reason"] = Reason.EVICTED
    text = line(describe(event, GROUPS))
    for word in ("PAGE_SEALED", "swa/3#2", "SEALED", "reason=EVICTED", "unit=7", "LAST_OF_CALL"):
        assert word in text


@pytest.mark.parametrize("kind", EventType)
def test_every_type_can_be_shown(kind: EventType) -> None:
    event = np.zeros(1, EVENT_DTYPE)
    event["type"] = kind
    assert kind.name in line(describe(event[0], GROUPS))


def test_numbers_of_a_later_version_stay_numbers() -> None:
    event = np.zeros(1, EVENT_DTYPE)
    event["type"], event["reason"] = 250, 250
    fields = describe(event[0], GROUPS)
    assert (fields["type"], fields["reason"], fields["payload"]) == (250, 250, {})
    assert "250" in line(fields)


def batches() -> list[np.ndarray]:
    """Seqnos 1 to 9 in three batches; odd ones opened, even ones freed."""
    events = np.zeros(9, EVENT_DTYPE)
    events["seqno"] = np.arange(1, 10)
    events["type"] = np.where(
        events["seqno"] % 2 == 1, int(EventType.PAGE_OPENED), int(EventType.PAGE_FREED)
    )
    return [events[:4], events[4:4], events[4:7], events[7:]]


@pytest.mark.parametrize(
    ("to_seqno", "types", "limit", "seqnos"),
    [
        (None, [], None, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (5, [], None, [1, 2, 3, 4, 5]),
        (None, ["page_freed"], None, [2, 4, 6, 8]),
        (7, ["PAGE_OPENED"], 3, [1, 3, 5]),
        (None, [], 0, []),
        (0, [], None, []),
    ],
)
def test_events_are_selected_by_seqno_type_and_number(
    to_seqno: int | None, types: list[str], limit: int | None, seqnos: list[int]
) -> None:
    chosen = select(batches(), to_seqno, event_types(types), limit)
    assert [int(event["seqno"]) for event in chosen] == seqnos


def test_selection_reads_no_further_than_it_must() -> None:
    unread = iter(batches())
    assert len(list(select(unread, None, [], 2))) == 2
    assert len(next(unread)) == 0


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="found 'PAGE_MELTED'"):
        event_types(["PAGE_MELTED"])
