"""Loads from lower tiers: one for all who need it, admitted first, and never waited for in vain."""

import weakref
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from kvstrata.core.errors import AdmissionDenied, Deferred
from kvstrata.core.events import Reason
from kvstrata.core.loading import (
    LOAD_BLOCKS,
    LOAD_POSITION,
    LOAD_WORDS,
    begin_load,
)
from kvstrata.core.planner import rates_of
from kvstrata.core.room import NO_ROOM, STALE
from kvstrata.core.words import HOLDER_ID, Arena

from .asking import ask_of, keys_of
from .brought import Brought
from .caller import zeros
from .fetching import Fetcher
from .load_in_flight import LoadInFlight
from .requests import Load, Plan, Request
from .turns import Turns

if TYPE_CHECKING:
    from .tiering import Tiering

__all__ = ["Loader"]

_LEAST_WAIT_S: Final = 0.001
_MOST_WAIT_S: Final = 0.05
_TRIES: Final = 24
"""A request that has failed so often does without."""
_LOAD_FAILED, _NO_ROOM_NOW = 8, 1
"""How much it counts that a load did not come whole, that there was no room to begin one."""
_LEAST_OBSERVED_BYTES: Final = 1 << 20
"""Loads below it tell of the time until a first byte, not of bytes in a second."""
_KEPT_S: Final = 5.0
"""How long what was loaded stays pinned for those who waited for it."""


