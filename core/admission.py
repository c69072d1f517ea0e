"""The admission cap: who may start now, who waits, who is refused.

A request's blocks are promised for its whole life at once, or nothing is; while it waits it holds
nothing, so no two requests can wait for each other. The promise is used up as the sequence takes
its blocks. Bytes to load are paid from a token bucket and counted until the recovery ends.

Decisions, first match:

==================================================  ========================================
condition                                           decision
==================================================  ========================================
could not be granted even alone                     Denied, no use in trying again
waited past its deadline                            Denied
no aged waiter holds it up, and it fits besides     Granted
every earlier waiter that fits now
the deadline is now                                 Denied
the queue is full                                   Denied, with a time to try again
else                                                Deferred: keeps its place in the queue
==================================================  ========================================

Nobody is called back: a waiter asks again, by its ticket, when ``retry_after_s`` is over. One that
stays away for long lets others pass, and loses its place if the queue is full. An aged waiter
holds up whoever would take what it lacks: everybody where that is blocks; but a load it cannot
begin yet does not stop requests without one, nor its tenant's used-up quota other tenants.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .admission_queue import Waiter, WaitQueue, lacks_behind, reason_to_wait
from .admission_terms import (
    BLOCKS,
    DEADLINE,
    QUEUE,
    AdmissionConfig,
    AdmissionStats,
    Decision,
    Deferred,
    Denied,
    Granted,
    Left,
    Need,
    Room,
    never_fits,
)
from .admission_wait import MIN_RETRY_S, Mean, Running, wait_s
from .errors import ConfigError

__all__ = [
    "Admission",
    "AdmissionConfig",
    "AdmissionStats",
    "Decision",
    "Deferred",
    "Denied",
    "Granted",
    "Need",
    "Room",
]


@dataclass
class _Grant:
    need: Need
    granted_s: float
    promised: int
    recovering: bool


class Admission:
    """Grants, defers and denies; deterministic, its clock is an argument.

    Times are seconds on any clock that does not go back; an earlier time counts as the latest.
    Calls for a ticket that is not known, such as a completion after an abort, change nothing.

    Args:
        config: the limits.
    """

    def __init__(self, config: AdmissionConfig) -> None:
        self.config = config
        self._waiting = WaitQueue(config)
        self._grants: dict[int, _Grant] = {}
        self._sums = Left(config, 0, config.burst_bytes, 0, 0, {})  # blocks: minus the promised
        self._now_s = -math.inf
        self._recovery, self._lifetime = Mean(), Mean()
        self._num_granted = self._num_deferred = self._num_denied = 0

    @property
    def promised_blocks(self) -> int:
        """Blocks promised to granted requests and not taken by them yet."""
        return -self._sums.blocks

    @property
    def waiting(self) -> int:
        """Requests that wait; they hold nothing."""
        return len(self._waiting)

    def snapshot(self) -> AdmissionStats:
        """Read counts and sums, as of the latest time given."""
        return AdmissionStats(
            promised_blocks=self.promised_blocks,
            waiting=self.waiting,
            oldest_wait_s=max(0.0, self._now_s - self._waiting.oldest_s()),
            recoveries=self._sums.recoveries,
            recovery_bytes=self._sums.recovery_bytes,
            bucket_bytes=None if self.config.bytes_per_s is None else self._sums.bucket,
            num_granted=self._num_granted,
            num_deferred=self._num_deferred,
            num_denied=self._num_denied,
        )

    def ask(
        self, ticket: int, need: Need, room: Room, now_s: float, deadline_s: float | None = None
    ) -> Decision:
        """Ask to start, for the first time or again.

        Args:
            ticket: names the request, from its first call to its last.
            need: what it needs now; may change between calls.
            room: of the pools now.
            now_s: the time.
            deadline_s: how long it may wait from its first call; the config's if None, which
                later calls do not change.

        Raises:
            ConfigError: the ticket was granted and has not ended, or the time is no number.

        Mutates: on Granted promises and counts, on Deferred the queue; on Denied the ticket is
        forgotten.
        """
        now = self._advance(now_s)
        if ticket in self._grants:
            raise ConfigError(f"admission: expected a ticket not granted yet, found {ticket}")
        waiter = self._waiting.get(ticket)
        if waiter is None:
            most = self.config.deadline_s if deadline_s is None else deadline_s
            waiter = Waiter(need, now, math.inf if most is None else now + most, now)
        waiter.need = need
        never = never_fits(self.config, need, room)
        if never is not None:
            return self._deny(ticket, *never)
        if now > waiter.until_s:
            return self._deny(ticket, DEADLINE, _too_late(waiter, now))
        ahead = self._waiting.ahead(ticket, now)
        held_up, lacks = lacks_behind(need, ahead, self._left(room), now)
        if not held_up and not lacks:
            return self._grant(ticket, waiter, now)
        if now >= waiter.until_s:
            return self._deny(ticket, DEADLINE, _too_late(waiter, now))
        retry_s = self._retry_after(need, held_up, lacks, ahead, room, now)
        is_new = ticket not in self._waiting
        if not self._waiting.join(ticket, waiter, now):
            why = f"expected fewer than {self.config.max_waiting} waiting, found {self.waiting}"
            return self._deny(ticket, QUEUE, why, retry_s)
        self._num_deferred += is_new
        retry_s = min(retry_s, max(MIN_RETRY_S, waiter.until_s - now))
        waiter.due_s = now + retry_s
        return Deferred(retry_s, len(ahead), *reason_to_wait(held_up, lacks, len(ahead)))

    def grant_at_once(self, ticket: int, need: Need, available_blocks: int, now_s: float) -> bool:
        """Grant a request that need not wait, where nothing waits and only blocks are limited.

        Args:
            ticket: a new one.
            need: what it needs.
            available_blocks: free and evictable ones, promised ones included.
            now_s: the time.

        Returns:
            Whether it was granted; where not, nothing changed: :meth:`ask`.
        """
        if self._waiting or self.config.limits_loads:
            return False
        if need.blocks > available_blocks + self._sums.blocks:
            return False
        now = self._advance(now_s)
        self._grant(ticket, Waiter(need, now, math.inf, now), now)
        return True

    def load_wait_s(self, need: Need, now_s: float, ticket: int = -1) -> float:
        """How long the limits on loads alone would keep a request waiting.

        Args:
            need: what it would load.
            now_s: the time.
            ticket: its own, where it waits already.

        Returns:
            Seconds: 0 where they let it in now, infinity where they never would.
        """
        now = self._advance(now_s)
        room = Room(need.blocks, need.blocks)
        if never_fits(self.config, need, room) is not None:
            return math.inf
        lacks = self._left(room).missing(need)
        lacks.pop(BLOCKS, None)
        if not lacks:
            return 0.0
        running = (
            Running(grant.need, now - grant.granted_s, grant.recovering)
            for grant in self._grants.values()
        )
        ahead = sum(waiter.need.load_bytes for waiter in self._waiting.ahead(ticket, now))
        return wait_s(self.config, lacks, need, ahead, running, self._recovery, self._lifetime)

    def took(self, ticket: int, blocks: int) -> int:
        """Use a promise up, as the sequence takes blocks.

        Args:
            ticket: of a granted request.
            blocks: taken from the pools, at least 0; beyond the promise they are nobody's.

        Returns:
            Blocks by which the promise shrank.

        Raises:
            ConfigError: a negative number.
        """
        if blocks < 0:
            raise ConfigError(f"admission: expected at least 0 blocks taken, found {blocks}")
        grant = self._grants.get(ticket)
        used = 0 if grant is None else min(blocks, grant.promised)
        if grant is not None:
            grant.promised -= used
            self._sums.blocks += used
        return used

    def loaded(self, ticket: int, now_s: float | None = None) -> bool:
        """End a request's recovery: its bytes leave the limits on what is in recovery.

        Args:
            ticket: of a granted request.
            now_s: the time; the latest given if None, which makes estimates coarser.

        Returns:
            Whether there was a recovery to end.
        """
        now = self._now_s if now_s is None else self._advance(now_s)
        grant = self._grants.get(ticket)
        if grant is None or not grant.recovering:
            return False
        grant.recovering = False
        self._leave_recovery(grant.need)
        self._recovery.add(now - grant.granted_s)
        return True

    def ended(self, ticket: int, now_s: float | None = None) -> bool:
        """Give back all that a request has: promise, recovery, or place in the queue.

        Args:
            ticket: of any request.
            now_s: the time; the latest given if None, which makes estimates coarser.

        Returns:
            Whether the ticket was known.
        """
        now = self._now_s if now_s is None else self._advance(now_s)
        grant = self._grants.pop(ticket, None)
        if grant is None:
            return self.withdraw(ticket)
        self._sums.blocks += grant.promised
        if grant.recovering:
            self._leave_recovery(grant.need)
        self._lifetime.add(now - grant.granted_s)
        return True

    def revoke(self, ticket: int) -> bool:
        """Undo a grant that was not used: nothing was loaded, so nothing is paid.

        Returns:
            Whether it was granted.
        """
        grant = self._grants.pop(ticket, None)
        if grant is None:
            return False
        self._sums.blocks += grant.promised
        if grant.recovering:
            self._leave_recovery(grant.need)
            most = float(self.config.burst_bytes)
            self._sums.bucket = min(most, self._sums.bucket + grant.need.load_bytes)
        return True

    def withdraw(self, ticket: int) -> bool:
        """Stop waiting.

        Returns:
            Whether it waited.
        """
        return self._waiting.leave(ticket)

    def _advance(self, now_s: float) -> float:
        if not math.isfinite(now_s):
            raise ConfigError(f"admission: expected a time in seconds, found {now_s}")
        rate, before = self.config.bytes_per_s, self._now_s
        self._now_s = max(before, now_s)
        if rate is not None and before > -math.inf:
            level = self._sums.bucket + (self._now_s - before) * rate
            self._sums.bucket = min(float(self.config.burst_bytes), level)
        return self._now_s

    def _leave_recovery(self, need: Need) -> None:
        sums = self._sums
        sums.recoveries -= 1
        sums.recovery_bytes -= need.load_bytes
        sums.tenants[need.tenant] -= need.load_bytes
        if not sums.tenants[need.tenant]:
            del sums.tenants[need.tenant]

    def _left(self, room: Room) -> Left:
        sums = self._sums
        blocks = room.available_blocks + sums.blocks
        in_recovery = (sums.bucket, sums.recoveries, sums.recovery_bytes, dict(sums.tenants))
        return Left(self.config, blocks, *in_recovery)

    def _grant(self, ticket: int, waiter: Waiter, now: float) -> Granted:
        need = waiter.need
        self._waiting.leave(ticket)
        self._sums.take(need)
        self._grants[ticket] = _Grant(need, now, need.blocks, need.load_bytes > 0)
        self._num_granted += 1
        return Granted(now - waiter.asked_s)

    def _deny(self, ticket: int, limit: str, why: str, retry_s: float | None = None) -> Denied:
        self._waiting.leave(ticket)
        self._num_denied += 1
        return Denied(why, retry_s, limit)

    def _retry_after(
        self,
        need: Need,
        held_up: bool,
        lacks: Mapping[str, float],
        ahead: list[Waiter],
        room: Room,
        now: float,
    ) -> float:
        """When to ask again: once it has what it lacks, and not before those that hold it up."""
        missing = self._left(room).missing(need)
        running = (
            Running(grant.need, now - grant.granted_s, grant.recovering)
            for grant in self._grants.values()
        )
        bytes_ahead = sum(waiter.need.load_bytes for waiter in ahead)
        wait = wait_s(
            self.config, missing, need, bytes_ahead, running, self._recovery, self._lifetime
        )
        if ahead and (held_up or lacks.keys() - missing.keys()):
            wait = max(wait, max(waiter.due_s for waiter in ahead) - now)
        return wait


def _too_late(waiter: Waiter, now_s: float) -> str:
    most_s = waiter.until_s - waiter.asked_s
    return f"waited {now_s - waiter.asked_s:.3f} s, expected at most {most_s:.3f} s"
