"""What several ranks of one engine must agree on before they resume the same request.

Each rank evicts by itself, so each may find another hit; a resume is safe only where all of them
hold the pages. Two exchanges suffice: the least of every number, and the intersection of sets.
The transport is the engine's; on one rank :class:`LocalRank` answers without any.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["LocalRank", "RankGroup"]


class RankGroup(Protocol):
    """Ranks that agree with each other; every method is a collective.

    Every rank must make the same calls in the same order, with as many values in each call of
    ``least``: a rank that calls less often leaves the others waiting, one that calls in another
    order is answered with another question's numbers. Answers are equal on all ranks.
    """

    @property
    def size(self) -> int:
        """Number of ranks, at least 1."""
        ...

    @property
    def rank(self) -> int:
        """This rank, in ``[0, size)``."""
        ...

    def least(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Take the element-wise minimum over all ranks.

        Args:
            values: int64[n], n equal on all ranks.

        Returns:
            A new int64[n].
        """
        ...

    def common(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Intersect the ranks' sets.

        Args:
            positions: int64[k], this rank's set in any order, k of its own; repeats count once.

        Returns:
            A new int64[m], ascending: what every rank named; empty where they share nothing.
        """
        ...


class LocalRank:
    """A single rank, which agrees with itself."""

    size: int = 1
    rank: int = 0

    def least(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Copy the values: the minimum over one rank; see :meth:`RankGroup.least`."""
        return np.array(values, dtype=np.int64)

    def common(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sort the positions, each once; see :meth:`RankGroup.common`."""
        return np.unique(np.asarray(positions, dtype=np.int64))
