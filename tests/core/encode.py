"""Events of the reference as the core's 64-byte events: an encoder of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstrata.core.events import (
    EVENT_DTYPE,
    FOR_LOAD,
    LAST_OF_CALL,
    NO_CHECKSUM,
    PARTIAL,
    PAYLOADS,
    WITH_CHECKPOINT,
    WITH_PARTIAL,
    EventType,
    Reason,
)
from kvstrata.core.states import PageState

ROLES = {"HISTORY": 0, "PRIVATE": 1, "CHECKPOINT": 2}
FLAGS = {
    "with_checkpoint": WITH_CHECKPOINT,
    "with_partial": WITH_PARTIAL,
    "partial": PARTIAL,
    "for_load": FOR_LOAD,
}


def payload_of(event: dict[str, Any]) -> dict[str, Any]:
    """Fields of the payload, by the names of its type."""
    if event["type"] == "PAGE_SEALED":
        fields = {"key": np.void(event["key"]), "unit": event["unit"], "parent": event["parent"]}
    elif event["type"] == "PAGE_RESERVED":
        fields = {
            "owner": event["holder"],
            "unit": event["unit"],
            "index": event["place"],
            "row": event["row"],
            "role": ROLES[event["role"]],
        }
    elif event["type"].startswith("PAGE_"):
        fields = {"unit": event["unit"], "index": event["place"]}
    else:
        names = PAYLOADS[EventType[event["type"]]].names or ()
        fields = {name: event[name] for name in names if name in event}
        for name in ("key", "seed"):
            if name in fields:
                fields[name] = np.void(fields[name])
    return fields


def encode(
    events: Sequence[dict[str, Any]], first_seqno: int, time_ns: int
) -> npt.NDArray[np.int64]:
    """One call's events, int64[n, 8]."""
    encoded = np.zeros(len(events), dtype=EVENT_DTYPE)
    for place, event in enumerate(events):
        kind = EventType[event["type"]]
        one = encoded[place : place + 1]
        one["seqno"], one["time_ns"], one["type"] = first_seqno + place, time_ns, kind
        one["group"], one["page"] = event.get("group", 0), event.get("page", 0)
        one["generation"] = event.get("generation", 0)
        one["references"] = event.get("references", 0)
        one["reason"] = Reason[event.get("reason", "NONE")]
        if "state" in event:
            one["state"] = PageState[event["state"]]
        for name, flag in FLAGS.items():
            if event.get(name):
                one["flags"] |= flag
        if kind is EventType.PAGE_SEALED:
            one["flags"] |= NO_CHECKSUM
        payload = np.zeros(1, dtype=PAYLOADS[kind])
        for name, value in payload_of(event).items():
            payload[name] = value
        one.view("V64").view(np.uint8)[32:] = payload.view(np.uint8)
    if len(events):
        encoded["flags"][-1] |= LAST_OF_CALL
    return encoded.view(np.int64).reshape(-1, 8)


def outline(words: npt.NDArray[np.int64]) -> list[tuple[Any, ...]]:
    """What is compared of each event: head without time and seqno, and whom it is about.

    A verb may be several calls, so where calls end is not compared.
    """
    events = np.ascontiguousarray(words).reshape(-1).view(EVENT_DTYPE)
    lines = []
    for event in events:
        kind = EventType(int(event["type"]))
        fields = np.frombuffer(event.tobytes()[32:], dtype=PAYLOADS[kind])[0]
        names = ("unit", "key", "row", "num_blocks", "sequence", "seed", "lease")
        if kind.name.startswith("SEQUENCE_"):
            names += ("position", "parent_sequence")
        if kind.name.startswith("OBJECT_"):
            names += ("position", "tiers", "checkpoint")
        if kind is EventType.REQUEST_RESUMED:
            names += ("resume_at", "reused", "loaded", "prompt", "kept", "source")
        if kind is EventType.HIT_LIMITED:
            names += ("found", "agreed")
        about = {
            name: fields[name].tobytes().hex() if name in ("key", "seed") else int(fields[name])
            for name in names
            if name in (fields.dtype.names or ())
        }
        if kind is EventType.PAGE_SEALED:
            about["parent"] = int(fields["parent"])
        lines.append(
            (
                kind.name,
                int(event["group"]),
                int(event["page"]),
                int(event["generation"]),
                PageState(int(event["state"])).name,
                int(event["references"]),
                int(event["flags"]) & ~LAST_OF_CALL,
                Reason(int(event["reason"])).name,
                about,
            )
        )
    return lines
