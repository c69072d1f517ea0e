"""Times of calls: CPU time of the calling thread, so that other work on the machine costs nobody.

A reading of the clock costs about as much as the fastest calls measured here; what it adds is
measured when a meter is made and taken off. Calls faster than a few clock readings are repeated
inside one measurement instead (see :meth:`Meter.repeat`).
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np


class Meter:
    """Samples by verb, in nanoseconds of the calling thread's CPU time."""

    def __init__(self) -> None:
        self.samples: dict[str, list[int]] = defaultdict(list)
        self.clock_ns = self._clock_cost()

    @staticmethod
    def _clock_cost(readings: int = 2000) -> int:
        clock = time.thread_time_ns
        spent = []
        for _ in range(readings):
            start = clock()
            spent.append(clock() - start)
        return int(np.median(spent))

    def call(self, verb: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a call and keep what it took."""
        start = time.thread_time_ns()
        answer = function(*arguments)
        spent = time.thread_time_ns() - start - self.clock_ns
        self.samples[verb].append(max(spent, 0))
        return answer

    def repeat(self, verb: str, times: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a call that changes nothing several times; the sample is the mean of one."""
        start = time.thread_time_ns()
        for _ in range(times):
            answer = function(*arguments)
        spent = time.thread_time_ns() - start - self.clock_ns
        self.samples[verb].append(max(spent, 0) // times)
        return answer

    def to_json(self) -> dict[str, Any]:
        """By verb: calls, total, median and 99th percentile, in microseconds."""
        return {
            verb: {
                "calls": len(samples),
                "total_us": sum(samples) / 1e3,
                "median_us": float(np.median(samples)) / 1e3,
                "p99_us": float(np.percentile(samples, 99)) / 1e3,
            }
            for verb, samples in self.samples.items()
        }
