"""What may be written to lower tiers: found in the log, judged, and hung from its root."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from kvstrata.core.quarantine import mark_dirty
from kvstrata.core.ring import RING_CAPACITY
from kvstrata.core.spilling import FOUND_WORDS, find_sealed, is_storable
from kvstrata.core.words import (
    META_LAST_SEQNO,
    PAGE_GENERATION,
    POOL_ABI,
    POOL_FIRST,
    POOL_VERSION,
)

from . import actions
from .actions import WEIGHTS
from .cases import CASES
from .live import Live
from .pair import Pair, Prompt
from .short import quarantine
from .short_loads import compute, leave, load, tell, whole
from .tier_actions import TIER_WEIGHTS
from .watching import Found, Watcher, check_chains, check_idle, expected_storable, sealed_in


def walked(name: str, seed: int, num_actions: int) -> Iterator[tuple[Pair, Random, int]]:
    """A random history; after each action the pair, and how many calls were logged before."""
    pair, rng = Pair(CASES[name], Live(CASES[name])), Random(seed)
    each = WEIGHTS | TIER_WEIGHTS
    chosen, weights = list(each), list(each.values())
    yield pair, rng, 0
    for number in range(num_actions):
        calls = len(pair.log)
        rng.choices(chosen, weights)[0](pair, rng)
        if number % 300 == 299:
            actions.crash(pair, rng)
        yield pair, rng, calls


@pytest.mark.parametrize("name", ["stored", "loads", "reloads"])
def test_what_is_found_in_a_random_history_is_what_the_reference_says(name: str) -> None:
    watchers: list[Watcher] = []
    num_found = num_chains = 0
    ever: set[Found] = set()
    partial: set[Found] = set()
    for pair, rng, calls in walked(name, 11, 450):
        watchers = watchers or [Watcher(pair), Watcher(pair, at_once=1)]
        if pair.log[calls:]:
            few = watchers[1].look()
            assert watchers[0].look() == few == sealed_in(pair, calls)
            num_found += len(few)
            ever |= set(few)
        partial |= set(sealed_in(pair, calls, partial=True))
        expected = expected_storable(pair) - partial
        assert watchers[0].storable() == expected
        gone = {one for one in ever if is_storable(watchers[0].arena, *one)} - expected
        assert not gone, "storable, with a generation that it has no more"
        num_chains += check_chains(pair)
        check_idle(pair, rng)
    assert num_found > 30
    assert num_chains > 100
    assert pair.seen["block EVICTED"]


def test_what_is_not_at_a_blocks_end_is_not_stored(loads: Pair) -> None:
    watcher = Watcher(loads)
    sequence = compute(loads, 10)
    loads.suspend(sequence)
    found = watcher.look()
    blocks, images = loads.reference.blocks, loads.reference.images
    positions = {
        (is_block, (blocks if is_block else images)[unit].position) for is_block, unit, _ in found
    }
    assert positions == {(True, 4), (True, 8), (False, 8), (False, 10)}  # no partial block
    stored = [images[unit].position for is_block, unit, _ in watcher.storable() if not is_block]
    assert stored == [8]
    assert len(watcher.storable()) == 3
    partial = next(unit for unit in blocks.index.values() if blocks[unit].position == 12)
    assert not is_storable(watcher.arena, True, partial, blocks[partial].generation)


def test_a_page_written_behind_its_seal_is_not_stored(loads: Pair) -> None:
    watcher = Watcher(loads)
    leave(loads, 9)
    (bad, other) = loads.reference.blocks.index.values()
    slot = loads.reference.blocks[bad].pages[0]
    tables = loads.subject.manager.tables
    generation = int(tables.pages[int(tables.pools[0, POOL_FIRST]) + slot, PAGE_GENERATION])
    code = mark_dirty(watcher.arena, watcher.ring, 0, slot, generation, 0)
    assert code == 0
    assert {unit for is_block, unit, _ in watcher.storable() if is_block} == {other}


@pytest.mark.parametrize(("word", "is_block"), [(POOL_ABI, True), (POOL_VERSION, True)])
def test_what_was_sealed_for_another_reader_is_not_stored(
    loads: Pair, word: int, is_block: bool
) -> None:
    watcher = Watcher(loads)
    leave(loads, 9)
    assert {one[0] for one in watcher.storable()} == {True, False}
    pools = loads.subject.manager.tables.pools
    pools[0 if is_block else 1, word] ^= 5
    assert {one[0] for one in watcher.storable()} == {not is_block}
    pools[0 if is_block else 1, word] ^= 5


def test_duplicates_and_what_a_tainted_sequence_computed_are_told_of_and_not_stored(
    loads: Pair,
) -> None:
    watcher = Watcher(loads)
    first, second = (loads.begin(loads.match(Prompt((1,) * 9, "one"))) for _ in range(2))
    for sequence in (first, second):
        assert sequence
        step = loads.reserve([(sequence, 9)])
        assert step
        loads.commit(step, None, None)
    found = watcher.look()
    assert len([one for one in found if one[0]]) == 4
    assert len([one for one in watcher.storable() if one[0]]) == 2
    quarantine(loads, second.reference.blocks[0], is_block=True)  # its twin goes too
    assert not watcher.storable()


def test_what_was_evicted_meanwhile_and_taken_again_is_another(loads: Pair) -> None:
    watcher = Watcher(loads)
    leave(loads, 9)
    before = [one for one in watcher.look() if one[0]]
    for number, num_tokens in enumerate((32, 32, 32, 32, 4)):  # 33 of 34 blocks
        other = loads.begin(loads.match(Prompt((number + 5,) * 33, "one")))
        assert other
        assert loads.reserve([(other, num_tokens)])
    assert loads.seen["block EVICTED"] == 1
    left = [one for one in before if is_storable(watcher.arena, *one)]
    assert set(left) == {one for one in before if one in expected_storable(loads)}
    assert len(left) < len(before)


def test_what_was_loaded_is_told_of_like_anything_sealed(loads: Pair) -> None:
    tell(loads, 4, 4)
    begun = load(loads, 17)
    watcher = Watcher(loads)
    assert watcher.look() == []
    whole(loads, begun)
    assert [is_block for is_block, _, _ in watcher.look()] == [True] * 4 + [False]


def test_events_that_were_overwritten_before_they_were_looked_at_are_missed() -> None:
    case = replace(CASES["loads"], ring_events=1 << 11)
    loads = Pair(case, Live(case))
    watcher = Watcher(loads)
    capacity = int(watcher.ring[RING_CAPACITY])
    found = np.zeros((4, FOUND_WORDS), dtype=np.int64)
    leave(loads, 9)
    while int(watcher.arena[META_LAST_SEQNO]) <= capacity:
        tell(loads, 40)
    behind = int(watcher.arena[META_LAST_SEQNO]) - capacity
    watcher.cursor[0] = behind - 1
    assert find_sealed(watcher.arena, watcher.ring, watcher.cursor, found) == -1
    assert watcher.cursor[0] == watcher.arena[META_LAST_SEQNO]  # from here on, all is seen
    watcher.cursor[0] = behind  # the oldest event that is still there is the next
    assert find_sealed(watcher.arena, watcher.ring, watcher.cursor, found) >= 0
    leave(loads, 13)
    assert len([one for one in watcher.look() if one[0]]) == 1
