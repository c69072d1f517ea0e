"""One tier: its store, whether it answers, and what was asked of it."""

import random as randomness
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

import numpy as np

from kvstrata.core.events import Reason
from kvstrata.core.words import Arena

from .counters import TierCounters, TierStats
from .format import Fault
from .outage import Outage
from .store import Buffer, Flags, Store, StoreFault

__all__ = ["Failure", "Tier"]

T = TypeVar("T")

# A cancelled load notices so late, at most, that it waits for another process.
_CLAIM_SLICE_S: Final = 0.25


class Failure(NamedTuple):
    """Why the tier did not do what was asked.

    Attributes:
        fault: the reason, and one line for people.
        is_outage: the tier as a whole failed, not this one object.
        is_unexpected: its code raised what it does not promise to raise.
    """

    fault: Fault
    is_outage: bool
    is_unexpected: bool = False


class Tier:
    """One tier; safe to use from any thread.

    Args:
        index: its place, 0 for the fastest; its bit in a mask.
        name: as metrics know it.
        store: its place.
        is_folder: whether its objects are files that the processes of this node share.
        clock: seconds that never go back.
        random: numbers in ``[0, 1)``.
    """

    def __init__(
        self,
        index: int,
        name: str,
        store: Store,
        is_folder: bool,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self.index = index
        self.name = name
        self.store = store
        self.is_folder = is_folder
        self.counters = TierCounters()
        self.outage = Outage(clock=clock, random=random)
        # A full tier still serves what it has, so being full is an outage of its own.
        self.room = Outage(limit=1, clock=clock, random=random)
        self._clock = clock

    @property
    def bit(self) -> int:
        """Its mask."""
        return 1 << self.index

    def stats(self) -> TierStats:
        """Counts and standing now."""
        outage = self.outage
        return self.counters.stats(
            outage.is_down, self.room.is_down, outage.outages, outage.retry_in_s
        )

    def ask(self, work: Callable[[], T]) -> T | Failure:
        """Call the store, and take note of how it answers.

        Mutates: the outage and the counters.
        """
        try:
            answer = work()
        except StoreFault as error:
            failure = Failure(Fault(error.reason, 0, 0, 0, str(error)), error.is_outage)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            failure = Failure(Fault(Reason.STORE_FAILED, 0, 0, 0, detail), True, True)
        except BaseException:
            self.outage.not_tried()
            raise
        else:
            self.outage.succeeded()
            return answer
        self.counters.fault(failure.fault.reason)
        if failure.is_outage and failure.fault.reason != Reason.STORE_FULL:
            self.outage.failed()
        else:
            self.outage.succeeded()
        return failure

    def refusal(self) -> Failure | None:
        """Why not to ask now; None if the caller may, and then it must :meth:`ask`."""
        if self.outage.may_try():
            return None
        return self._pass_over(Reason.TIER_DOWN, self.outage)

    def read(self, name: str, parts: Sequence[Buffer]) -> Failure | None:
        """Fill buffers with an object's bytes; None when they are filled.

        Mutates: the buffers, the outage and the counters.
        """
        start_s = self._clock()
        failure = self.ask(lambda: self.store.read(name, parts))
        if failure is None:
            self.counters.read(sum(part.nbytes for part in parts), self._clock() - start_s)
        return failure

    def read_many(
        self, names: Sequence[str], parts: Arena, num_bytes: int, checksums: Arena
    ) -> Flags:
        """Read many objects the quick way, where there is one; see :meth:`.Store.read_many`.

        Mutates: the parts' memory, checksums, the outage and the counters.
        """
        start_s = self._clock()
        answer = self._ask_quickly(
            len(names), lambda: self.store.read_many(names, parts, num_bytes, checksums)
        )
        count = int(answer.sum())
        self.counters.read(count * num_bytes, self._clock() - start_s, count)
        return answer

    def put(self, name: str, parts: Sequence[Buffer], settle: bool = True) -> bool | Failure:
        """Write an object unless it is there, or the tier is down or full.

        What stands under its name and cannot be it, by kind or size, is set aside first.

        Returns:
            True where it was written now, False where it was there already.

        Mutates: the place, the outage and the counters.
        """
        if not self.room.may_try():
            return self._pass_over(Reason.STORE_FULL, self.room)
        refusal = self.refusal()
        if refusal is not None:
            self.room.not_tried()
            return refusal
        start_s = self._clock()
        num_bytes = sum(part.nbytes for part in parts)
        answer = self.ask(lambda: self.store.put(name, parts, settle))
        if self._hides_the_name(name, num_bytes, answer):
            self.set_aside(name)
            answer = self.ask(lambda: self.store.put(name, parts, settle))
        if answer is True:
            self.room.succeeded()
            self.counters.wrote(num_bytes, self._clock() - start_s)
        elif isinstance(answer, Failure) and answer.fault.reason == Reason.STORE_FULL:
            self.room.failed()
        else:
            self.room.not_tried()
            if answer is False:
                self.counters.count("already_there")
        return answer

    def put_many(self, names: Sequence[str], objects: Sequence[Sequence[Buffer]]) -> Flags:
        """Write many objects the quick way, where there is one; see :meth:`.Store.put_many`.

        Mutates: the place, the outage and the counters.
        """
        if self.room.is_down:
            return np.zeros(len(names), dtype=np.bool_)
        start_s = self._clock()
        answer = self._ask_quickly(len(names), lambda: self.store.put_many(names, objects))
        num_bytes = sum(
            part.nbytes for number in np.flatnonzero(answer).tolist() for part in objects[number]
        )
        self.counters.wrote(num_bytes, self._clock() - start_s, int(answer.sum()))
        return answer

    def settle(self, names: Sequence[str]) -> Failure | None:
        """Make names durable that were put without; None when they are."""
        return self.ask(lambda: self.store.settle(names))

    def size(self, name: str) -> int | None:
        """Bytes of an object; None where it is not there or the tier does not say."""
        if self.refusal() is not None:
            return None
        answer = self.ask(lambda: self.store.size(name))
        return None if isinstance(answer, Failure) else answer

    def set_aside(self, name: str) -> None:
        """Take a bad object out of sight, if the store can. Mutates: the place."""
        if not isinstance(self.ask(lambda: self.store.set_aside(name)), Failure):
            self.counters.count("set_aside")

    @contextmanager
    def claim(self, name: str, timeout_s: float, dead: Callable[[], bool]) -> Iterator[bool]:
        """Be the only process at work on a name, where that can be had.

        Args:
            name: of the object.
            timeout_s: how long to wait for another process, in seconds.
            dead: whether to wait no longer.

        Yields:
            Whether it was had: False after the time-out, when dead, and where the tier is down.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            with ExitStack() as stack:
                had = self._enter(stack, name, max(0.0, min(left_s, _CLAIM_SLICE_S)))
                if had is not False or left_s <= _CLAIM_SLICE_S or dead():
                    yield had is True
                    return

    def _ask_quickly(self, count: int, work: Callable[[], Flags]) -> Flags:
        """Ask for many objects; of what fails nothing is noted: asked for singly, it is told."""
        answer = np.zeros(count, dtype=np.bool_)
        if not self.outage.is_down:
            with suppress(Exception):
                answer = work()
        if answer.any():
            self.outage.succeeded()
        return answer

    def _hides_the_name(self, name: str, num_bytes: int, answer: bool | Failure) -> bool:
        """Whether something that is no such object keeps an object from being written."""
        if isinstance(answer, Failure):
            return answer.fault.reason == Reason.OBJECT_NOT_A_FILE
        if answer:
            return False
        size = self.ask(lambda: self.store.size(name))
        if not isinstance(size, int) or size == num_bytes:
            return False
        is_cut = size < num_bytes
        self.counters.fault(Reason.OBJECT_TRUNCATED if is_cut else Reason.OBJECT_TOO_LONG)
        return True

    def _enter(self, stack: ExitStack, name: str, timeout_s: float) -> bool | Failure:
        refusal = self.refusal()
        if refusal is not None:
            return refusal
        return self.ask(lambda: stack.enter_context(self.store.claim(name, timeout_s)))

    def _pass_over(self, reason: Reason, outage: Outage) -> Failure:
        self.counters.count("passed_over")
        self.counters.fault(reason)
        detail = f"{self.name} is passed over, asked again in {outage.retry_in_s:.1f} s"
        return Failure(Fault(reason, 0, 0, 0, detail), True)
