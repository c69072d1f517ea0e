"""Short histories of replays and suspensions, on the reference and the manager."""

import pytest

from .cases import CASES
from .live import Live
from .pair import Pair, Prompt
from .short import TEXT, begin, forget_checkpoints, leave, quarantine, resume, run, suspend


def test_a_replay_pins_more_than_it_skips_and_takes_the_branch_point(replay: Pair) -> None:
    leave(replay, 16)
    forget_checkpoints(replay)
    sequence = begin(replay, 25)
    s = sequence.reference
    assert (s.position, s.exact, s.sealed, s.captures) == (10, 16, 8, (16, 24))
    run(replay, sequence, 2, 2)  # below what is pinned: nothing is sealed, no checkpoint taken
    assert replay.seen["CHECKPOINT"] == 2
    run(replay, sequence, 2, 8, 1)
    assert (replay.seen["capture branch"], replay.seen["capture prompt"]) == (1, 3)
    replay.finish(sequence)
    assert replay.match(Prompt(TEXT[:17], "one")).reference.source == "checkpoint"


def test_every_multiple_is_captured_and_never_rolling() -> None:
    pair = Pair(CASES["every"], Live(CASES["every"]))
    sequence = begin(pair, 5)
    run(pair, sequence, 5, 3, 3, 1)
    assert pair.seen["capture every"] == 1
    assert (sequence.reference.position, sequence.reference.rolling_position) == (12, 12)
    run(pair, sequence, 3, 1)
    assert (sequence.reference.position, sequence.reference.rolling_position) == (16, 12)
    assert pair.seen["capture every"] == 2


def test_of_two_candidates_that_cost_the_same_the_checkpoint_is_taken() -> None:
    """To compute a block costs what it costs to load a checkpoint; a replay begins at 12."""
    pair = Pair(CASES["every"], Live(CASES["every"]))
    sequence = begin(pair, 20)
    run(pair, sequence, 4, 4, 4, 4, 4)
    pair.finish(sequence)
    prompt, images = Prompt(TEXT[:25], "one"), pair.reference.images
    found = []
    while images.index:
        plan = pair.match(prompt).reference
        found.append((plan.source, plan.resume_at))
        furthest = max(images.index.values(), key=lambda image: images[image].position)
        quarantine(pair, furthest, is_block=False)
    assert found == [("checkpoint", 20), ("checkpoint", 16), ("replay", 12)]


@pytest.mark.parametrize("steps", [(22,), (4, 18)])
@pytest.mark.parametrize(("num_tokens", "is_forked"), [(25, False), (14, True)])
def test_boundaries_wanted_below_what_is_pinned_do_not_shift_the_keys(
    num_tokens: int, is_forked: bool, steps: tuple[int, ...]
) -> None:
    """A replay from 4 passes 8, a multiple, and 12, its end, where nothing is wanted."""
    pair = Pair(CASES["every"], Live(CASES["every"]))
    leave(pair, 20 if not is_forked else 12)
    forget_checkpoints(pair)
    plan = pair.match(Prompt(TEXT[:num_tokens], "one", max_resume=12))
    sequence = pair.begin(plan)
    if is_forked:
        assert sequence
        sequence = pair.fork(sequence)
    assert sequence
    assert (sequence.reference.position, sequence.reference.exact) == (4, 12)
    run(pair, sequence, *steps)
    assert sequence.reference.sealed == 6


@pytest.mark.parametrize("position", [1, 2, 3, 6, 7, 11])
def test_what_was_suspended_is_resumed_there(replay: Pair, position: int) -> None:
    sequence = begin(replay, 9)
    run(replay, sequence, *[1] * position)
    pause = suspend(replay, sequence)
    sequence = resume(replay, pause, 12)
    s = sequence.reference
    assert (s.position, s.sealed, len(s.blocks)) == (position, position // 2, (position + 1) // 2)
    assert s.origin is not None
    run(replay, sequence, 12 - position)
    replay.finish(sequence)
    assert replay.seen["began suspended"] == 0
    begin(replay, 13, at=position)
    assert replay.seen["began suspended"] == 1


@pytest.mark.parametrize("position", [1, 4, 6, 10])
def test_without_state_the_partial_block_is_all_that_is_kept(plain: Pair, position: int) -> None:
    sequence = begin(plain, 12)
    run(plain, sequence, position)
    pause = suspend(plain, sequence)
    s = resume(plain, pause, 12).reference
    assert (s.position, s.origin) == (position, None)
    assert plain.seen["with_partial"] == (position % 4 > 0)


def test_what_was_suspended_may_be_gone_and_is_planned_as_any_prompt(replay: Pair) -> None:
    sequence = begin(replay, 9)
    run(replay, sequence, 9, 1, 1, 2)
    pause = suspend(replay, sequence)
    forget_checkpoints(replay)
    assert resume(replay, pause, 14).reference.position == 6
    assert replay.seen["resumed elsewhere"] == 1


def test_a_checkpoint_resumed_once_is_the_next_victim_when_a_later_one_is_sealed(
    replay: Pair,
) -> None:
    sequence = begin(replay, 5)
    run(replay, sequence, 5, 1, 1)
    pause = suspend(replay, sequence)
    sequence = resume(replay, pause, 8)
    origin = sequence.reference.origin[0]
    run(replay, sequence, 1)
    assert replay.reference.images.idle[0] == origin
    assert replay.seen["superseded"] == 1
    for _ in range(2):  # resumed by two more: it is shared, and stays where it is
        sequence = resume(replay, pause, 12)
    run(replay, sequence, 5)
    assert replay.seen["superseded"] == 1


def test_two_that_are_suspended_at_one_place_leave_one_checkpoint(replay: Pair) -> None:
    sequences = [begin(replay, 7), begin(replay, 7)]
    for sequence in sequences:
        run(replay, sequence, 7)
    pauses = [suspend(replay, sequence) for sequence in sequences]
    assert replay.seen["block DUPLICATE"] == 4
    for pause in pauses:
        assert resume(replay, pause, 9).reference.position == 7


@pytest.mark.parametrize(("accepted", "is_kept"), [(6, True), (5, True), (2, False)])
def test_one_that_rolled_back_too_far_leaves_its_whole_blocks_alone(
    plain: Pair, accepted: int, is_kept: bool
) -> None:
    sequence = begin(plain, 12)
    run(plain, sequence, 6, accepted=accepted)
    suspend(plain, sequence)
    assert plain.seen["partial"] == is_kept


def test_one_that_has_computed_nothing_leaves_nothing(replay: Pair) -> None:
    suspend(replay, begin(replay, 9))
    sequence = begin(replay, 9)
    run(replay, sequence, 2, accepted=0)
    suspend(replay, sequence)
    assert replay.seen["PAGE_SEALED"] == 0


def test_a_lease_pins_what_was_suspended(replay: Pair) -> None:
    sequence = begin(replay, 9)
    run(replay, sequence, 9, 1)
    run(replay, sequence, 1)
    suspend(replay, sequence)
    plan = replay.match(Prompt(TEXT[:12], "one", at=11))
    assert plan.reference.source == "suspended"
    replay.lease(plan)
    (lease,) = replay.leases
    assert lease.reference.partial
    quarantine(replay, lease.reference.partial, is_block=True)
    replay.lease(plan)  # refused: what it pins is gone
    replay.release(lease)
    assert (replay.seen["lease"], replay.seen["lease Stale"]) == (1, 1)
