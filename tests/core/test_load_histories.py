"""Short histories of loads and of what is stored, on the reference and the manager."""

import pytest

from kvstrata import ConfigError
from kvstrata.core.integrity import find_violations

from .pair import Pair, Prompt
from .short import quarantine
from .short_loads import (
    compute,
    crash_after_every_call,
    leave,
    load,
    open_pair,
    plan,
    prompt,
    tell,
    whole,
)


def test_what_was_loaded_is_found(loads: Pair) -> None:
    tell(loads, 5, 4)
    begun = load(loads, 25)
    wanted = begun.reference
    assert (len(wanted.keys), wanted.sequence.prompt_tokens) == (4, 16)
    whole(loads, begun)
    found = plan(loads, 25).reference
    assert (found.source, found.resume_at, len(found.blocks)) == ("checkpoint", 16, 4)
    loads.release_load(begun)
    leave(loads, 25)
    assert loads.seen["began checkpoint"] == 1


def test_a_load_goes_on_behind_what_is_here_and_pins_it(stored: Pair) -> None:
    leave(stored, 9)
    tell(stored, 5, first=2)
    begun = load(stored, 25)
    assert len(begun.reference.sequence.blocks) == 5
    assert stored.seen["load behind a prefix"] == 1
    assert not stored.reference.blocks.idle
    whole(stored, begun)
    stored.release_load(begun)
    assert len(stored.reference.blocks.idle) == 5


@pytest.mark.parametrize(("good", "image"), [(0, False), (2, False), (4, False), (2, True)])
def test_what_did_not_come_is_given_up(loads: Pair, good: int, image: bool) -> None:
    tell(loads, 4, 4)
    begun = load(loads, 25)
    loads.end_load(begun, good, image, "CHECKSUM_MISMATCH")
    assert len(loads.reference.blocks.index) == good
    assert len(loads.reference.images.index) == image
    loads.release_load(begun)


def test_a_checkpoint_alone_is_loaded_where_the_blocks_are_here(loads: Pair) -> None:
    leave(loads, 12)
    for image in list(loads.reference.images.index.values()):
        quarantine(loads, image, is_block=False)
    tell(loads, 0, 2)
    begun = load(loads, 12)
    assert (len(begun.reference.keys), begun.reference.sequence.blocks != []) == (0, True)
    whole(loads, begun)
    assert plan(loads, 12).reference.source == "checkpoint"
    loads.release_load(begun)


def test_a_checkpoint_that_is_here_is_not_loaded_where_its_blocks_are(loads: Pair) -> None:
    leave(loads, 17)
    others = []
    for number in range(4):  # 32 of 34 blocks
        others.append(loads.begin(loads.match(Prompt((number + 5,) * 40, "one"))))
        assert others[-1]
        assert loads.reserve([(others[-1], 32)])
    assert len(loads.reference.images.index) == 1
    tell(loads, 4)
    found = plan(loads, 25).reference
    assert (found.source, found.resume_at) == ("stored", 16)
    assert (found.load.first, found.load.num_blocks, found.load.checkpoint_at) == (2, 2, 0)


@pytest.mark.parametrize("name", ["loads", "stored"])
def test_a_block_computed_meanwhile_is_kept_and_the_loaded_one_is_a_duplicate(name: str) -> None:
    pair = open_pair(name)
    tell(pair, 4, *([4] if name == "loads" else []))
    begun = load(pair, 17)
    leave(pair, 17)
    indexed = dict(pair.reference.blocks.index)
    whole(pair, begun)
    assert pair.reference.blocks.index == indexed
    assert pair.seen["loaded duplicate"] == 1
    assert pair.seen["loaded image that is here"] == (name == "loads")
    later = compute(pair, 21)  # begins on the one that is indexed
    pair.release_load(begun)
    assert pair.seen["block DUPLICATE"] == 4
    pair.finish(later)


def test_two_loads_of_one_prefix_leave_it_once(loads: Pair) -> None:
    tell(loads, 4, 4)
    first, second = (load(loads, 17) for _ in range(2))
    whole(loads, second)
    whole(loads, first)
    loads.release_load(second)  # the first holds the duplicates, which hold the second's
    assert not loads.reference.blocks.idle
    loads.release_load(first)
    assert len(loads.reference.blocks.idle) == 4


@pytest.mark.parametrize("name", ["loads", "stored"])
@pytest.mark.parametrize("how", ["page", "reader"])
@pytest.mark.parametrize("drained", [False, True])
def test_a_tainted_load_seals_nothing(name: str, how: str, drained: bool) -> None:
    loads = open_pair(name)
    leave(loads, 9)
    tell(loads, 4, *[4] if name == "loads" else [], first=2)
    begun = load(loads, 17)
    if how == "page":
        quarantine(loads, begun.reference.sequence.blocks[1], is_block=True)
    else:
        loads.register(0)
    if drained:
        loads.drain_load(begun)
        loads.end_load(begun, 0, False)
    else:
        whole(loads, begun)
        assert loads.seen["load tainted"] == 1
    loads.release_load(begun)
    assert len(loads.reference.blocks.index) == (1 if how == "page" else 2)


