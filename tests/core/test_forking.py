"""Short histories of forks and taint, on the reference and the manager."""

import pytest

from .pair import Pair, Prompt
from .short import TEXT, begin, forget_checkpoints, leave, quarantine, run, suspend


@pytest.mark.parametrize("position", [0, 1, 4, 7])
def test_a_fork_goes_on_where_its_parent_is(replay: Pair, position: int) -> None:
    parent = begin(replay, 6)
    run(replay, parent, *[1] * position)
    child = replay.fork(parent)
    assert child
    s = child.reference
    assert (s.position, len(s.blocks), s.captures) == (position, (position + 1) // 2, ())
    step = replay.reserve([(parent, 9 - position), (child, 9 - position)])
    assert step
    words = list(TEXT[position:9])
    replay.commit(step, None, [words, [*words[:-1], 2 - words[-1]]])
    replay.finish(child)
    replay.finish(parent)


def test_a_fork_of_duplicates_shares_what_is_indexed(replay: Pair) -> None:
    one, other = begin(replay, 6), begin(replay, 6)
    run(replay, one, 5)
    run(replay, other, 5)
    child = replay.fork(other)
    assert child
    assert child.reference.blocks[:2] == one.reference.blocks[:2]
    replay.finish(one)
    replay.finish(other)
    run(replay, child, 3)
    replay.finish(child)


@pytest.mark.parametrize(("num_filled", "has_room"), [(28, True), (32, False)])
def test_a_fork_does_not_evict_what_it_is_about_to_pin(
    plain: Pair, num_filled: int, has_room: bool
) -> None:
    """The block that replaced a bad canonical is idle, and the last one there is."""
    one, parent = begin(plain, 8), begin(plain, 10)
    run(plain, one, 8)
    run(plain, parent, 10)
    quarantine(plain, one.reference.blocks[1], is_block=True)
    plain.finish(one)
    leave(plain, 8)
    (replacement,) = plain.reference.blocks.idle
    filler = plain.begin(plain.match(Prompt((2,) * num_filled, "one")))
    assert filler
    plain.reserve([(filler, num_filled)])
    assert len(plain.reference.blocks.free) == has_room
    child = plain.fork(parent)
    assert (child is not None) == has_room
    if child:
        assert child.reference.blocks[1] == replacement


def test_a_fork_of_a_replay_is_no_more_exact_than_its_parent(replay: Pair) -> None:
    leave(replay, 16)
    forget_checkpoints(replay)
    parent = begin(replay, 20)
    run(replay, parent, 1)
    child = replay.fork(parent)
    assert child
    assert (child.reference.position, child.reference.exact) == (11, 16)
    suspend(replay, child)  # below what is exact: nothing is kept
    assert not replay.reference.images.index


def test_who_holds_a_bad_block_seals_nothing_that_others_find(replay: Pair) -> None:
    leave(replay, 8)
    sequence = begin(replay, 14)
    other = begin(replay, 14)
    quarantine(replay, sequence.reference.blocks[1], is_block=True)
    assert sequence.reference.tainted
    assert other.reference.tainted
    indexed = len(replay.reference.blocks.index)
    run(replay, sequence, 6, 1, 1)
    assert len(replay.reference.blocks.index) == indexed
    assert replay.seen["tainted"] == 4
    assert replay.fork(sequence) is None
    suspend(replay, sequence)
    replay.finish(other)
    assert begin(replay, 14).reference.position == 0


def test_who_began_on_a_bad_checkpoint_is_tainted(replay: Pair) -> None:
    leave(replay, 8)
    sequence = begin(replay, 14)
    assert sequence.reference.origin is not None
    quarantine(replay, sequence.reference.origin[0], is_block=False)
    run(replay, sequence, 6)
    assert replay.seen["tainted"] == 3
    replay.finish(sequence)
