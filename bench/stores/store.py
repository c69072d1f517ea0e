"""What makes events durable: the interface, and how a store with transactions is driven."""

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from kvstrata.core.events import EVENT_DTYPE, LAST_OF_CALL, EventType

Words = npt.NDArray[np.int64]

CALL_EVENTS = 64
SYNC_S = 0.005


def make_call() -> Words:
    """One call, int64[64, 8]: notes with a random payload; their seqnos are stored each time."""
    events = np.zeros(CALL_EVENTS, dtype=EVENT_DTYPE)
    events["type"] = int(EventType.STATE_DIGEST)
    events["time_ns"] = time.monotonic_ns()
    events["flags"][-1] = LAST_OF_CALL
    words: Words = events.view(np.int64).reshape(CALL_EVENTS, 8)
    words[:, 4:] = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, (CALL_EVENTS, 4))
    return words


class Store(ABC):
    """What makes events durable.

    Args:
        folder: an empty one on the disk.
        shared_memory: an empty one in memory.

    Attributes:
        name: as the tables call it.
        how: what it does, in words.
        call: int64[64, 8], the events of every call.
        events: durable so far.
        syncs: so far.
    """

    name: ClassVar[str]
    how: ClassVar[str]

    def __init__(self, folder: Path, shared_memory: Path) -> None:
        self.folder = folder
        self.shared_memory = shared_memory
        self.call = make_call()
        self.events = 0
        self.syncs = 0

    @abstractmethod
    def run(self, seconds: float) -> None:
        """Take calls for so long."""

    def settle(self) -> None:  # noqa: B027  # most have nothing to wait for
        """Wait for what goes on in the background."""

    @abstractmethod
    def close(self) -> None:
        """End it."""


class Transactions(Store):
    """A store with transactions: each takes calls for 5 ms, then commits and syncs."""

    calls_at_once: ClassVar[int] = 1
    """Calls of one statement."""

    def run(self, seconds: float) -> None:
        events = np.tile(self.call, (self.calls_at_once, 1))
        steps = np.arange(len(events), dtype=np.int64)
        end = time.perf_counter() + seconds
        taken = self.events
        while (now := time.perf_counter()) < end:
            self.begin()
            due = now + SYNC_S
            while time.perf_counter() < due:
                np.add(steps, taken + 1, out=events[:, 0])
                self.put(events)
                taken += len(events)
            self.commit()
            self.events = taken
            self.syncs += 1

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def put(self, events: Words) -> None:
        """Add whole calls to it."""

    @abstractmethod
    def commit(self) -> None:
        """Make it durable."""
