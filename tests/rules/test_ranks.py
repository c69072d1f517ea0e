"""Agreement of ranks, with threads for ranks."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from threading import Barrier
from typing import TypeVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kvstrata.core.ranks import LocalRank, RankGroup

T = TypeVar("T")
Array = NDArray[np.int64]
TIMEOUT_S = 30.0


class ThreadRank:
    """One rank of a group whose ranks are threads that meet at a barrier."""

    def __init__(self, rank: int, board: list[Array], barrier: Barrier) -> None:
        self.size = len(board)
        self.rank = rank
        self._board = board
        self._barrier = barrier

    def _gather(self, values: Array) -> list[Array]:
        self._board[self.rank] = values
        self._barrier.wait(TIMEOUT_S)
        found = list(self._board)
        self._barrier.wait(TIMEOUT_S)
        return found

    def least(self, values: Array) -> Array:
        return np.asarray(np.minimum.reduce(self._gather(values)), dtype=np.int64)

    def common(self, positions: Array) -> Array:
        return reduce(np.intersect1d, self._gather(np.unique(positions)))


def on_ranks(size: int, work: Callable[[RankGroup], T]) -> list[T]:
    """Run the same work on every rank."""
    board = [np.zeros(0, dtype=np.int64) for _ in range(size)]
    barrier = Barrier(size)
    groups: list[RankGroup] = [ThreadRank(rank, board, barrier) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, groups))


def ints(values: list[int]) -> Array:
    return np.array(values, dtype=np.int64)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), size=st.integers(1, 4))
def test_ranks_agree_on_least_and_common(data: st.DataObject, size: int) -> None:
    count = data.draw(st.integers(0, 5))
    row = st.lists(st.integers(-(1 << 62), 1 << 62), min_size=count, max_size=count)
    values = data.draw(st.lists(row, min_size=size, max_size=size))
    a_set = st.lists(st.integers(0, 12), max_size=12)
    sets = data.draw(st.lists(a_set, min_size=size, max_size=size))

    def work(group: RankGroup) -> tuple[list[int], list[int]]:
        least = group.least(ints(values[group.rank]))
        common = group.common(ints(sets[group.rank]))
        assert least.dtype == common.dtype == np.int64
        return least.tolist(), common.tolist()

    wanted = (
        [min(column) for column in zip(*values, strict=True)],
        sorted(set.intersection(*map(set, sets))),
    )
    assert on_ranks(size, work) == [wanted] * size


@given(values=st.lists(st.integers(-(1 << 62), 1 << 62)))
def test_one_rank_agrees_with_itself(values: list[int]) -> None:
    group: RankGroup = LocalRank()
    given_values = ints(values)
    assert (group.size, group.rank) == (1, 0)
    assert group.least(given_values).tolist() == values
    assert group.common(given_values).tolist() == sorted(set(values))
    assert not np.shares_memory(group.least(given_values), given_values)
    assert not np.shares_memory(group.common(given_values), given_values)


def test_an_intersection_that_is_empty() -> None:
    sets = [[768], [], [768], [640]]
    assert on_ranks(4, lambda group: group.common(ints(sets[group.rank])).tolist()) == [[]] * 4
