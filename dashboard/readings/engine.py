"""Reads the metrics of :mod:`..metrics.engine`."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from kvstrata.core.events import EVENT_SCHEMA_VERSION, EventType
from kvstrata.eventstore.history.position import Position
from kvstrata.eventstore.log import LogStatus

from ..metrics.labels import TYPE_NAMES
from .sample import Distribution, Sample
from .view import View

__all__ = ["StatusCounters", "read_engine", "read_follower", "read_status"]

_NS: Final = 1e9


class StatusCounters:
    """Counts on the status page over all incarnations seen: each begins its own at 0.

    What an incarnation counted after the last look is lost with it; nothing ever falls.
    """

    def __init__(self) -> None:
        self._incarnation = 0
        self._before = [0, 0]
        self._now = [0, 0]

    def look(self, status: LogStatus) -> tuple[int, int]:
        """Waits for room in the ring, and syncs, so far."""
        if status.incarnation != self._incarnation:
            self._before = [a + b for a, b in zip(self._before, self._now, strict=True)]
            self._now = [0, 0]
            self._incarnation = status.incarnation
        found = status.num_stalls, status.num_syncs
        self._now = [max(a, b) for a, b in zip(self._now, found, strict=True)]
        stalls, syncs = (a + b for a, b in zip(self._before, self._now, strict=True))
        return stalls, syncs


def read_engine(view: View) -> Iterator[Sample | Distribution]:
    """Values of the metrics of events, the engine's lives and its layout."""
    events = view.counts.sum(axis=(1, 2))
    for kind in EventType:
        yield Sample("kvcache_events_total", (TYPE_NAMES[kind],), int(events[kind]))
    yield from _lives(view)
    layout = view.layout
    labels = (layout.name, layout.digest().hex(), str(layout.block_tokens))
    yield Sample("kvcache_layout_info", labels, 1)


def read_status(status: LogStatus | None, counters: StatusCounters) -> Iterator[Sample]:
    """Values of the metrics of the status page; where there is none, no engine is up."""
    if status is None:
        yield Sample("kvcache_engine_up", (), 0)
    else:
        yield from _status(status, counters)


def _status(status: LogStatus, counters: StatusCounters) -> Iterator[Sample]:
    plain = {
        "kvcache_log_ring_events": max(0, status.head - status.drained),
        "kvcache_log_ring_capacity_events": status.capacity,
        "kvcache_log_durable_lag_events": max(0, status.head - status.durable),
        "kvcache_log_heartbeat_age_seconds": status.silence_ms / 1e3,
        "kvcache_log_poisoned": int(status.poisoned),
        "kvcache_log_unlogged": int(status.unlogged),
        "kvcache_log_stalled": int(status.stalled),
        "kvcache_log_closed": int(status.closed),
        "kvcache_engine_up": int(status.writer_alive),
        "kvcache_engine_incarnation": status.incarnation,
    }
    for name, value in plain.items():
        yield Sample(name, (), value)
    stalls, syncs = counters.look(status)
    yield Sample("kvcache_log_stalls_total", (), stalls)
    yield Sample("kvcache_log_syncs_total", (), syncs)


def _lives(view: View) -> Iterator[Sample | Distribution]:
    totals = view.totals
    yield Sample("kvcache_engine_starts_total", (), totals["starts"])
    yield Sample("kvcache_engine_crashes_total", (), totals["crashes"])
    yield Sample("kvcache_crash_pages_total", ("kept",), totals["kept_pages"])
    yield Sample("kvcache_crash_pages_total", ("lost",), totals["lost_pages"])
    yield Sample("kvcache_replayed_events_total", (), totals["replayed_events"])
    yield Sample("kvcache_replay_seconds_total", (), totals["replay_micros"] / 1e6)
    yield Distribution("kvcache_recovery_duration_seconds", (), *view.histograms["recovery"])


def read_follower(position: Position) -> Iterator[Sample]:
    """Values of the metrics of the follower itself."""
    plain = {
        "kvcache_follower_lag_events": position.lag_events,
        "kvcache_follower_lag_seconds": position.lag_seconds,
        "kvcache_follower_last_event_timestamp_seconds": position.event_time_ns / _NS,
        "kvcache_follower_failed": int(bool(position.error)),
        "kvcache_follower_restarts_total": position.restarts,
        "kvcache_follower_missed_events_total": position.missed_events,
        "kvcache_follower_applied_events_total": position.applied_events,
        "kvcache_follower_apply_seconds_total": position.apply_seconds,
    }
    for name, value in plain.items():
        yield Sample(name, (), value)
    build = (version("kvstrata"), str(EVENT_SCHEMA_VERSION))
    yield Sample("kvcache_build_info", build, 1)
