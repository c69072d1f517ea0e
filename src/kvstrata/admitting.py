"""Admission at begin: the cap is asked, its decisions are events, its words are exceptions."""

import itertools
import math
import time
import weakref
from collections import deque
from functools import partial
from typing import Final

from kvstrata.core.admission import Admission, AdmissionConfig, Deferred, Granted, Need, Room
from kvstrata.core.arena import open_tables
from kvstrata.core.ask import count_idle
from kvstrata.core.errors import AdmissionDenied, OutOfPages
from kvstrata.core.errors import Deferred as DeferredError
from kvstrata.core.events import EventType, Reason
from kvstrata.core.layout import CacheLayout
from kvstrata.core.planner import NEVER_NS
from kvstrata.core.words import (
    HOLDER_BLOCKS,
    HOLDER_ID,
    META_FREE_BLOCKS,
    META_IDLE_BLOCKS,
    META_NUM_BLOCKS,
)

from .caller import CoreCaller, zeros
from .requests import Plan, Request

__all__ = ["AdmissionControl"]

_REASONS: Final = {
    "blocks": Reason.BLOCKS,
    "rate": Reason.BANDWIDTH,
    "recoveries": Reason.RECOVERIES,
    "recovery_bytes": Reason.RECOVERIES,
    "tenant": Reason.RECOVERIES,
    "queue": Reason.QUEUE,
    "deadline": Reason.DEADLINE,
}