def test_blocks_that_were_loaded_go_with_a_bad_one_below(stored: Pair) -> None:
    leave(stored, 9)
    tell(stored, 4, first=2)
    begun = load(stored, 17)
    whole(stored, begun)
    quarantine(stored, begun.reference.sequence.blocks[0], is_block=True)
    stored.release_load(begun)
    assert not stored.reference.blocks.index


def test_a_drained_load_gives_its_pages_back_when_its_reads_have_ended(loads: Pair) -> None:
    tell(loads, 4, 4)
    begun = load(loads, 17)
    free = len(loads.reference.blocks.free)
    loads.drain_load(begun, "LOAD_DEADLINE")
    assert len(loads.reference.blocks.free) == free
    loads.end_load(begun, 0, False, "LOAD_DEADLINE")
    assert len(loads.reference.blocks.free) == free + 4
    loads.release_load(begun)
    assert loads.seen["PAGE_DRAINING"] == 5


def test_a_load_is_begun_whole_or_not_at_all(stored: Pair) -> None:
    """Rows, and blocks, those that it pins itself not counted."""
    leave(stored, 17)
    tell(stored, 9, first=4)
    held = [load(stored, 37) for _ in range(7)]  # 35 of 36 blocks
    wanted = plan(stored, 37)
    assert stored.load(wanted) is None
    assert stored.seen["load NoRoom"] == 1
    for begun in held:
        stored.drain_load(begun)
        stored.end_load(begun, 0, False)
        stored.release_load(begun)
    assert len(stored.reference.blocks.idle) == 4
    begun = stored.load(wanted)
    assert begun
    assert len(begun.reference.sequence.blocks) == 9


@pytest.mark.parametrize("is_one_short", [False, True])
def test_what_a_load_pins_is_not_evicted_for_it(stored: Pair, is_one_short: bool) -> None:
    """Of 40 blocks 4 are idle, to be pinned, and 6 or 5 are free for the 6 to be loaded."""
    leave(stored, 17)
    for number, num_tokens in enumerate((40, 40, 40, 1)[: 3 + is_one_short]):
        other = stored.begin(stored.match(Prompt((number + 5,) * 40, "one")))
        assert other
        assert stored.reserve([(other, num_tokens)])
    tell(stored, 10, first=4)
    begun = stored.load(plan(stored, 41))
    assert (begun is None) == is_one_short
    assert stored.seen["load NoRoom"] == is_one_short
    assert stored.seen["block EVICTED"] == 0


def test_a_plan_whose_prefix_changed_is_not_loaded(stored: Pair) -> None:
    leave(stored, 9)
    tell(stored, 4, first=2)
    old = plan(stored, 17)
    quarantine(stored, old.reference.blocks[0][0], is_block=True)
    assert stored.load(old) is None
    assert stored.seen["load Stale"] == 1


def test_calls_of_a_load_are_cut_at_a_quarter_of_the_ring() -> None:
    pair = open_pair("long")
    tell(pair, 168, 168)
    begun = load(pair, 673)
    pair.drain_load(begun)
    pair.end_load(begun, 0, False, "LOAD_CANCELLED")
    pair.release_load(begun)
    begun = load(pair, 673)
    pair.end_load(begun, 70, False)  # seals, and gives up
    pair.release_load(begun)
    begun = load(pair, 673)
    whole(pair, begun)
    pair.release_load(begun)
    cut = {name for name in pair.seen if name.endswith(" cut")}
    assert {"load cut", "drain_load cut", "end_load cut"} <= cut
    assert crash_after_every_call(pair) > 20


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("bytes_trusted", [False, True])
def test_a_crash_frees_what_was_being_loaded(
    loads: Pair, drained: bool, bytes_trusted: bool
) -> None:
    leave(loads, 9)
    tell(loads, 4, 4, first=2)
    begun = load(loads, 17)
    if drained:
        loads.drain_load(begun)
    order = loads.reference.stored.observe()
    loads.crash(bytes_trusted)
    assert loads.seen["crash in a drain" if drained else "crash in a load"] == 1
    assert len(loads.reference.blocks.index) == (2 if bytes_trusted else 0)
    assert loads.reference.stored.observe() == order
    leave(loads, 17)


def test_the_laws_hold_while_a_checkpoint_is_loaded(loads: Pair) -> None:
    tell(loads, 4, 4)
    load(loads, 17)
    assert find_violations(loads.subject.arena) == []


def test_no_more_is_loaded_than_the_longest_sequence_holds(stored: Pair) -> None:
    tell(stored, 12)
    wanted = stored.subject._match(prompt(49)).load
    assert wanted is None or wanted.first + wanted.num_blocks <= stored.case.max_blocks_per_sequence


def test_a_lease_of_a_plan_that_has_all_to_load_is_an_error(stored: Pair) -> None:
    tell(stored, 4)
    wanted = stored.subject._match(prompt(17))
    with pytest.raises(ConfigError):
        stored.subject.manager.lease(wanted)
