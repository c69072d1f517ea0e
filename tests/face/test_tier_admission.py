"""Admission of loads: what is promised to a request that loads, whatever becomes of its load."""

import threading
from contextlib import suppress
from typing import Any

import pytest

from kvstrata import AdmissionConfig, CacheManager, Deferred, OutOfPages, Sequence
from kvstrata.core.admission_terms import AdmissionStats
from kvstrata.core.planner import Rates
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_STATE
from tests.cases.support import asked, check_hit, compute
from tests.face.tiered import (
    FULL,
    SIZE,
    Clock,
    corner,
    hook,
    settled,
    stored,
    text,
    tiering_of,
    until,
)

BLOCKS = 4
PROMPT = text(("p", BLOCKS * SIZE + 3))
OUTPUT = 5 * SIZE
SLOW = Rates(tokens_per_s=100, bytes_per_s=10**9)
"""A machine that had rather wait for a load than compute."""
LOADS = AdmissionConfig(max_recoveries=1)


def admission_of(cache: CacheManager) -> AdmissionStats:
    found = cache.stats().admission
    assert found is not None
    return found


def blocks_to_come(cache: CacheManager) -> int:
    """Blocks that the request still needs when it begins with all of its prefix."""
    return -(-(len(PROMPT) + OUTPUT) // SIZE) - BLOCKS


def test_the_promise_holds_from_the_load_to_the_end() -> None:
    with corner(FULL) as place:
        stored(place, PROMPT)
        with place.opened(admission=LOADS) as cache:
            wanted = asked(PROMPT, max_new_tokens=OUTPUT)
            with pytest.raises(Deferred):
                cache.begin(cache.match(wanted))
            assert admission_of(cache).recoveries == 1
            settled(cache)
            assert admission_of(cache).recoveries == 0
            sequence = cache.begin(cache.match(wanted))
            check_hit(cache, sequence)
            assert sequence.plan.resume_at == BLOCKS * SIZE
            assert admission_of(cache).promised_blocks == blocks_to_come(cache)
            sequence.finish()
            assert admission_of(cache).promised_blocks == 0


def test_a_begin_that_fails_after_its_load_keeps_no_stale_promise() -> None:
    """All rows are taken when the load is there: nothing begins; later it begins in full."""
    with corner(FULL) as place:
        stored(place, PROMPT, max_sequences=1)
        tiers = place.tiers(max_loads=1)
        with place.opened("another", admission=LOADS, max_sequences=1, tiers=tiers) as cache:
            wanted = asked(PROMPT, max_new_tokens=OUTPUT)
            with pytest.raises(Deferred):
                cache.begin(cache.match(wanted))
            settled(cache)
            others = fill_all_rows(cache)
            with pytest.raises(OutOfPages):
                cache.begin(cache.match(wanted))
            for other in others:
                other.cancel()
            sequence = cache.begin_when_ready(wanted)
            assert sequence.plan.resume_at == BLOCKS * SIZE
            assert admission_of(cache).promised_blocks == blocks_to_come(cache)
            sequence.finish()
            assert admission_of(cache).promised_blocks == 0


def fill_all_rows(cache: CacheManager) -> list[Sequence]:
    """Begin until there is no row left."""
    found: list[Sequence] = []
    with suppress(OutOfPages):
        while len(found) < 64:
            found.append(cache.begin(cache.match(asked(text((f"o{len(found)}", 20))))))
    assert 0 < len(found) < 64
    return found


def test_a_load_in_part_leaves_a_whole_promise() -> None:
    """The third block is bad: what was promised for it is promised again."""
    with corner(FULL) as place:
        stored(place, PROMPT)
        place.file_of(PROMPT, 3).write_bytes(b"")
        with place.opened(admission=LOADS) as cache:
            sequence = cache.begin_when_ready(asked(PROMPT, max_new_tokens=OUTPUT))
            check_hit(cache, sequence)
            assert sequence.plan.resume_at == 2 * SIZE
            assert admission_of(cache).promised_blocks == blocks_to_come(cache) + 2
            compute(cache, sequence)
            sequence.finish()
            assert admission_of(cache).promised_blocks == 0


@pytest.mark.parametrize("how", ["withdrawn", "dropped"])
def test_a_load_that_goes_on_without_its_owner_is_still_counted(how: str) -> None:
    """Its bytes are in recovery as long as they are on their way: no other load may begin."""
    with corner(FULL) as place:
        other = text(("q", BLOCKS * SIZE + 3))
        stored(place, PROMPT, other)
        with place.opened(admission=LOADS, rates=SLOW) as cache:
            store, gate = hook(cache), threading.Event()
            store.hooks["read"] = lambda _: gate.wait(10)
            owner, joined, third = asked(PROMPT), asked(PROMPT), asked(other)
            for wanted in (owner, joined):
                with pytest.raises(Deferred):
                    cache.begin(cache.match(wanted))
            if how == "withdrawn":
                cache.withdraw(owner)
            del owner, wanted
            for _ in range(3):
                with pytest.raises(Deferred, match="admission"):
                    cache.begin(cache.match(third))
            assert admission_of(cache).recoveries == 1
            assert tiering_of(cache).stats().loads_in_flight == 1
            gate.set()
            for one in (joined, third):
                sequence = cache.begin_when_ready(one)
                assert sequence.plan.resume_at == BLOCKS * SIZE
                sequence.cancel()
            stats = admission_of(cache)
            assert (stats.recoveries, stats.promised_blocks, stats.waiting) == (0, 0, 0)


def test_a_load_past_its_deadline_is_counted_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its owner begins cold with a promise of its own; the pages drain under the old one."""
    clock = Clock()
    clock.set(monkeypatch)
    with corner(FULL) as place:
        stored(place, PROMPT)
        with place.opened(admission=LOADS) as cache:
            store, gate = hook(cache), threading.Event()
            store.hooks["read"] = lambda _: gate.wait(20)
            wanted = asked(PROMPT, max_new_tokens=OUTPUT)
            with pytest.raises(Deferred):
                cache.begin(cache.match(wanted))
            until(lambda: store.count("read") > 0)
            clock.now_s += 61.0
            cache.apply_completions()
            sequence = cache.begin(cache.match(wanted))
            assert sequence.plan.is_cold
            assert admission_of(cache).recoveries == 1
            assert admission_of(cache).promised_blocks >= blocks_to_come(cache) + BLOCKS
            gate.set()
            settled(cache)
            stats = admission_of(cache)
            assert (stats.recoveries, stats.promised_blocks) == (0, blocks_to_come(cache) + BLOCKS)
            sequence.cancel()
            assert admission_of(cache).promised_blocks == 0


def test_what_was_prefetched_and_not_fetched_away_is_not_promised_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    clock.set(monkeypatch)
    with corner(FULL) as place:
        stored(place, PROMPT)
        with place.opened() as cache:
            wanted = asked(PROMPT, max_new_tokens=OUTPUT)
            assert cache.prefetch(wanted)
            settled(cache)
            assert admission_of(cache).promised_blocks == blocks_to_come(cache)
            clock.now_s += 6.0
            cache.apply_completions()
            assert admission_of(cache).promised_blocks == 0
            assert cache.stats().sequences == 0
            sequence = cache.begin(cache.match(wanted))
            assert sequence.plan.resume_at == BLOCKS * SIZE
            assert admission_of(cache).promised_blocks == blocks_to_come(cache)
            sequence.cancel()


def num_draining(cache: CacheManager) -> int:
    states = cache.tables.pages[:, PAGE_STATE]
    return int((states == PageState.DRAINING).sum())


def test_a_batch_that_is_read_late_writes_no_page_that_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given up while its files are read at once: its pages are nobody's until that has ended."""
    clock = Clock()
    clock.set(monkeypatch)
    with corner(FULL) as place:
        stored(place, PROMPT)
        with place.opened(admission=LOADS) as cache:
            store, gate, begun = hook(cache), threading.Event(), threading.Event()

            def late(*arguments: Any) -> Any:
                begun.set()
                gate.wait(20)
                return store.inner.read_many(*arguments)

            monkeypatch.setattr(store, "read_many", late)
            wanted = asked(PROMPT, max_new_tokens=OUTPUT)
            with pytest.raises(Deferred):
                cache.begin(cache.match(wanted))
            assert begun.wait(20)
            clock.now_s += 61.0
            cache.apply_completions()
            draining = num_draining(cache)
            assert draining
            sequence = cache.begin(cache.match(wanted))
            assert sequence.plan.is_cold
            assert num_draining(cache) == draining
            gate.set()
            settled(cache)
            assert not num_draining(cache)
            assert cache.scrub(1 << 30).bad == 0
            sequence.cancel()
