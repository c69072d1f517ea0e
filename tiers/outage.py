"""When a tier is left alone because its place does not answer, and when it is asked again.

Up: everybody may try. After ``limit`` failures in a row it is down: nobody may try until the
back-off is over; then one may (the probe). The probe's success, or that of anyone who began
before, brings the tier up; the probe's failure doubles the back-off.
"""

import random as randomness
import threading
import time
from collections.abc import Callable
from typing import Final

from kvstrata.core.errors import ConfigError

__all__ = ["FIRST_WAIT_S", "LONGEST_WAIT_S", "Outage"]

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 60.0
_JITTER: Final = 0.25  # processes that failed together must not come back together
_MOST_DOUBLINGS: Final = 16


class Outage:
    """Knows whether one tier answers; safe to use from any thread.

    Who was told that it may try must say how it ended: :meth:`succeeded`, :meth:`failed` or
    :meth:`not_tried`. A probe that says nothing is replaced after ``LONGEST_WAIT_S``.

    Args:
        limit: failures in a row that bring the tier down, at least 1.
        clock: seconds that never go back.
        random: numbers in ``[0, 1)``.

    Raises:
        ConfigError: a limit below 1.
    """

    def __init__(
        self,
        limit: int = 3,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        if limit < 1:
            raise ConfigError(f"outage: limit: expected at least 1, found {limit}")
        self._limit = limit
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._is_down = False
        self._is_probing = False
        self._doublings = 0
        self._retry_at_s = 0.0
        self._outages = 0

    @property
    def is_down(self) -> bool:
        """Whether the tier is passed over, probes apart."""
        with self._lock:
            return self._is_down

    @property
    def retry_in_s(self) -> float:
        """Seconds until somebody may try again; 0 while the tier is up."""
        with self._lock:
            return max(0.0, self._retry_at_s - self._clock()) if self._is_down else 0.0

    @property
    def outages(self) -> int:
        """How often the tier went down."""
        with self._lock:
            return self._outages

    def may_try(self) -> bool:
        """Whether to ask the tier now. Mutates: the probe is the caller's if it is down."""
        with self._lock:
            if not self._is_down:
                return True
            now_s = self._clock()
            if now_s < self._retry_at_s:
                return False
            self._is_probing = True
            self._retry_at_s = now_s + LONGEST_WAIT_S
            return True

    def succeeded(self) -> None:
        """The tier answered, whatever it said. Mutates: it is up."""
        with self._lock:
            self._in_a_row = self._doublings = 0
            self._is_down = self._is_probing = False

    def failed(self) -> None:
        """The tier did not answer. Mutates: it may go down, or stay down for longer."""
        with self._lock:
            self._in_a_row += 1
            if not self._is_down:
                if self._in_a_row >= self._limit:
                    self._is_down = True
                    self._outages += 1
                    self._wait()
            elif self._is_probing:  # any other failure began before the tier went down
                self._is_probing = False
                self._doublings = min(self._doublings + 1, _MOST_DOUBLINGS)
                self._wait()

    def not_tried(self) -> None:
        """Who might have tried did not. Mutates: the next who asks may."""
        with self._lock:
            if self._is_down and self._is_probing:
                self._is_probing = False
                self._retry_at_s = self._clock()

    def _wait(self) -> None:
        longest_s = LONGEST_WAIT_S / (1 + _JITTER)
        wait_s = min(FIRST_WAIT_S * 2**self._doublings, longest_s)
        self._retry_at_s = self._clock() + wait_s * (1 + _JITTER * self._random())
