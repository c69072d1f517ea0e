"""Completions of I/O: reported from any thread, applied by the one that mutates, counted if odd."""

import itertools
import queue
from collections import Counter
from typing import Final

import numpy as np

from kvstrata.core.events import EventType, Reason
from kvstrata.core.room import MORE
from kvstrata.core.transfers import begin_transfer, end_transfer, settle_transfer
from kvstrata.core.words import Arena

from .caller import CoreCaller, zeros
from .handles import Transfer

__all__ = ["Completions"]

_TRANSFER_ROW: Final = 0xFFFF
"""In place of a row in the id: no sequence or lease has it."""


class Completions:
    """Transfers in flight, and the queue of those that have ended.

    Args:
        call: runs compiled calls.
        steps: the step table.
    """

    def __init__(self, call: CoreCaller, steps: Arena) -> None:
        self._call = call
        self._steps = steps
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._rows: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._last = 0
        self._put_off: list[int] = []
        self.anomalies: Counter[str] = Counter()
        """Late, duplicate and ghost completions so far, by reason."""

    def begin(self, row: int) -> Transfer:
        """A transfer into (or out of) a sequence's pages begins."""
        self._last = next(self._numbers)
        identity = self._last << 16 | _TRANSFER_ROW
        begin_transfer(self._steps, row)
        self._rows[identity] = row
        return Transfer(self, identity)

    def report(self, identity: int) -> None:
        """A transfer, or a sequence, has ended; from any thread."""
        self._queue.put(int(identity))

    @property
    def waiting(self) -> bool:
        """Whether anything was reported since the last look, or put off then."""
        return not self._queue.empty() or bool(self._put_off)

    def put_off(self, identity: int) -> None:
        """Look at it again next time: something is in flight for that sequence."""
        self._put_off.append(identity)

    def end_all(self) -> None:
        """The manager closes: nothing is waited for any more."""
        for identity in list(self._rows):
            self.end(identity)

    def is_transfer(self, identity: int) -> bool:
        """Whether an id is that of a transfer, past or present or made up."""
        return identity & 0xFFFF == _TRANSFER_ROW

    def take(self) -> list[int]:
        """Everything reported since the last look, in order."""
        taken, self._put_off = self._put_off, []
        while True:
            try:
                taken.append(self._queue.get_nowait())
            except queue.Empty:
                return taken

    def end(self, identity: int) -> None:
        """Apply the end of a transfer; one that is not in flight is an anomaly."""
        row = self._rows.pop(identity, None)
        if row is None:
            known = 0 < identity >> 16 <= self._last
            self.anomaly(
                identity, Reason.DUPLICATE_COMPLETION if known else Reason.GHOST_COMPLETION
            )
            return
        arguments = (self._call.arena, self._steps, self._call.ring, row)
        code = self._call.run(end_transfer, *arguments)
        while code == MORE:
            code = self._call.run(settle_transfer, *arguments)

    def anomaly(self, identity: int, reason: Reason) -> None:
        """Log and count a completion that nothing waits for; it changes nothing else."""
        self.anomalies[reason.name.lower()] += 1
        payload = zeros(4)
        payload[0] = np.array([identity & 2**64 - 1], dtype=np.uint64).astype(np.int64)[0]
        self._call.note(EventType.COMPLETION_ANOMALY, payload, reason)

    @property
    def in_flight(self) -> int:
        """Transfers that have not ended."""
        return len(self._rows)