class Loader:
    """The loads of one manager.

    Args:
        tiering: what it is part of.

    Attributes:
        brought: what was loaded for requests that have not begun.
        counts: loads so far, by how they ended.
        longest_wait_s: from a load's admission until its pages were sealed.
    """

    def __init__(self, tiering: "Tiering") -> None:
        self._tiering = tiering
        self._in_flight: dict[int, LoadInFlight] = {}
        self._by_key: dict[tuple[int, int, bool], LoadInFlight] = {}
        self._tries: dict[int, tuple[weakref.ref[Request], int]] = {}
        self._fetcher = Fetcher(tiering, self._ended)
        self.brought = Brought()
        self._turns = Turns(tiering.config.max_loads, tiering.clock)
        self.counts: Counter[str] = Counter()
        self.longest_wait_s = 0.0

    @property
    def num_in_flight(self) -> int:
        """Loads whose pages are being filled."""
        return sum(load.ended_s is None for load in self._in_flight.values())

    @property
    def busy(self) -> bool:
        """Whether anything is to be looked after."""
        return bool(self._in_flight)

    def identities(self) -> set[int]:
        """Ids of the sequences that own loads' pages."""
        return set(self._in_flight)

    def ready(self, plan: Plan) -> Plan:
        """Have what a plan needs loaded, or do without it.

        Returns:
            A plan that needs nothing loaded.

        Raises:
            Deferred: it is being loaded, or waits to be admitted; match again.
        """
        request = plan.request
        if self._goes_without(request):
            return self._tiering.plan(request, stored=False)
        plan = self._tiering.plan(request)
        if plan.load is None:
            return plan
        load = self._loading(plan.keys, plan.load)
        if load is None:
            load = self._start(plan)
            if load is None:
                self._failed(request, _TRIES)
                return self._tiering.plan(request, stored=False)
            if load.ended_s is not None:  # nothing to wait for: there are no bytes
                self.brought.note(request, load.leased, load.num_sealed)
                return self._tiering.plan(request)
        elif id(request) not in load.waiters:
            self.counts["joined"] += 1
            self._tiering.tickets.forget(request)
        load.waiters[id(request)] = weakref.ref(request)
        raise self._wait_for(load)

    def prefetch(self, plan: Plan) -> bool:
        """Begin to load what a plan needs, if it may; whether anything is on its way."""
        try:
            self.ready(plan)
        except Deferred:
            load = self._loading(plan.keys, plan.load)
            if load is not None:
                load.is_ahead = True
            return load is not None
        return False

    def _wait_for(self, load: LoadInFlight) -> Deferred:
        rate = rates_of(self._tiering.arena).load_bytes_per_s
        left = load.num_bytes * load.open / max(len(load.results), 1) / rate
        wait_s = min(max(left, _LEAST_WAIT_S), _MOST_WAIT_S)
        return Deferred(
            f"{len(load.results)} objects are being loaded, {load.open} have not come: match again "
            f"in {wait_s:.3f} s",
            wait_s,
            load.waiting(),
            "load",
        )

    def _without_room(self, request: Request) -> None:
        """Nothing is free for a load now; with nobody who could free it, do without.

        Raises:
            Deferred: others run.
        """
        self._failed(request, _NO_ROOM_NOW)
        others = int(np.count_nonzero(self._tiering.tables.holders[:, HOLDER_ID]))
        if others and not self._goes_without(request):
            why = f"no room for a load beside {others} others: match again in {_MOST_WAIT_S:g} s"
            raise Deferred(why, _MOST_WAIT_S, others, "load")

    def _goes_without(self, request: Request) -> bool:
        """Whether what a request waited for did not come, time and again."""
        found = self._tries.get(id(request))
        if found is None:
            return False
        if found[0]() is request:
            return found[1] >= _TRIES
        del self._tries[id(request)]
        return False

    def _failed(self, request: Request, count: int) -> None:
        """A load did not bring what a request waited for."""
        found = self._tries.get(id(request))
        before = found[1] if found is not None and found[0]() is request else 0
        key = id(request)
        dropped = weakref.ref(request, lambda _: self._tries.pop(key, None))
        self._tries[key] = dropped, before + count

    def is_loading(self, keys: Arena, wanted: Load) -> bool:
        """Whether any of what a request needs, by the keys of its blocks, is on its way."""
        return self._loading(keys, wanted) is not None

    def _loading(self, keys: Arena, wanted: Load | None) -> LoadInFlight | None:
        """A load in flight that brings any of what a request needs."""
        if wanted is None or not self._by_key:
            return None
        for key in keys_of(keys, wanted, self._tiering.layout.block_tokens):
            load = self._by_key.get(key)
            if load is not None and load.ended_s is None:
                return load
        return None

    def _start(self, plan: Plan) -> LoadInFlight | None:
        """Admit and begin a load; None where the request had better do without.

        Raises:
            Deferred: not admitted yet.
        """
        wanted = plan.load
        if wanted is None:
            return None
        self._turns.take(plan.request, len(self._in_flight))
        try:
            ticket = self._tiering.tickets.admit(plan)
        except AdmissionDenied:
            self.counts["denied"] += 1
            return None
        words = zeros(LOAD_WORDS)
        words[LOAD_BLOCKS] = wanted.num_blocks
        words[LOAD_POSITION] = wanted.checkpoint_at
        call = self._tiering.call
        row = call.run(
            begin_load,
            call.arena,
            call.ring,
            *ask_of(self._tiering.layout, plan, load=wanted),
            words,
        )
        if row in (NO_ROOM, STALE):
            self._tiering.tickets.give_back(ticket)
            self.counts["no_room"] += 1
            self._without_room(plan.request)
            return None
        try:
            load = self._fetcher.begin(plan, wanted, row, words, ticket)
            self._in_flight[load.identity] = load
            for key in load.all_keys:
                self._by_key[key] = load
            self.counts["begun"] += 1
            self._fetcher.fetch(load)
        except BaseException as error:
            call.interrupted("load", error)
            raise
        return load

    def _ended(self, load: LoadInFlight, whole: bool, num_bytes: int) -> None:
        """Count an ended load, free its keys for others, and release it where nobody waits."""
        self._free_keys(load)
        took_s = (load.ended_s or load.began_s) - load.began_s
        self.longest_wait_s = max(self.longest_wait_s, took_s)
        if load.given_up:
            self.counts["given_up"] += 1
        else:
            self.counts["whole" if whole else "partial"] += 1
            if num_bytes >= _LEAST_OBSERVED_BYTES:
                self._tiering.observe(num_bytes, took_s)
        self._tiering.tickets.recovered(load.ticket)
        for waiter in load.waiters.values():
            request = waiter()
            if request is not None:
                self.brought.note(request, load.leased, load.num_sealed)
        if not whole:
            self._fail_waiters(load, _LOAD_FAILED)
        if load.given_up or not (load.waiting() or load.is_ahead):
            self._release(load)

    def began(self, request: Request) -> None:
        """A request that may have waited has begun: it pins what it needs itself."""
        self.brought.forget(request)
        self._tries.pop(id(request), None)
        self._turns.leave(request)
        for load in list(self._in_flight.values()):
            if load.waiters.pop(id(request), None) is None:
                continue
            load.is_ahead = False  # whom it was ahead of is there
            if load.ended_s is not None and not load.waiting():
                self._release(load)

    def withdraw(self, request: Request) -> None:
        """A request will not ask again."""
        self.brought.forget(request)
        self._tries.pop(id(request), None)
        self._turns.leave(request)
        for load in self._in_flight.values():
            load.waiters.pop(id(request), None)

    def look_after(self) -> None:
        """Give up what takes too long or nobody wants; release what was not fetched away."""
        now_s = self._tiering.clock()
        for load in list(self._in_flight.values()):
            if load.ended_s is not None:
                if now_s - load.ended_s > _KEPT_S or not (load.waiting() or load.is_ahead):
                    self._release(load)
            elif not load.given_up and now_s > load.until_s:
                self.counts["deadline_expired"] += load.waiting()
                self._give_up(load, Reason.LOAD_DEADLINE)
            elif not load.given_up and not load.is_ahead and not load.waiting():
                self._give_up(load, Reason.LOAD_CANCELLED)

    def _give_up(self, load: LoadInFlight, reason: Reason) -> None:
        """Nobody waits any more, and those who did are served without."""
        self._fetcher.drain(load, reason)
        self._fail_waiters(load, _TRIES)
        self._tiering.tickets.unhold(load.ticket)
        self._free_keys(load)

    def _fail_waiters(self, load: LoadInFlight, count: int) -> None:
        for waiter in load.waiters.values():
            request = waiter()
            if request is not None:
                self._failed(request, count)
        load.waiters.clear()

    def _free_keys(self, load: LoadInFlight) -> None:
        for key in load.all_keys:
            if self._by_key.get(key) is load:
                del self._by_key[key]

    def _release(self, load: LoadInFlight) -> None:
        """Nobody waits for what a load brought: it is pinned no more."""
        del self._in_flight[load.identity]
        self._fetcher.release(load)

    def close(self) -> None:
        """The workers have stopped: end every load with what has come."""
        for load in list(self._in_flight.values()):
            if load.ended_s is None:
                self._fetcher.end(load, 0, False)
            if load.identity in self._in_flight:
                self._release(load)
