"""Durable events a second: the same 64-byte events, in calls of 64, a group commit every 5 ms.

Each subject gets calls as fast as it takes them, for so many seconds; what counts is what was
synced when the clock stopped. Numbering a call's events is in everybody's time, and so is turning
them into what a store takes (rows, or keys and values).

The limit writes the same bytes again and again, without numbers or checksums: one thread writes
pieces of a megabyte, another syncs every 5 ms, and as much may wait for a sync as fits into
kvstrata's ring.
"""

import os
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kvstrata import LogConfig, preset
from kvstrata.core.arena import ArenaParams
from kvstrata.core.ring import RING_CAPACITY, RING_DRAINED, RING_HEAD, RING_HEADER_WORDS
from kvstrata.eventstore.log import EventLog
from kvstrata.eventstore.log.cursors import Phase

from .databases import Lmdb, LmdbCalls, Sqlite, SqliteTuples
from .figures import in_turn, medians, timed
from .store import CALL_EVENTS, SYNC_S, Store

SEGMENT_BYTES = 256 << 20
RING_EVENTS = 1 << 20
_PIECE_EVENTS = 1 << 14
_WARM_S = 0.1
_STEPS = np.arange(CALL_EVENTS, dtype=np.int64)


class KvstrataLog(Store):
    """A producer fills the ring; the writer's thread drains it and syncs."""

    name = "kvstrata"
    how = "ring and writer thread, checksummed segments"

    def __init__(self, folder: Path, shared_memory: Path) -> None:
        super().__init__(folder, shared_memory)
        layout = preset("deepseek-v4-flash")
        slots = {group.name: 1024 for group in layout.groups}
        params = ArenaParams(slots, max_sequences=16, max_leases=4, max_blocks_per_sequence=64)
        config = LogConfig(
            ring_events=RING_EVENTS,
            segment_bytes=SEGMENT_BYTES,
            segments_per_snapshot=0,
            shared_memory_root=shared_memory,
        )
        self._log = EventLog.open(folder / "log", layout, config, params)
        self._log.start()

    def run(self, seconds: float) -> None:
        words, call = self._log.ring, self.call
        ring = words[RING_HEADER_WORDS:].reshape(-1, 8)
        capacity, head = int(words[RING_CAPACITY]), int(words[RING_HEAD])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            if head + CALL_EVENTS - int(words[RING_DRAINED]) > capacity:
                time.sleep(0.0001)
                continue
            np.add(_STEPS, head + 1, out=call[:, 0])
            place = head % capacity
            ring[place : place + CALL_EVENTS] = call
            head += CALL_EVENTS
            words[RING_HEAD] = head
        status = self._log.status()
        self.events, self.syncs = status.durable, status.num_syncs

    def settle(self) -> None:
        """Until the writer has its next segment prepared."""
        self._log.flush(60)
        while self._log.status().phase is not Phase.WAITING:
            time.sleep(0.001)

    def close(self) -> None:
        self._log.flush(60)
        self._log.close(clean=False)


class RawWrites(Store):
    """What the disk and the kernel take: a thread that writes, and one that syncs every 5 ms."""

    name = "pwritev"
    how = "the same bytes by pwritev and fdatasync alone, into a file reserved ahead: the limit"

    def __init__(self, folder: Path, shared_memory: Path) -> None:
        super().__init__(folder, shared_memory)
        self._piece = np.tile(self.call, (_PIECE_EVENTS // CALL_EVENTS, 1)).data.cast("B")
        self._descriptor = os.open(folder / "raw", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.posix_fallocate(self._descriptor, 0, SEGMENT_BYTES)
        os.fdatasync(self._descriptor)
        self._written = 0
        self._ends = False

    def run(self, seconds: float) -> None:
        self._ends = False
        syncing = threading.Thread(target=self._sync)
        syncing.start()
        pieces = SEGMENT_BYTES // len(self._piece)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            if self._written - self.events >= RING_EVENTS:
                time.sleep(0.0001)
                continue
            place = self._written // _PIECE_EVENTS % pieces
            os.pwritev(self._descriptor, [self._piece], place * len(self._piece))
            self._written += _PIECE_EVENTS
        self._ends = True
        syncing.join()

    def _sync(self) -> None:
        while not self._ends:
            start, written = time.perf_counter(), self._written
            os.fdatasync(self._descriptor)
            self.events = written
            self.syncs += 1
            time.sleep(max(0.0, SYNC_S - (time.perf_counter() - start)))

    def close(self) -> None:
        os.close(self._descriptor)


STORES: tuple[Any, ...] = (
    KvstrataLog,
    Sqlite,
    SqliteTuples,
    Lmdb,
    LmdbCalls,
    RawWrites,
)


def measure(rounds: int, seconds: float, folder: Path, shared_memory: Path) -> dict[str, Any]:
    """Medians of so many rounds of every store, in alternating order."""
    found: dict[str, list[dict[str, float]]] = {store.name: [] for store in STORES}
    for number in range(rounds):
        for store in in_turn(number, list(STORES)):
            with (
                TemporaryDirectory(dir=folder) as disk,
                TemporaryDirectory(dir=shared_memory) as memory,
            ):
                found[store.name].append(_measure(store, Path(disk), Path(memory), seconds))
    return {store.name: {"how": store.how, **medians(found[store.name])} for store in STORES}


def _measure(make: Any, disk: Path, memory: Path, seconds: float) -> dict[str, float]:
    store: Store = make(disk, memory)
    try:
        store.run(_WARM_S)
        store.settle()
        events, syncs = store.events, store.syncs
        _, spent = timed(lambda: store.run(seconds))
        events, syncs = store.events - events, store.syncs - syncs
    finally:
        store.close()
    return {
        **spent,
        "events": events,
        "events_per_s": events / spent["wall_s"],
        "syncs_per_s": syncs / spent["wall_s"],
        "cpu_s_per_million": spent["cpu_s"] / max(events, 1) * 1e6,
    }
