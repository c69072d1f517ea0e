"""A catalogue of nonsense, answers that come while a manager closes, reads that never end."""

import sqlite3
import threading
from pathlib import Path

import pytest

from kvstrata import CacheManager, TiersConfig
from kvstrata.core.events import EventType
from kvstrata.core.planner import Rates
from tests.cases.support import asked, check_hit, prefill, text

from .test_tiering import BLOCKS, PROMPT, SIZE, corner, stored
from .tiered import FULL, hook, served, tiering_of, told, until, use_bucket

SLOW = Rates(tokens_per_s=100, bytes_per_s=10**9)
ROWS = {
    "key of two bytes": "key = x'0102'",
    "key of 18 bytes": "key = x'0102030405060708090a0b0c0d0e0f101112'",
    "key of text": "key = 'abcdefghabcdefgh'",
    "position below zero": "position = -1",
    "position of 48 bits": "position = 281474976710656",
    "position of text": "position = 'abc'",
}


@pytest.mark.parametrize("change", ROWS.values(), ids=ROWS)
def test_rows_that_are_none_are_passed_over(change: str) -> None:
    """The catalogue is an index that anybody may have written; the store is the truth."""
    with corner() as place:
        stored(place, PROMPT)
        file: Path = place.root / "disk" / "catalogue.sqlite"
        with sqlite3.connect(file) as database:
            assert database.execute(f"update kvstrata_objects set {change}").rowcount > BLOCKS
        with place.opened("another log", rates=SLOW) as cache:
            assert served(cache, PROMPT) == BLOCKS * SIZE, "found by name"
            stats = cache.tier_stats()
            assert stats is not None
            assert stats.catalogue_errors > 0
            assert stats.stored["disk"] == {"blocks": BLOCKS, "checkpoints": 1}


def test_a_lookup_answered_while_the_manager_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    with corner() as place:
        tiers = TiersConfig((use_bucket(place, monkeypatch),), catalogue="")
        stored(place, PROMPT, tiers=tiers, log="first")
        settings = place.config(tiers=tiers, rates=SLOW)
        cache = CacheManager.open(place.layout, settings, place.root / "second", "private")
        store = hook(cache)
        pause = threading.Event()
        store.hooks["size"] = lambda _: pause.wait(0.05)
        wanted = asked(PROMPT)
        assert cache.prefetch(wanted)
        until(lambda: store.count("size") > 0)
        cache.close()
        assert cache.stats().sequences == 0, "no load was begun"


def test_a_read_that_outlives_its_manager_writes_no_page_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next manager of this process does not take the pools that it may still write."""
    monkeypatch.setattr("kvstrata.tiering._CLOSE_S", 0.1)
    monkeypatch.setattr("kvstrata.tiers.workers.JOIN_S", 0.1)
    with corner(FULL) as place:
        stored(place, PROMPT)
        let_go = threading.Event()

        def open_again() -> CacheManager:
            settings = place.config(blocks=12, rates=SLOW, tiers=place.tiers(spill="never"))
            return CacheManager.open(place.layout, settings, place.root / "log 2", "shared")

        first = open_again()
        store = hook(first)
        store.hooks["read"] = lambda _: let_go.wait(60)
        wanted = asked(PROMPT)
        assert first.prefetch(wanted)
        until(lambda: store.count("read") > 0)
        first.close()
        with open_again() as second:
            assert second.recovery is not None
            assert not second.recovery.log.bytes_trusted
            other = text(("other", 11 * SIZE + 3))
            sequence = prefill(second, other)
            let_go.set()
            until(lambda: not tiering_of(first).workers.stats().running["load"])
            sequence.finish()
            hit = second.begin(second.match(asked(other)))
            assert hit.plan.resume_at == 11 * SIZE
            check_hit(second, hit)
            hit.cancel()


def test_what_was_not_written_whole_when_its_manager_closed_is_not_said_to_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some of its objects may have their names, but nobody has made those durable."""
    monkeypatch.setattr("kvstrata.tiering._CLOSE_S", 0.1)
    monkeypatch.setattr("kvstrata.tiers.workers.JOIN_S", 0.1)
    with corner() as place:
        let_go = threading.Event()
        cache = CacheManager.open(
            place.layout,
            place.config(tiers=place.tiers(max_spills=1)),
            place.root / "log",
            "private",
        )
        store = hook(cache)
        store.hooks["put"] = lambda _: store.count("put") > 1 and let_go.wait(60)
        prefill(cache, PROMPT).finish()
        until(lambda: cache.apply_completions() or store.count("put") > 1)
        cache.close()
        let_go.set()
        until(lambda: not tiering_of(cache).workers.stats().running["spill"])
        assert place.files(), "one was written"
        with place.opened(tiers=place.tiers("elsewhere", spill="never")) as again:
            assert not told(again, EventType.OBJECT_STORED)
