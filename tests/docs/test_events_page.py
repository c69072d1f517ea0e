"""docs/events.md documents every event type, state, reason, flag and payload field, as they are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kvstrata.core import events
from kvstrata.core.events import EVENT_DTYPE, PAYLOADS, EventType, Reason
from kvstrata.core.states import TRANSITIONS, PageState
from tools.events_page import FIELDS, FLAGS, HEAD, PAGE, REASONS, STATES, TYPES, render, tables

TEXT = PAGE.read_text(encoding="utf-8")


def rows_of(name: str) -> list[list[str]]:
    """Cells of one table of the committed page, its two head lines left out."""
    (table,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end -->", TEXT, re.DOTALL)
    lines = table.strip().splitlines()[2:]
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_page_is_up_to_date() -> None:
    assert render(TEXT) == TEXT, "run python -m tools.events_page"


def test_every_table_is_on_the_page() -> None:
    marked = re.findall(r"<!-- (\w+) -->", TEXT)
    assert [name for name in marked if name != "end"] == list(tables())


@pytest.mark.parametrize(
    ("name", "kind"), [("types", EventType), ("reasons", Reason), ("states", PageState)]
)
def test_every_code_has_a_line(name: str, kind: type[EventType | Reason | PageState]) -> None:
    found = [(int(code), member) for code, member, _ in rows_of(name)]
    assert found == [(int(member), member.name) for member in kind]
    assert all(meaning for *_, meaning in rows_of(name))


def test_every_payload_field_has_a_line() -> None:
    found = {
        (kind, int(byte), int(size), field) for kind, byte, size, field, _ in rows_of("payloads")
    }
    expected = set()
    for kind, dtype in PAYLOADS.items():
        for field, (part, offset, *_) in (dtype.fields or {}).items():
            if not field.startswith("_"):
                expected.add((kind.name, 32 + offset, part.itemsize, field))
    assert found == expected


def test_the_head_s_table_covers_its_bytes() -> None:
    covered = [
        place
        for byte, size, *_ in rows_of("head")
        for place in range(int(byte), int(byte) + int(size))
    ]
    assert covered == list(range(32))


def test_every_flag_has_a_line() -> None:
    """Flags are the integer constants of the module that are neither sizes nor versions."""
    others = {"EVENT_BYTES", "EVENT_SCHEMA_VERSION", "EVENT_WORDS", "PAGE_EVENTS_END"}
    constants = {
        name: value for name, value in vars(events).items() if name.isupper() and type(value) is int
    }
    flags = {name: value for name, value in constants.items() if name not in others}
    assert {name: int(bit) for bit, name, _ in rows_of("flags")} == flags


def test_every_transition_has_a_line() -> None:
    found = {(state, event): after for state, event, after, _ in rows_of("transitions")}
    assert found == {
        (state.name, event.name): after.name for (state, event), (after, _) in TRANSITIONS.items()
    }


def test_no_meaning_is_left_over() -> None:
    heads = [name for name in EVENT_DTYPE.names or () if name not in "abcd"]
    assert list(HEAD) == heads
    assert (set(TYPES), set(REASONS), set(STATES)) == (set(EventType), set(Reason), set(PageState))
    fields = {field for dtype in PAYLOADS.values() for field in dtype.names or ()}
    assert set(FIELDS) == {field for field in fields if not field.startswith("_")}
    assert len(FLAGS) == len(rows_of("flags"))


def test_a_code_without_a_meaning_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FIELDS, "checksum")
    with pytest.raises(KeyError, match="checksum"):
        render(TEXT)


@pytest.mark.parametrize("kind", EventType, ids=lambda kind: kind.name)
def test_payloads_are_32_bytes(kind: EventType) -> None:
    assert np.dtype(PAYLOADS[kind]).itemsize == 32
    assert EVENT_DTYPE.itemsize == 64
