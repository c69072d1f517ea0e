"""What was asked of one tier so far, and how it stands."""

import threading
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from kvstrata.core.events import Reason

__all__ = ["TierCounters", "TierStats"]


@dataclass(frozen=True)
class TierStats:
    """One tier at one moment; counts since the set was opened.

    Attributes:
        reads: objects whose bytes were read, good or bad.
        read_bytes: of these, header and trailer included.
        read_s: that reading took, checks not included.
        writes: objects written here, promoted ones included.
        write_bytes: of these.
        write_s: that writing took.
        already_there: writes that found the object there.
        promotions: objects put here because they were read from a slower tier.
        shared: loads that found here what another process had fetched from a slower tier.
        set_aside: bad objects taken out of sight.
        passed_over: times it was not asked because it was down or full.
        faults: by the reason's name.
        down: whether it is passed over now.
        full: whether it is passed over for writing now.
        outages: how often it went down.
        retry_in_s: seconds until it is asked again; 0 while it is up.
    """

    reads: int
    read_bytes: int
    read_s: float
    writes: int
    write_bytes: int
    write_s: float
    already_there: int
    promotions: int
    shared: int
    set_aside: int
    passed_over: int
    faults: dict[str, int]
    down: bool
    full: bool
    outages: int
    retry_in_s: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class TierCounters:
    """Counts of one tier; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._read_s = 0.0
        self._write_s = 0.0

    def read(self, num_bytes: int, seconds: float, num_objects: int = 1) -> None:
        """Objects' bytes were read. Mutates: these counts."""
        with self._lock:
            self._counts["reads"] += num_objects
            self._counts["read_bytes"] += num_bytes
            self._read_s += seconds

    def wrote(self, num_bytes: int, seconds: float, count: int = 1) -> None:
        """Objects were written. Mutates: these counts."""
        with self._lock:
            self._counts["writes"] += count
            self._counts["write_bytes"] += num_bytes
            self._write_s += seconds

    def count(self, what: str) -> None:
        """One more of what :class:`TierStats` names. Mutates: these counts."""
        with self._lock:
            self._counts[what] += 1

    def fault(self, reason: Reason) -> None:
        """One more fault. Mutates: these counts."""
        with self._lock:
            self._faults[reason.name] += 1

    def stats(self, down: bool, full: bool, outages: int, retry_in_s: float) -> TierStats:
        """The counts now, with how the tier stands."""
        with self._lock:
            counts = self._counts
            return TierStats(
                reads=counts["reads"],
                read_bytes=counts["read_bytes"],
                read_s=self._read_s,
                writes=counts["writes"],
                write_bytes=counts["write_bytes"],
                write_s=self._write_s,
                already_there=counts["already_there"],
                promotions=counts["promotions"],
                shared=counts["shared"],
                set_aside=counts["set_aside"],
                passed_over=counts["passed_over"],
                faults=dict(self._faults),
                down=down,
                full=full,
                outages=outages,
                retry_in_s=retry_in_s,
            )
