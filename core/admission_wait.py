"""How long a request will wait, reckoned from the bucket and from what runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .admission_terms import BLOCKS, RATE, RECOVERIES, TENANT, AdmissionConfig, Need

__all__ = ["MIN_RETRY_S", "Mean", "Running", "wait_s"]

MIN_RETRY_S = 0.001
LONGEST_GUESS_S = 1.0  # what runs may end early, so a guess is looked at again
UNKNOWN_S = 0.05  # a duration of which none was observed
WEIGHT = 0.25  # of the newest duration in the running mean


@dataclass
class Mean:
    """A running mean of durations, the newest weighing most; None before the first."""

    seconds: float | None = None

    def add(self, seconds: float) -> None:
        """Observe a duration. Mutates: this mean."""
        old = seconds if self.seconds is None else self.seconds
        self.seconds = old + WEIGHT * (seconds - old)


class Running(NamedTuple):
    """A granted request, and for how long it runs."""

    need: Need
    age_s: float
    recovering: bool


def wait_s(
    config: AdmissionConfig,
    missing: Mapping[str, float],
    need: Need,
    bytes_ahead: int,
    running: Iterable[Running],
    recovery: Mean,
    lifetime: Mean,
) -> float:
    """Estimate when a request will no longer lack what it lacks now.

    Args:
        config: the limits.
        missing: how much it lacks, by limit.
        need: the request's.
        bytes_ahead: that earlier waiters will load first.
        running: the granted requests.
        recovery: observed durations of recoveries.
        lifetime: observed durations from grant to end.

    Returns:
        Seconds, at least ``MIN_RETRY_S``: for the bucket the time until which it surely lacks,
        for all else a guess of at most ``LONGEST_GUESS_S``.
    """
    running = list(running)
    rate = config.bytes_per_s
    sure, guess = MIN_RETRY_S, 0.0
    for limit, amount in missing.items():
        if limit == RATE and rate is not None:
            sure = max(sure, amount / rate)
            guess = max(guess, (amount + bytes_ahead) / rate)
            continue
        ends = []
        for r in running:
            if limit == BLOCKS:
                of_all = lifetime.seconds if lifetime.seconds is not None else UNKNOWN_S
                ends.append((of_all - r.age_s, r.need.blocks))
            elif r.recovering and (limit != TENANT or r.need.tenant == need.tenant):
                of_all = _recovery_s(r.need, rate, recovery)
                frees = 1 if limit == RECOVERIES else r.need.load_bytes
                ends.append((of_all - r.age_s, frees))
        guess = max(guess, _until(ends, amount))
    return max(sure, min(guess, LONGEST_GUESS_S))


def _recovery_s(need: Need, rate: float | None, observed: Mean) -> float:
    if observed.seconds is not None:
        return observed.seconds
    return UNKNOWN_S if rate is None else need.load_bytes / rate


def _until(ends: list[tuple[float, int]], amount: float) -> float:
    """When the first ends together free an amount; a guess where all of them do not."""
    for end, frees in sorted(ends):
        amount -= frees
        if amount <= 0:
            return end
    return UNKNOWN_S
