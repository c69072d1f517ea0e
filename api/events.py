"""Events as text: every field of the head and of the payload by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import (
    LAST_OF_CALL,
    NO_CHECKSUM,
    PAGE_EVENTS_END,
    WITH_CHECKPOINT,
    EventType,
    Reason,
    decode_payload,
)
from kvstrata.core.states import PageState

__all__ = ["describe", "event_types", "line", "select"]

Events = npt.NDArray[np.void]

_FLAGS = {
    LAST_OF_CALL: "LAST_OF_CALL",
    NO_CHECKSUM: "NO_CHECKSUM",
    WITH_CHECKPOINT: "WITH_CHECKPOINT",
}


def event_types(names: Iterable[str]) -> list[EventType]:
    """Look event types up by name, in any case of letters.

    Raises:
        ConfigError: no event type of that name.
    """
    found = []
    for name in names:
        if name.upper() not in EventType.__members__:
            known = ", ".join(EventType.__members__)
            raise ConfigError(f"event type: expected one of {known}, found {name!r}")
        found.append(EventType[name.upper()])
    return found


def select(
    batches: Iterable[Events], to_seqno: int | None, types: Iterable[EventType], limit: int | None
) -> Iterator[np.void]:
    """Walk events in order.

    Args:
        batches: arrays of ``EVENT_DTYPE``, in order of seqno.
        to_seqno: the last seqno to yield; all if None.
        types: the types to yield; all if empty.
        limit: how many to yield at most; all if None.

    Returns:
        Elements of the arrays.
    """
    wanted = np.array(sorted(types), dtype=np.uint8)
    left = limit
    for batch in batches:
        ended = to_seqno is not None and len(batch) > 0 and int(batch["seqno"][-1]) >= to_seqno
        kept = batch if to_seqno is None else batch[batch["seqno"] <= to_seqno]
        if len(wanted):
            kept = kept[np.isin(kept["type"], wanted)]
        if left is not None:
            kept = kept[:left]
            left -= len(kept)
        yield from kept
        if ended or left == 0:
            return


def describe(event: np.void, groups: tuple[str, ...]) -> dict[str, Any]:
    """Everything one event says.

    Args:
        event: an element of an ``EVENT_DTYPE`` array.
        groups: names of the layout's groups by id.

    Returns:
        Plain values by name, in order of importance; numbers without a name in this version stay
        numbers. What concerns a page is there only for events about a page.
    """
    number = int(event["type"])
    fields: dict[str, Any] = {
        "seqno": int(event["seqno"]),
        "time_ns": int(event["time_ns"]),
        "type": _name(EventType, number),
    }
    if number < PAGE_EVENTS_END:
        group = int(event["group"])
        fields |= {
            "group": groups[group] if group < len(groups) else group,
            "page": int(event["page"]),
            "generation": int(event["generation"]),
            "state": _name(PageState, int(event["state"])),
            "references": int(event["references"]),
        }
    elif number == EventType.VALIDATION_FAILED:
        group = int(event["group"])
        fields |= {
            "group": groups[group] if group < len(groups) else group,
            "page": int(event["page"]),
        }
    fields["reason"] = _name(Reason, int(event["reason"]))
    fields["flags"] = [name for bit, name in _FLAGS.items() if int(event["flags"]) & bit]
    fields["payload"] = decode_payload(event)
    return fields


def line(fields: dict[str, Any]) -> str:
    """One event of :func:`describe` as a line for people."""
    where = f"{fields['group']}/{fields['page']}" if "page" in fields else ""
    if "generation" in fields:
        where += f"#{fields['generation']}"
    words = [f"{fields['seqno']:>10}", f"{fields['type']:<20}", f"{where:<22}"]
    if "state" in fields:
        words.append(f"{fields['state']:<11}")
    if fields["reason"] != "NONE":
        words.append(f"reason={fields['reason']}")
    words += [f"{name}={value}" for name, value in fields["payload"].items()]
    words += fields["flags"]
    return " ".join(words).rstrip()


def _name(enumeration: type[EventType] | type[PageState] | type[Reason], number: int) -> str | int:
    try:
        return enumeration(number).name
    except ValueError:
        return number
