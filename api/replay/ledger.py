"""What a log says of a replay: which requests began, hit and ended, and what was evicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstrata import CacheLayout, ConfigError
from kvstrata.core.events import FOR_LOAD, WITH_CHECKPOINT, EventType, Reason

from .turns import Turn, Turns

__all__ = ["Ledger"]

_BEGUN = int(EventType.SEQUENCE_BEGUN)
_FINISHED = int(EventType.SEQUENCE_FINISHED)
_GRANTED = int(EventType.LEASE_GRANTED)
_RECOVERED = int(EventType.RECOVERY_ENDED)
_FREED = int(EventType.PAGE_FREED)
_LIMITED = int(EventType.HIT_LIMITED)
_OF_REQUESTS = (_BEGUN, _FINISHED, _GRANTED, _RECOVERED, _LIMITED)
_STORED = int(EventType.OBJECT_STORED)
_LOADED = int(EventType.LOAD_ENDED)
_LOW_32 = 0xFFFF_FFFF


@dataclass
class _Running:
    turn: Turn
    hit_tokens: int = 0
    saved_tokens: int = 0
    recomputed_tokens: int = 0


class Ledger:
    """Counts requests and evictions, event by event, and whose turn comes next.

    The same events give the same counts, whether they are read as they happen or from the log of a
    replay that was killed.

    Args:
        turns: the order of the trace's requests; moved on.
        layout: the layout.
        seed: chain seed of the trace's requests; a log of others is refused.

    Attributes:
        seqno: of the last event read, 0 before the first.
        is_closed: whether that event is the end of a log that was closed.
    """

    def __init__(self, turns: Turns, layout: CacheLayout, seed: bytes) -> None:
        self._turns = turns
        self._layout = layout
        self._seed = np.frombuffer(seed, dtype="<i8").tolist()
        self._running: dict[int, _Running] = {}
        self._broken: list[Turn] = []
        self.seqno = 0
        self.is_closed = False
        self.requests = 0
        self.prompt_tokens = 0
        self.hit_tokens = 0
        self.saved_tokens = 0
        self.hits = 0
        self.recomputed_tokens = 0
        self.evictions = 0
        self.loads = 0
        self.load_bytes = 0
        self.stored_bytes = 0
        self.stored_tokens = 0
        self._begun_last: _Running | None = None

    def read(self, events: npt.NDArray[np.void]) -> None:
        """Count the next events, EVENT_DTYPE[n], and move the turns on.

        Raises:
            ConfigError: a sequence is of another trace, or of one with other options.
        """
        if len(events) == 0:
            return
        kinds = events["type"]
        evicted = (kinds == _FREED) & (events["reason"] == int(Reason.EVICTED))
        first_of_unit = (events["group"] == 0) | (
            events["group"] == len(self._layout.history_groups)
        )
        self.evictions += int(np.count_nonzero(evicted & first_of_unit))
        self._count_objects(events, kinds)
        for event in events[np.isin(kinds, _OF_REQUESTS)]:
            self._read_one(event)
        self.seqno = int(events["seqno"][-1])
        self.is_closed = int(kinds[-1]) == int(EventType.MANAGER_CLOSED)

    def _count_objects(self, events: npt.NDArray[np.void], kinds: npt.NDArray[np.uint8]) -> None:
        """Count what went to the tier below and came from there."""
        stored = events[kinds == _STORED]
        self.stored_bytes += int(stored["c"].sum())
        is_block = stored["d"] >> 48 & 1 == 0
        self.stored_tokens += int(np.count_nonzero(is_block)) * self._layout.block_tokens
        loaded = events[kinds == _LOADED]
        self.loads += len(loaded)
        self.load_bytes += int(loaded["c"].sum())

    def _read_one(self, event: Any) -> None:
        kind, a, c, d = (int(event[name]) for name in ("type", "a", "c", "d"))
        if kind == _BEGUN and int(event["flags"]) & FOR_LOAD:
            return  # a load, no request
        if kind == _BEGUN:
            turn = self._turns.next() if [c, d] == self._seed else None
            if turn is None:
                raise ConfigError(
                    "the log directory: expected the replay of this trace with these options, "
                    "found another's; name another --dir, or remove this one"
                )
            self._running[a] = self._begun_last = _Running(turn)
        elif kind == _LIMITED and self._begun_last is not None:
            # found and agreed: said of the sequence that began just before
            self._begun_last.recomputed_tokens += a - int(event["b"])
        elif kind == _GRANTED and c in self._running:
            has_checkpoint = int(event["flags"]) & WITH_CHECKPOINT != 0
            self._hit(self._running[c], d >> 32 & _LOW_32, has_checkpoint)
        elif kind == _FINISHED and a in self._running:
            self._ended(self._running.pop(a), int(event["reason"]))
        elif kind == _RECOVERED:
            self._turns.put_back(self._broken)
            self._broken = []

    def _hit(self, running: _Running, num_blocks: int, has_checkpoint: bool) -> None:
        tokens = self._layout.block_tokens
        running.hit_tokens = running.saved_tokens = num_blocks * tokens
        if self._layout.state_groups and not has_checkpoint:
            before = running.hit_tokens - self._layout.replay_tokens
            running.saved_tokens = before // tokens * tokens
            running.recomputed_tokens += running.hit_tokens - running.saved_tokens

    def _ended(self, running: _Running, reason: int) -> None:
        if reason != int(Reason.FINISHED):
            self._broken.append(running.turn)
            return
        request = self._turns.request(running.turn)
        self.requests += 1
        self.prompt_tokens += request.prompt_tokens
        self.hit_tokens += running.hit_tokens
        self.saved_tokens += running.saved_tokens
        self.hits += running.hit_tokens > 0
        self.recomputed_tokens += running.recomputed_tokens
        self._turns.ended(running.turn)
