"""Who waits for admission, in order of arrival."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .admission_terms import BLOCKS, QUEUE, TENANT, AdmissionConfig, Left, Need

__all__ = ["WaitQueue", "Waiter", "lacks_behind", "reason_to_wait"]

PATIENCE_S = 5.0  # how long after its time a waiter still counts, at the least


@dataclass
class Waiter:
    """A request that waits.

    Args:
        need: what it asked for last.
        asked_s: when it asked first.
        until_s: its deadline; infinite without.
        due_s: when it was told to ask again.
    """

    need: Need
    asked_s: float
    until_s: float
    due_s: float

    def is_aged(self, config: AdmissionConfig, now: float) -> bool:
        """Whether it has waited so long that nobody may take what it lacks."""
        return now - self.asked_s >= config.ageing_s

    def is_absent(self, config: AdmissionConfig, now: float) -> bool:
        """Whether it has not come back for long after it was told to."""
        return now > self.due_s + max(PATIENCE_S, config.ageing_s)


class WaitQueue:
    """Waiters by ticket, oldest first.

    Args:
        config: the limits.
    """

    def __init__(self, config: AdmissionConfig) -> None:
        self._config = config
        self._waiters: dict[int, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._waiters

    def get(self, ticket: int) -> Waiter | None:
        """Look a waiter up."""
        return self._waiters.get(ticket)

    def leave(self, ticket: int) -> bool:
        """Take a waiter out, if it is there; says whether it was. Mutates: the queue."""
        return self._waiters.pop(ticket, None) is not None

    def join(self, ticket: int, waiter: Waiter, now: float) -> bool:
        """Put a request last, or leave it where it is.

        Returns:
            False where the queue is full of others who come back in time.

        Mutates:
            The queue; where it is full, those who stayed away lose their places.
        """
        if ticket not in self._waiters and len(self) >= self._config.max_waiting:
            for other, absent in list(self._waiters.items()):
                if absent.is_absent(self._config, now):
                    del self._waiters[other]
            if len(self) >= self._config.max_waiting:
                return False
        self._waiters[ticket] = waiter
        return True

    def ahead(self, ticket: int, now: float) -> list[Waiter]:
        """Those before a ticket who still count: neither absent nor past their deadline."""
        found = []
        for other, waiter in self._waiters.items():
            if other == ticket:
                break
            if now <= waiter.until_s and not waiter.is_absent(self._config, now):
                found.append(waiter)
        return found

    def oldest_s(self) -> float:
        """When the first of them asked first; infinite where nobody waits."""
        return min((waiter.asked_s for waiter in self._waiters.values()), default=math.inf)


def lacks_behind(
    need: Need, ahead: list[Waiter], left: Left, now: float
) -> tuple[bool, dict[str, float]]:
    """Reckon what a request lacks if those ahead are served first.

    Args:
        need: the request's.
        ahead: earlier waiters in order of arrival.
        left: what the limits leave now.
        now: the time.

    Returns:
        Whether an aged waiter holds it up, and how much it lacks by limit.

    Mutates:
        ``left``: waiters that fit are written down in it.
    """
    for waiter in ahead:
        lacks = left.missing(waiter.need)
        if not lacks:
            left.take(waiter.need)  # it only has to ask again: what is left is for others
        elif waiter.is_aged(left.config, now) and not _takes_nothing_of(lacks, waiter.need, need):
            return True, left.missing(need)
    return False, left.missing(need)


def _takes_nothing_of(lacks: Mapping[str, float], waiting: Need, need: Need) -> bool:
    """Whether a request may pass even an aged waiter.

    What a waiter lacks it comes by in this order: its tenant's quota, the other limits on loads,
    blocks. Those that pass it take only of what comes later, so it never falls back.
    """
    if TENANT in lacks and waiting.tenant != need.tenant:
        return True
    return not need.load_bytes and bool(lacks.keys() - {BLOCKS})


def reason_to_wait(held_up: bool, lacks: Mapping[str, float], num_ahead: int) -> tuple[str, str]:
    """Why a request waits, in words, and the limit's name."""
    if held_up:
        return f"expected no aged request ahead, found {num_ahead} waiting ahead", QUEUE
    limit, amount = next(iter(lacks.items()))
    behind = f" behind the {num_ahead} waiting ahead" if num_ahead else ""
    return f"expected room under the limit {limit}, found {amount:.0f} too few{behind}", limit
