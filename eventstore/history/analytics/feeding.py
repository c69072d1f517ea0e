"""Events as columns: the few types and fields a query reads, a batch at a time."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.events import EVENT_DTYPE, PAYLOADS

from .anchors import Anchors
from .query import Feed

__all__ = ["columns_of", "empty_columns"]

Events = npt.NDArray[np.void]
Columns = dict[str, npt.NDArray[Any]]

_AT_ONCE: Final = 1 << 18
"""Events handed over in one go: large enough that handing over costs nothing by comparison."""
_HEAD_BYTES: Final = 32


def columns_of(
    batches: Iterable[Events], feed: Feed, anchors: Anchors, values: Mapping[str, object]
) -> Iterator[Columns]:
    """The columns of a query's events.

    Args:
        batches: EVENT_DTYPE arrays in order.
        feed: which events and fields.
        anchors: what tells wall time.
        values: of the query's parameters.

    Yields:
        Arrays of equal length by name: ``seqno``, ``type``, ``wall_ns`` and the fields.
    """
    wanted = np.zeros(256, dtype=bool)
    wanted[list(feed.types)] = True
    waiting: list[Events] = []
    walls: list[npt.NDArray[np.int64]] = []
    count = 0
    for batch in batches:
        kept = batch[wanted[batch["type"]]]
        for name in feed.equal:
            kept = kept[kept[name] == values[name]]
        if len(kept) == 0:
            continue
        waiting.append(kept)
        walls.append(anchors.wall_ns(kept))
        count += len(kept)
        if count >= _AT_ONCE:
            yield _columns(np.concatenate(waiting), np.concatenate(walls), feed)
            waiting, walls, count = [], [], 0
    if waiting:
        yield _columns(np.concatenate(waiting), np.concatenate(walls), feed)


def empty_columns(feed: Feed) -> Columns:
    """The same columns of no event: they say the types."""
    return _columns(np.zeros(0, dtype=EVENT_DTYPE), np.zeros(0, dtype=np.int64), feed)


def _columns(events: Events, wall_ns: npt.NDArray[np.int64], feed: Feed) -> Columns:
    columns: Columns = {
        "seqno": np.ascontiguousarray(events["seqno"]),
        "type": np.ascontiguousarray(events["type"]),
        "wall_ns": wall_ns,
    }
    payloads = np.ascontiguousarray(events).view(np.uint8).reshape(-1, EVENT_DTYPE.itemsize)
    payloads = payloads[:, _HEAD_BYTES:]
    for name in feed.fields:
        in_head = name in (EVENT_DTYPE.names or ()) and name not in ("a", "b", "c", "d")
        columns[name] = (
            np.ascontiguousarray(events[name])
            if in_head
            else _payload_field(payloads, columns["type"], feed, name)
        )
    return columns


def _payload_field(
    payloads: npt.NDArray[np.uint8], types: npt.NDArray[np.uint8], feed: Feed, name: str
) -> npt.NDArray[Any]:
    """One field of the payloads, 0 where an event's type has no such field."""
    owners = [kind for kind in feed.types if name in (PAYLOADS[kind].names or ())]
    found: npt.NDArray[Any] = np.zeros(
        len(types), dtype=np.result_type(*(PAYLOADS[kind][name] for kind in owners))
    )
    for kind in owners:
        chosen = types == kind
        rows = np.ascontiguousarray(payloads[chosen]).view(PAYLOADS[kind]).reshape(-1)
        found[chosen] = rows[name]
    return found
