"""Statistics and the sum law, call by call in a busy history."""

from collections import Counter

import numpy as np

from kvstrata import CacheManager, Sequence
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    META_FREE_BLOCKS,
    META_FREE_IMAGES,
    META_IDLE_BLOCKS,
    META_IDLE_IMAGES,
    PAGE_CHECKSUM,
    PAGE_GENERATION,
    PAGE_STATE,
    PAGE_UNIT,
    UNIT_INDEXED,
    UNIT_REFS,
    UNIT_STATE,
)
from kvstrata.storage import BadPage

from .damage import FULL_POOL, indexed_blocks, row_of_page
from .support import LAYOUT, check_sums, memory_manager, pages_in, request, serve


def count_by_hand(cache: CacheManager) -> None:
    """The statistics, counted once more from the rows of the tables."""
    stats, tables = cache.stats(), cache.tables
    last_slot = 0
    for number, pool in enumerate(stats.pools):
        rows = tables.pages[last_slot + 1 : last_slot + pool.slots]
        last_slot += pool.slots
        states = Counter(PageState(int(state)).name.lower() for state in rows[:, PAGE_STATE])
        refs = (tables.blocks, tables.images)[number].rows[:, UNIT_REFS]
        sealed = [int(row[PAGE_UNIT]) for row in rows if row[PAGE_STATE] == PageState.SEALED]
        pinned = sum(1 for unit in sealed if refs[unit] > 0)
        expected = dict(states) | {"sealed_pinned": pinned, "sealed_idle": len(sealed) - pinned}
        expected.pop("sealed", None)
        assert {state: count for state, count in pool.pages.items() if count} == {
            state: count for state, count in expected.items() if count
        }
    for found, units, words in (
        (stats.blocks, tables.blocks, (META_FREE_BLOCKS, META_IDLE_BLOCKS)),
        (stats.images, tables.images, (META_FREE_IMAGES, META_IDLE_IMAGES)),
    ):
        rows = units.rows[1 : len(units.pages)]
        indexed = rows[:, UNIT_STATE] == UNIT_INDEXED
        assert found["total"] == len(rows)
        assert found["free"] == cache.arena[words[0]] == np.count_nonzero(rows[:, UNIT_STATE] == 0)
        assert found["idle"] == cache.arena[words[1]]
        assert found["idle"] == np.count_nonzero(indexed & (rows[:, UNIT_REFS] == 0))
        assert found["indexed"] == np.count_nonzero(indexed)
    assert sum(stats.events.values()) == stats.last_seqno


def test_a_busy_history_keeps_every_law() -> None:
    cache = memory_manager(slots={"full": 60, "swa": 16})
    dice = np.random.default_rng(5)
    running: list[Sequence] = []
    quarantined = 0
    for number in range(400):
        action = int(dice.integers(0, 8))
        if action == 0 and len(running) < 4:
            length = int(dice.integers(1, 160))
            running.append(cache.begin(cache.match(request(f"busy {number % 9}", length))))
        elif action == 1 and running:
            running.pop(int(dice.integers(0, len(running)))).finish()
        elif action == 2 and running:
            sequence = running.pop()
            step = cache.reserve([sequence.id], [int(dice.integers(1, 40))])
            sequence.cancel()
            step.commit(accepted=[0])
        elif action == 3 and number % 5 == 0:
            quarantined += quarantine_one(cache)
        elif running:
            run_one(cache, running, dice)
        check_sums(cache)
        if number % 10 == 0:
            count_by_hand(cache)
    events = cache.stats().events
    assert quarantined > 0
    assert events["page_quarantined"] == quarantined
    assert events["page_reserved"] > 200
    assert events["page_sealed"] > 50
    for sequence in running:
        sequence.cancel()
    count_by_hand(cache)
    for pool in cache.stats().pools:
        assert not {"reserved", "writing", "open", "draining"} & set(pages_in(cache, pool.group))
        assert pool.pages["sealed_pinned"] == 0


def run_one(cache: CacheManager, running: list[Sequence], dice: np.random.Generator) -> None:
    sequence = running[int(dice.integers(0, len(running)))]
    left = len(sequence.plan.request.tokens) - sequence.position
    size = left if left > 0 else 1
    step = cache.reserve([sequence.id], [size])
    if step.refused[0] or dice.integers(0, 6) == 0:
        step.abort()
    else:
        step.commit(tokens=None if left > 0 else [int(dice.integers(0, 9))])


def quarantine_one(cache: CacheManager) -> int:
    """Withdraw the page of some indexed block."""
    blocks = indexed_blocks(cache)
    if not blocks:
        return 0
    slot = int(cache.tables.blocks.pages[blocks[0], 0])
    page = row_of_page(cache, FULL_POOL, slot)
    checksum = int(page[PAGE_CHECKSUM])
    cache.quarantine(BadPage(0, slot, int(page[PAGE_GENERATION]), checksum, checksum ^ 1))
    return 1


def test_statistics_as_json(cache: CacheManager) -> None:
    serve(cache, request("one", 40))
    found = cache.stats().to_json()
    assert [pool["group"] for pool in found["pools"]] == [group.name for group in LAYOUT.groups]
    assert found["leases"] == found["sequences"] == found["ring_stalls"] == 0
    assert found["last_seqno"] == sum(found["events"].values())
