"""One load from a lower tier, as the manager follows it."""

import threading
import weakref
from dataclasses import dataclass, field

from kvstrata.core.words import Arena
from kvstrata.tiers.outcomes import Loaded, LoadFailed

from .requests import Request

__all__ = ["LoadInFlight", "why_partial"]


@dataclass
class LoadInFlight:
    """One load, from its admission until those who waited for it have begun.

    Attributes:
        row: of the sequence that owns its pages.
        identity: of that sequence.
        leased: blocks that it pins before those it loads.
        all_keys: of all objects it loads, and whether each is a checkpoint.
        keys: int64[n, 2], of the blocks it loads.
        checkpoint: key of the checkpoint it loads, or None.
        words: int64[LOAD_WORDS], as the core reads it.
        num_bytes: to load.
        ticket: of the request that was admitted for it, 0 for none.
        began_s: when it began.
        until_s: when it is given up.
        waiters: the requests that wait for it.
        results: one an object, blocks first; None until it came.
        open: objects that have not come.
        num_sealed: blocks that came and were sealed.
        brought_bytes: came without being read, since there are no bytes.
        given_up: it is not waited for any more.
        ended_s: when its pages were sealed; None before.
        is_ahead: nobody need wait for it: it was prefetched.
    """

    row: int
    identity: int
    leased: int
    all_keys: list[tuple[int, int, bool]]
    keys: Arena
    checkpoint: tuple[int, int] | None
    words: Arena
    num_bytes: int
    ticket: int
    began_s: float
    until_s: float
    waiters: "dict[int, weakref.ref[Request]]" = field(default_factory=dict)
    results: list[Loaded | LoadFailed | None] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: int = 0
    num_sealed: int = 0
    brought_bytes: int = 0
    first_bad: int = 1 << 62
    given_up: bool = False
    ended_s: float | None = None
    is_ahead: bool = False

    def failed(self, number: int) -> None:
        """An object, by its place, did not come: the blocks behind it are of no use; any thread."""
        with self.lock:
            self.first_bad = min(self.first_bad, number)

    def waiting(self) -> int:
        """How many requests still wait."""
        gone = [number for number, one in self.waiters.items() if one() is None]
        for number in gone:
            del self.waiters[number]
        return len(self.waiters)


def why_partial(load: LoadInFlight) -> int:
    """Why a load did not come whole, or 0."""
    for result in load.results:
        if isinstance(result, LoadFailed):
            return int(result.fault.reason)
    return 0
