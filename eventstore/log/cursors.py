"""The ring's cursors and flags as the log's threads share them.

Cursors, all seqnos: ``durable <= drained <= head``.

1. *head*: use: what the mutating thread has published. Only that thread moves it.
2. *drained*: use: written to a segment, its ring places are free. Only the writer moves it,
   after the write returned.
3. *durable*: use: synced; may be acknowledged and may leave the machine. Only the writer moves
   it, after the sync returned and while the log is neither poisoned nor unlogged.
"""

import threading
from enum import IntEnum
from typing import Final

from kvstrata.core.ring import (
    RING_CAPACITY,
    RING_DRAINED,
    RING_DURABLE,
    RING_FLAG_POISONED,
    RING_FLAG_UNLOGGED,
    RING_FLAGS,
    RING_HEAD,
    RING_HEARTBEAT_NS,
)

from .projection import Words
from .ringfile import RING_WRITER_PHASE

__all__ = ["Cursors", "Patience", "Phase"]

_STOPPED: Final = RING_FLAG_POISONED | RING_FLAG_UNLOGGED


class Phase(IntEnum):
    """What the writer is doing, in RING_WRITER_PHASE of the status page."""

    STOPPED = 0
    WAITING = 1
    WRITING = 2
    SYNCING = 3
    MARKING = 4
    ROTATING = 5


class Cursors:
    """One ring header, with the lock that orders stopping against acknowledging."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._changed = threading.Condition()
        self._reason = ""

    @property
    def head(self) -> int:
        """Last seqno published."""
        return int(self._words[RING_HEAD])

    @property
    def drained(self) -> int:
        """Last seqno written."""
        return int(self._words[RING_DRAINED])

    @property
    def durable(self) -> int:
        """Last seqno synced."""
        return int(self._words[RING_DURABLE])

    @property
    def capacity(self) -> int:
        """Events the ring holds."""
        return int(self._words[RING_CAPACITY])

    @property
    def is_stopped(self) -> bool:
        """Whether the log is poisoned or unlogged: nothing more becomes durable."""
        return bool(int(self._words[RING_FLAGS]) & _STOPPED)

    @property
    def reason(self) -> str:
        """Why it was stopped first, "" where it was not."""
        return self._reason

    @property
    def phase(self) -> Phase:
        """What the writer is doing."""
        return Phase(int(self._words[RING_WRITER_PHASE]))

    def enter(self, phase: Phase) -> None:
        """Show what the writer is doing."""
        self._words[RING_WRITER_PHASE] = phase

    def beat(self, now_ns: int) -> None:
        """Show that the writer lives."""
        self._words[RING_HEARTBEAT_NS] = now_ns

    @property
    def heartbeat_ns(self) -> int:
        """The writer's last sign of life."""
        return int(self._words[RING_HEARTBEAT_NS])

    def stop(self, flag: int, reason: str) -> bool:
        """Poison the log or end its epoch: no cursor moves from here on.

        Returns:
            False where this flag was set before.
        """
        with self._changed:
            before = int(self._words[RING_FLAGS])
            self._words[RING_FLAGS] = before | flag
            if not before & _STOPPED:
                self._reason = reason
            self._changed.notify_all()
        return not before & flag

    def advance(self, drained: int, durable: int) -> bool:
        """Move the writer's cursors.

        Returns:
            False where the log was stopped, and nothing moved.
        """
        with self._changed:
            if self.is_stopped:
                return False
            self._words[RING_DRAINED] = drained
            self._words[RING_DURABLE] = durable
            self._changed.notify_all()
        return True

    def wait_for_durable(self, seqno: int, timeout_s: float) -> bool:
        """Wait until a seqno is durable or the log stops, at most so long.

        Returns:
            Whether it is durable, and was so before the log stopped.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.is_stopped or self.durable >= seqno, timeout_s)
            return self.durable >= seqno


class Patience:
    """How long a waiting thread has seen no sign of life from the writer.

    Counted in looks, not by the clock: where the whole process stood still (a paused machine),
    the writer is not to blame.
    """

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors
        self._beat_ns = cursors.heartbeat_ns
        self.silence_ms = 0.0

    def look(self, waited_ms: float) -> None:
        """Note a look after having waited so long for something else."""
        beat_ns = self._cursors.heartbeat_ns
        self.silence_ms = self.silence_ms + waited_ms if beat_ns == self._beat_ns else 0.0
        self._beat_ns = beat_ns
