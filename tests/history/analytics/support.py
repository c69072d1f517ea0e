"""Log directories of histories that tests made up, and what apply makes of them."""

import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from kvstrata import LogConfig
from kvstrata.core.arena import ArenaParams, open_tables
from kvstrata.core.events import EVENT_DTYPE, LAST_OF_CALL, PAYLOADS, EventType
from kvstrata.core.layout import CacheLayout
from kvstrata.core.ring import RING_CAPACITY
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_GENERATION, PAGE_SEQNO, PAGE_STATE, POOL_FIRST, Arena
from kvstrata.eventstore.history.analytics import run_query
from kvstrata.eventstore.log import EventLog
from tests.core.subjects import Words, replay
from tests.eventstore.support import put_in_ring

RING_EVENTS = 1 << 10
_MINUTE_NS = 60 * 10**9


def log_config(shared: Path, **changes: Any) -> LogConfig:
    """Small segments, so that there are many."""
    settings: dict[str, Any] = {
        "ring_events": RING_EVENTS,
        "segment_bytes": 24 << 10,
        "shared_memory_root": shared,
        "segments_per_snapshot": 0,
        "sync_interval_ms": 1.0,
    }
    return LogConfig(**(settings | changes))


def write_log(
    directory: Path,
    shared: Path,
    layout: CacheLayout,
    params: ArenaParams,
    calls: Iterable[Words],
    **changes: Any,
) -> Arena:
    """Have the real log write events, call by call; the arena that apply gives."""
    log = EventLog.open(directory, layout, log_config(shared, **changes), params)
    log.start()
    try:
        waiting = 0
        for recorded in calls:
            words = recorded.copy()
            words[-1:, 2] |= LAST_OF_CALL << 40  # as it is published; some were recorded before
            for call in np.split(words, np.flatnonzero(words[:, 2] >> 40 & LAST_OF_CALL)[:-1] + 1):
                replay(log.arena, call)
                if waiting + len(call) > int(log.ring[RING_CAPACITY]) // 2:
                    log.flush()
                    waiting = 0
                put_in_ring(log.ring, call)
                waiting += len(call)
        log.flush()
        arena = log.arena.copy()
    finally:
        log.close(clean=False)
    return arena


def pages_by_apply(arena: Arena, layout: CacheLayout, params: ArenaParams) -> list[tuple[Any, ...]]:
    """Every page but the scratch pages: group, page, state, generation and seqno."""
    tables = open_tables(arena)
    found = []
    for code, group in enumerate(layout.groups):
        first = int(tables.pools[code, POOL_FIRST])
        for page in range(1, params.slots[group.name]):
            row = tables.pages[first + page]
            state = PageState(int(row[PAGE_STATE])).name
            found.append((group.name, page, state, int(row[PAGE_GENERATION]), int(row[PAGE_SEQNO])))
    return found


class Story:
    """Events of one's own choice, at wall times of one's own choice.

    Args:
        place: a folder on tmpfs.
        layout: of the log.
        params: of the log.
    """

    def __init__(self, place: Path, layout: CacheLayout, params: ArenaParams) -> None:
        self.directory = place / "log"
        self.shared = place / "shared"
        self.shared.mkdir()
        self._layout, self._params = layout, params
        self._ahead_ns = time.time_ns() - time.monotonic_ns()
        # The beginning of a minute that is over, and some milliseconds so that none is short.
        self._minute_ns = (time.time_ns() // _MINUTE_NS - 10) * _MINUTE_NS + 5_000_000
        self._events: list[Words] = []

    def at(
        self, at_s: float, kind: EventType, head: dict[str, int] | None = None, **payload: float
    ) -> None:
        """Something happens so many seconds after the first minute began."""
        found = np.zeros(1, dtype=EVENT_DTYPE)
        found["seqno"] = len(self._events) + 1
        found["time_ns"] = self._minute_ns + round(at_s * 1e9) - self._ahead_ns
        found["type"] = kind
        found["flags"] = LAST_OF_CALL
        for name, value in (head or {}).items():
            found[name] = value
        fields = np.zeros(1, dtype=PAYLOADS[kind])
        for name, number in payload.items():
            fields[name] = number
        words = found.view(np.int64).reshape(1, 8)
        words[:, 4:] = fields.view(np.int64).reshape(1, 4)
        self._events.append(words)

    def ask(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        """The answer, its times as whole seconds after the first minute began."""
        if not self.directory.exists():
            write_log(self.directory, self.shared, self._layout, self._params, self._events)
        found = run_query(self.directory, query, parameters, shared_memory_root=self.shared)
        return [
            {
                name: self._seconds(value) if name == "time" else value
                for name, value in record.items()
            }
            for record in found.records()
        ]

    def _seconds(self, moment: str | None) -> int | None:
        if moment is None:
            return None
        return round(datetime.fromisoformat(moment).timestamp() - self._minute_ns / 1e9)
