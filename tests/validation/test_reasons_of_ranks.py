"""Reasons about ranks: a hit is no larger than what all of them hold, and none adopts it alone."""

import numpy as np
import numpy.typing as npt
import pytest

from kvstrata import LocalRank
from kvstrata.core.events import EventType, Reason
from tests.face.support import hit

from .support import WANTED, Log, begun, counted, explained, filled

FAILED, LIMITED = EventType.VALIDATION_FAILED, EventType.HIT_LIMITED
Words = npt.NDArray[np.int64]


class FakeRanks(LocalRank):
    """Two ranks, of which the other holds less."""

    size = 2

    def __init__(self, blocks: int, checkpoints: list[int], says: tuple[int, ...] = ()) -> None:
        self._blocks, self._checkpoints, self._says = blocks, checkpoints, list(says)

    def least(self, values: Words) -> Words:
        theirs = [self._blocks, *values[1:]]
        if len(values) == 1:
            theirs = [int(values[0])]
            if values[0] == 1 and self._says:  # is the plan good? can it be planned anew?
                theirs = [self._says.pop(0)]
        return np.minimum(values, np.array(theirs, dtype=np.int64))

    def common(self, positions: Words) -> Words:
        return np.intersect1d(positions, np.array(self._checkpoints, dtype=np.int64))


class SwitchedRanks(LocalRank):
    """One rank until another is put in its place, so that a cache can be filled."""

    other: FakeRanks | None = None

    @property
    def size(self) -> int:  # type: ignore[override]
        return 1 if self.other is None else 2

    def least(self, values: Words) -> Words:
        return super().least(values) if self.other is None else self.other.least(values)

    def common(self, positions: Words) -> Words:
        return super().common(positions) if self.other is None else self.other.common(positions)


@pytest.mark.parametrize(
    ("blocks", "checkpoints", "reason", "expected", "tokens"),
    [
        (4, [3], Reason.RANK_LIMITED, ("checkpoint", 48, 48), (80, 64)),
        (0, [], Reason.RANK_INTERSECTION_EMPTY, ("cold", 0, 0), (80, 0)),
        (5, [3], Reason.GROUP_LIMITED, ("replay", 48, 80), None),
    ],
    ids=["limited", "empty", "other-checkpoint"],
)
def test_ranks(
    blocks: int,
    checkpoints: list[int],
    reason: Reason,
    expected: tuple[str, int, int],
    tokens: tuple[int, int] | None,
) -> None:
    ranks = SwitchedRanks()
    cache = filled(ranks)
    ranks.other = FakeRanks(blocks, checkpoints)
    log = Log(cache)
    assert explained(cache, reason.name if tokens else "chosen") == expected
    begun(cache, expected)
    assert not log.new(FAILED)
    events = log.new(LIMITED)
    if tokens is None:
        assert not events
        return
    begun(cache, expected)
    ((event, payload),) = log.new(LIMITED)
    assert event["reason"] == reason
    assert (payload["found"], payload["agreed"]) == tokens
    assert cache.stats().validation_failures == {counted(3, reason, ""): 2}


@pytest.mark.parametrize(
    ("says", "source"),
    [((0, 0), "cold"), ((0, 1), "checkpoint")],
    ids=["nothing can be withdrawn there", "withdrawn there"],
)
def test_a_bad_page_on_another_rank(says: tuple[int, ...], source: str) -> None:
    """A plan that is good here is not adopted where another rank says no: it is made anew."""
    ranks = SwitchedRanks()
    cache = filled(ranks)
    plan = cache.match(WANTED)
    ranks.other = FakeRanks(5, [5, 3], says)
    sequence = cache.begin(plan)
    assert sequence.plan is not plan
    assert sequence.plan.source == source
    sequence.cancel()
    assert hit(cache, WANTED) == (80, 80), "nothing here was withdrawn"
    assert not cache.stats().validation_failures


def test_captures_are_agreed_upon_too() -> None:
    """This rank has the checkpoint at 80 and the other has not: their steps would differ."""
    ranks = SwitchedRanks()
    cache = filled(ranks)
    ranks.other = FakeRanks(5, [3])
    here = cache.match(WANTED)
    assert here.resume_at == 48
    assert 80 in here.captures, "the other rank takes a checkpoint at 80"
