"""Projection drift: the engine's digests of its tables, compared with a follower's own."""

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import arena_digest, slice_digest
from kvstrata.core.events import EventType
from kvstrata.eventstore.log.projection import Words

__all__ = ["DIGESTS", "DigestComparison", "DriftFound"]

DIGESTS: Final = (int(EventType.STATE_DIGEST), int(EventType.SLICE_DIGEST))
_WHOLE: Final = -1
_MOST_KEPT: Final = 1000


@dataclass(frozen=True)
class DriftFound:
    """Tables that went another way than the log says.

    Attributes:
        kind: ``slice`` or ``state`` (all tables) for a digest that differs, ``refused`` for an
            event that does not apply.
        slice: number of the slice, -1 where all tables were compared.
        num_slices: into which the tables are cut; 1 where all were compared.
        first_seqno: of the first event after the last digest of it that was equal.
        last_seqno: of the last event before the digest that differs, or of the event refused.
        time_ns: when that was logged, CLOCK_MONOTONIC of the engine.
        expected: the engine's digest, hexadecimal; why it was refused.
        found: the follower's.
    """

    kind: str
    slice: int
    num_slices: int
    first_seqno: int
    last_seqno: int
    time_ns: int
    expected: str
    found: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class DigestComparison:
    """Compares logged digests with one arena, and remembers what was equal when.

    A slice that differs is reported once, until it has been equal again.

    Args:
        start_seqno: up to which the arena is taken to be right: where its follower began.

    Attributes:
        found: divergences, oldest first; the newest thousand.
        num_found: all of them.
        equal: digests that were equal.
        differed: digests that were not.
    """

    def __init__(self, start_seqno: int) -> None:
        self.found: list[DriftFound] = []
        self.num_found = 0
        self.equal = 0
        self.differed = 0
        self.begin(start_seqno)

    def begin(self, start_seqno: int) -> None:
        """Go on with another arena, taken to be right at a seqno; what was found stays."""
        self._start = start_seqno
        self._equal_at: dict[int, int] = {}
        self._num_slices = 0
        self._differs: set[int] = set()

    def compare(self, arena: Words, event: npt.NDArray[np.void]) -> DriftFound | None:
        """Compare one digest event with the arena as it is just before it.

        Args:
            arena: the follower's, every event before this one applied.
            event: EVENT_DTYPE[1], a STATE_DIGEST or SLICE_DIGEST.

        Returns:
            What was found, where it differs and had not been reported.
        """
        words = event.view(np.int64).reshape(-1)
        last = int(words[0]) - 1
        number, num_slices = _WHOLE, 1
        if int(event["type"][0]) == EventType.SLICE_DIGEST:
            number, num_slices = int(words[4]) & 0xFFFF_FFFF, (int(words[4]) >> 32) & 0xFFFF_FFFF
            if num_slices < 1 or number >= num_slices:
                return None  # of a version that cuts otherwise
            expected, found = words[6:8].tobytes(), slice_digest(arena, number, num_slices)
            if num_slices != self._num_slices:
                self._cut_otherwise(num_slices)
        else:
            expected, found = words[4:6].tobytes(), arena_digest(arena)
        if expected == found:
            self._was_equal(number, last)
            return None
        self.differed += 1
        if number in self._differs:
            return None
        self._differs.add(number)
        kind = "state" if number == _WHOLE else "slice"
        first = self._equal_at.get(number, self._start) + 1
        return self.add(
            DriftFound(
                kind, number, num_slices, first, last, int(words[1]), expected.hex(), found.hex()
            )
        )

    def add(self, drift: DriftFound) -> DriftFound:
        """Keep a divergence."""
        self.num_found += 1
        self.found.append(drift)
        del self.found[:-_MOST_KEPT]
        return drift

    def _was_equal(self, number: int, seqno: int) -> None:
        self.equal += 1
        if number == _WHOLE:
            self._start = seqno
            self._equal_at.clear()
            self._differs.clear()
        else:
            self._differs.discard(number)
        self._equal_at[number] = seqno

    def _cut_otherwise(self, num_slices: int) -> None:
        """Slices of another size: what is known of the old ones says nothing of these."""
        self._num_slices = num_slices
        whole = self._equal_at.get(_WHOLE)
        self._equal_at = {} if whole is None else {_WHOLE: whole}
        self._differs &= {_WHOLE}