class AdmissionControl:
    """Asks the admission cap for every sequence that begins.

    Args:
        layout: the layout.
        config: the cap's settings.
        call: runs compiled calls.
    """

    def __init__(self, layout: CacheLayout, config: AdmissionConfig, call: CoreCaller) -> None:
        self._layout = layout
        self._call = call
        self._tables = open_tables(call.arena)
        self.admission = Admission(config)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[int, weakref.ref[Request]]] = {}
        self._running: dict[int, tuple[int, int, int]] = {}
        self._held: dict[int, tuple[int, weakref.ref[Request]]] = {}
        """By request: tickets on which it loads, or has loaded, and has not begun yet."""
        self._loads: dict[int, int] = {}
        """Loads by ticket, as long as they own pages and their request has not begun on it."""
        self._gone: deque[int] = deque()
        """Tickets whose requests nobody holds any more; filled by whichever thread dropped one."""

    def admit(self, plan: Plan, is_load: bool = False) -> int:
        """Ask for room for a plan's whole request.

        Args:
            plan: the plan.
            is_load: whether it is to be loaded from a lower tier first; that is always logged.

        Returns:
            The ticket, to be given to :meth:`begun` or :meth:`withdrawn`.

        Raises:
            Deferred: not now; it keeps its place, by its request.
            AdmissionDenied: never, or not within its deadline.
        """
        self.drop_lost()
        request = plan.request
        held = self._held_ticket(request)
        if held and not is_load:
            return held
        if held:  # another load: it is to be admitted too
            self.unhold(held)
            self._end(held)
        ticket = self._ticket_of(request)
        is_new = ticket == 0
        if is_new:
            ticket = next(self._numbers)
        need, available = self._need(plan), self._available(plan)
        may_start = (
            is_new and not is_load and (request.deadline_s is None or request.deadline_s >= 0)
        )
        if may_start and self.admission.grant_at_once(ticket, need, available, time.monotonic()):
            return ticket
        room = Room(self._call.arena.item(META_NUM_BLOCKS) - len(plan.blocks), available)
        if room.available_blocks - self.admission.promised_blocks < need.blocks:
            self._settle_promises()
        decision = self.admission.ask(ticket, need, room, time.monotonic(), request.deadline_s)
        if isinstance(decision, Granted):
            self._waiting.pop(id(request), None)
            if not is_new or is_load or self.admission.config.bytes_per_s is not None:
                self._log(EventType.ADMISSION_GRANTED, Reason.NONE, ticket, need, decision.waited_s)
            return ticket
        if isinstance(decision, Deferred):
            self._waiting[id(request)] = ticket, weakref.ref(request, partial(self._lost, ticket))
            reason = _REASONS[decision.limit]
            if is_new:
                self._log(
                    EventType.ADMISSION_DEFERRED, reason, ticket, need, decision.retry_after_s
                )
            raise DeferredError(
                f"admission: {decision.why}; ask again in {decision.retry_after_s:.3f} s",
                decision.retry_after_s,
                decision.ahead,
                decision.limit,
            )
        self._waiting.pop(id(request), None)
        never = decision.retry_after_s is None and decision.limit not in ("deadline", "queue")
        reason = Reason.NEVER_FITS if never else _REASONS[decision.limit]
        self._log(EventType.ADMISSION_DENIED, reason, ticket, need, decision.retry_after_s or 0.0)
        why = f"admission: {decision.why}"
        raise AdmissionDenied(why, decision.retry_after_s, decision.limit)

    def _ticket_of(self, request: Request) -> int:
        """Ticket of a request that waits, or 0."""
        ticket, found = self._waiting.get(id(request), (0, None))
        return ticket if found is not None and found() is request else 0

    def _held_ticket(self, request: Request) -> int:
        """Ticket on which a request has loaded, or 0."""
        ticket, found = self._held.get(id(request), (0, None))
        return ticket if found is not None and found() is request else 0

    def loading(self, ticket: int, identity: int, leased: int, request: Request) -> None:
        """A load runs on a request's ticket, with which the request will then begin."""
        self._running[identity] = ticket, leased, 0
        self._loads[ticket] = identity
        lost = partial(self._lost, ticket)
        self._held[id(request)] = ticket, weakref.ref(request, lost)

    def recovered(self, ticket: int) -> None:
        """A load has ended: its bytes count no more among those in recovery."""
        self._settle_promises()
        self.admission.loaded(ticket, time.monotonic())

    def load_ended(self, identity: int) -> None:
        """The sequence of a load has ended; a request that has not begun yet has to ask anew.

        What was promised to it is partly used up, and what it loaded is not pinned any more.
        """
        self._settle_promises()
        ticket, _, _ = self._running.pop(identity, (0, 0, 0))
        if self._loads.pop(ticket, None) is not None:
            self.unhold(ticket)
            self._end(ticket)

    def unhold(self, ticket: int) -> bool:
        """A request will not begin on this ticket; whether it would have."""
        keys = [key for key, (number, _) in self._held.items() if number == ticket]
        for key in keys:
            del self._held[key]
        return bool(keys)

    def _end(self, ticket: int) -> None:
        """Give back what a ticket has; one on which a load runs keeps it until that has ended."""
        if ticket not in self._loads:
            self.admission.ended(ticket, time.monotonic())

    def _lost(self, ticket: int, _: object) -> None:
        """Nobody holds the request any more, so nobody will ask again; from any thread."""
        self._gone.append(ticket)

    def drop_lost(self) -> None:
        """Take back the requests that nobody holds any more."""
        while self._gone:
            self._withdraw(self._gone.popleft())

    def _withdraw(self, ticket: int) -> None:
        self.unhold(ticket)
        self._end(ticket)
        lost = [key for key, (number, _) in self._waiting.items() if number == ticket]
        for key in lost:
            del self._waiting[key]

    def load_wait_ns(self, request: Request, load_bytes: int) -> int:
        """How long a request's load would have to wait by itself; 0 where it was let in already."""
        if not self.admission.config.limits_loads or self._held_ticket(request):
            return 0
        need = Need(0, load_bytes, request.tenant.decode("utf-8", "replace"))
        ticket = self._ticket_of(request) or -1
        wait_s = self.admission.load_wait_s(need, time.monotonic(), ticket)
        return NEVER_NS if wait_s == math.inf else int(wait_s * 1e9)

    def _need(self, plan: Plan) -> Need:
        tokens = self._layout.block_tokens
        end = plan.prompt_tokens + plan.request.max_new_tokens
        blocks = -(-end // tokens) - len(plan.blocks)
        tenant = plan.request.tenant.decode("utf-8", "replace")
        return Need(max(blocks, 0), plan.load_bytes, tenant)

    def _available(self, plan: Plan) -> int:
        """Blocks that could be taken beside those that a plan would pin."""
        arena = self._call.arena
        available: int = arena.item(META_FREE_BLOCKS) + arena.item(META_IDLE_BLOCKS)
        return available - self.idle_blocks(plan)

    def admit_fork(self, plan: Plan, sealed: int) -> int:
        """Ask for the blocks that a fork still needs; it does not wait.

        Returns:
            The ticket.

        Raises:
            OutOfPages: they are promised to others, or not there.
        """
        end = plan.prompt_tokens + plan.request.max_new_tokens
        need = Need(max(-(-end // self._layout.block_tokens) - sealed, 0))
        self.check_unpromised(need.blocks, "a fork")
        ticket = next(self._numbers)
        arena = self._call.arena
        available = int(arena[META_FREE_BLOCKS]) + int(arena[META_IDLE_BLOCKS])
        room = Room(int(arena[META_NUM_BLOCKS]), available)
        decision = self.admission.ask(ticket, need, room, time.monotonic(), 0.0)
        if not isinstance(decision, Granted):
            raise OutOfPages(f"fork: {decision.why}")
        return ticket

    def check_unpromised(self, blocks: int, who: str) -> None:
        """Check that so many blocks can be taken or pinned without breaking a promise.

        Raises:
            OutOfPages: they cannot.
        """
        arena = self._call.arena
        available = int(arena[META_FREE_BLOCKS]) + int(arena[META_IDLE_BLOCKS])
        if available - self.admission.promised_blocks < blocks:
            self.drop_lost()
            self._settle_promises()
        left = available - self.admission.promised_blocks
        if left < blocks:
            raise OutOfPages(
                f"expected {blocks} blocks for {who} that are promised to no sequence, found {left}"
            )

    def idle_blocks(self, plan: Plan) -> int:
        """Blocks that a plan would pin and that nobody pins now."""
        return int(count_idle(self._call.arena, plan.blocks)) if len(plan.blocks) else 0

    def _settle_promises(self) -> None:
        """Take from the promises what the running sequences have taken of their blocks."""
        holders = self._tables.holders
        for identity, (ticket, reused, seen) in list(self._running.items()):
            row = identity & 0xFFFF
            if holders[row, HOLDER_ID] != identity:
                continue
            taken = int(holders[row, HOLDER_BLOCKS]) - reused
            if taken > seen:
                self.admission.took(ticket, taken - seen)
                self._running[identity] = ticket, reused, taken

    def begun(self, ticket: int, identity: int, num_blocks: int) -> None:
        """A sequence runs on the promise, on so many shared blocks; what it copies is copied."""
        self.admission.loaded(ticket, time.monotonic())
        self.unhold(ticket)
        self._loads.pop(ticket, None)
        self._running[identity] = ticket, num_blocks, 0

    def withdrawn(self, ticket: int) -> None:
        """It did not begin after all."""
        if self.unhold(ticket):
            self._end(ticket)
        else:
            self.admission.revoke(ticket)

    def ended(self, identity: int) -> None:
        """A sequence has ended."""
        running = self._running.pop(identity, None)
        if running is not None:
            self.admission.ended(running[0], time.monotonic())

    def forget(self, request: Request) -> None:
        """A request that waits will not ask again."""
        ticket = self._ticket_of(request)
        if ticket:
            del self._waiting[id(request)]
            self.admission.withdraw(ticket)
        held = self._held_ticket(request)
        if held:
            self.unhold(held)
            self._end(held)

    def _log(self, kind: EventType, reason: Reason, ticket: int, need: Need, wait_s: float) -> None:
        payload = zeros(4)
        waiting = self.admission.waiting
        payload[:] = ticket, need.blocks | waiting << 32, need.load_bytes, int(wait_s * 1e6)
        self._call.note(kind, payload, reason)
