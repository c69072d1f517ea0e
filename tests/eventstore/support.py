"""A log of fake events: what the tests of the log share.

The fake projection is one running digest per word, so that any missing, doubled, changed or
reordered event shows in the arena.
"""

import hashlib
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kvstrata.core.arena import ArenaParams
from kvstrata.core.groups import Component, GroupSpec, Kind
from kvstrata.core.layout import CacheLayout
from kvstrata.core.ring import RING_CAPACITY, RING_HEAD, RING_HEADER_WORDS
from kvstrata.eventstore.log import EventLog, LogConfig, Projection
from kvstrata.eventstore.log.projection import Words
from kvstrata.eventstore.log.system import System

LAYOUT = CacheLayout(
    name="plain",
    groups=(
        GroupSpec("full", Kind.COMPRESSED, (0,), 1, 0, False, (Component("kv", "u8", 16, (4,)),)),
    ),
    block_tokens=16,
    rollback_tokens=1,
    num_layers=1,
)
PARAMS = ArenaParams(slots={"full": 8})
ARENA_WORDS = 16
_MULTIPLIER = np.int64(6364136223846793005)


def fake_apply(arena: Words, words: Words) -> int:
    """Word 0 is the last seqno, words 1 to 8 a chained digest of every event."""
    with np.errstate(over="ignore"):
        for index, event in enumerate(words):
            if event[0] != arena[0] + 1:
                arena[9] = -1
                return index
            arena[0] = event[0]
            arena[1:9] = arena[1:9] * _MULTIPLIER + event + 1
    return len(words)


def fake_projection(name: str = "fake") -> Projection:
    """A projection whose arena tells every history from every other."""
    return Projection(
        fresh=lambda: np.zeros(ARENA_WORDS, dtype=np.int64),
        apply=fake_apply,
        last_seqno=lambda arena: int(arena[0]),
        refusal=lambda arena: int(arena[9]),
        layout_digest=hashlib.sha256(name.encode()).digest()[:16],
        digest=hashlib.sha256(b"shape").digest()[:16],
        layout={"name": name},
        params={"words": ARENA_WORDS},
    )


def make_event(seqno: int, last_of_call: bool, salt: int = 0) -> Words:
    """The one event that the tests expect under a seqno, in one life of the engine."""
    event = np.zeros(8, dtype=np.int64)
    event[0] = seqno
    event[1] = 1000 + seqno
    event[2] = 63 | int(last_of_call) << 40
    event[3:] = np.arange(5) * 7919 + seqno + salt
    event[7] |= 0x55 << 56  # no zero at the end that a cut would not show
    return event


def make_call(first_seqno: int, size: int, salt: int = 0) -> Words:
    """int64[size, 8], the events of one manager call."""
    return np.stack([make_event(first_seqno + n, n == size - 1, salt) for n in range(size)])


def state_after(sizes: Iterable[int]) -> Words:
    """The arena after calls of so many events each."""
    arena = np.zeros(ARENA_WORDS, dtype=np.int64)
    for size in sizes:
        fake_apply(arena, make_call(int(arena[0]) + 1, size))
    return arena


def put_in_ring(ring: Words, events: Words) -> None:
    """Write and publish one call, as the mutating thread does."""
    head = int(ring[RING_HEAD])
    for place, event in enumerate(events):
        at = RING_HEADER_WORDS + (head + place) % int(ring[RING_CAPACITY]) * 8
        ring[at : at + 8] = event
    ring[RING_HEAD] = head + len(events)


def publish_call(log: EventLog, *sizes: int) -> None:
    """Manager calls of so many events: into the ring at once, and onto the live arena."""
    calls = []
    seqno = int(log.ring[RING_HEAD])
    for size in sizes:
        calls.append(make_call(seqno + 1, size))
        seqno += size
    events = np.concatenate(calls)
    fake_apply(log.arena, events)
    put_in_ring(log.ring, events)


class Bench:
    """One log directory with its own corner of shared memory."""

    def __init__(self, directory: Path, shared: Path) -> None:
        self.directory = directory
        self.shared = shared

    def config(self, **changes: object) -> LogConfig:
        settings: dict[str, object] = {
            "ring_events": 256,
            "segment_bytes": 16384,
            "shared_memory_root": self.shared,
            "segments_per_snapshot": 0,
            "flush_timeout_ms": 5000.0,
        }
        return LogConfig(**(settings | changes))  # type: ignore[arg-type]

    def write(self, batches: Iterable[list[int]], close: bool = False) -> None:
        """Write a log: each inner list is one synced batch of calls of so many events."""
        log = self.open()
        log.start()
        for calls in batches:
            publish_call(log, *calls)
            log.flush()
        log.close(clean=close)

    def forget_ring(self) -> None:
        """Shared memory as after a reboot."""
        shutil.rmtree(self.shared)
        self.shared.mkdir()

    def forget_watermark(self) -> None:
        (self.directory / "watermark").unlink(missing_ok=True)

    def open(self, system: System | None = None, **changes: object) -> EventLog:
        return EventLog.open(
            self.directory,
            LAYOUT,
            self.config(**changes),
            PARAMS,
            projection=fake_projection(),
            system=system,
        )


@contextmanager
def shared_corner() -> Iterator[Path]:
    """A folder on tmpfs that is gone afterwards."""
    corner = Path("/dev/shm") / f"kvstrata-tests-{uuid.uuid4().hex}"
    corner.mkdir()
    try:
        yield corner
    finally:
        shutil.rmtree(corner, ignore_errors=True)


def segments_of(directory: Path) -> list[Path]:
    return sorted((directory / "segments").glob("*.seg"))


def edit(path: Path, offset: int, data: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


class OtherBoot(System):
    """The same machine after a reboot."""

    def boot_id(self) -> bytes:
        return bytes(reversed(super().boot_id()))
