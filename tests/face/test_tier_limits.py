"""Caps and times to live of the tiers: what goes, in which order, and who knows first."""

import shutil
import threading
import time
from typing import Any

import pytest

from kvstrata import CacheManager, ConfigError
from kvstrata.core.events import EventType
from kvstrata.core.planner import Rates
from kvstrata.tiers.config import TierConfig, TiersConfig
from tests.face.tiered import (
    FULL,
    LAYOUT,
    SIZE,
    Clock,
    Corner,
    asked,
    begun,
    corner,
    failed,
    hook,
    peek,
    served,
    settled,
    text,
    tiering_of,
    told,
    until,
)

SLOW = Rates(tokens_per_s=100, bytes_per_s=10**9)
BLOCKS = 3


def prompt(number: int) -> Any:
    return text((f"p{number}", BLOCKS * SIZE + 1))


def limited(place: Corner, **limits: Any) -> TiersConfig:
    return TiersConfig((TierConfig(str(place.root / "disk"), name="disk", **limits),))


def object_bytes(place: Corner) -> int:
    with place.opened("size") as cache:
        return tiering_of(cache).object_bytes(False)


def a_round(cache: CacheManager, clock: Clock) -> None:
    """The limits are enforced, by a worker."""
    before = tiering_of(cache).stats().trimmed.get("rounds", 0)
    clock.now_s += 6.0

    def done() -> bool:
        cache.apply_completions()
        return tiering_of(cache).stats().trimmed.get("rounds", 0) > before

    until(done)
    cache.apply_completions()


def used_bytes(place: Corner) -> int:
    return sum(path.stat().st_size for path in place.files())


def test_a_tier_stays_under_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used last stays, whole prefixes are cut from their ends, and the rest is cold."""
    clock = Clock()
    clock.set(monkeypatch)
    with corner(FULL) as place:
        cap = 10 * object_bytes(place)
        tiers = limited(place, cap_bytes=cap)
        with place.opened(tiers=tiers, rates=SLOW) as cache:
            for number in range(8):
                served(cache, prompt(number))
                settled(cache)
                a_round(cache, clock)
                assert used_bytes(place) <= cap
            removed = told(cache, EventType.OBJECT_REMOVED)
            assert {one["reason"] for one in removed} == {"OVER_CAP"}
            stats = tiering_of(cache).stats()
            assert stats.stored["disk"]["blocks"] == len(place.files()) == 10
            assert stats.trimmed["over_cap"] == len(removed) == 8 * BLOCKS - 10
        with place.opened("another", tiers=tiers, rates=SLOW) as cache:
            hits = [peek(cache, prompt(number)) // SIZE for number in range(8)]
            assert hits == [0, 0, 0, 0, 1, 3, 3, 3]
            assert failed(cache) == []


def test_a_close_leaves_a_tier_under_its_cap() -> None:
    """An engine that lives for a moment keeps the limits too, and its log knows what went."""
    with corner(FULL) as place:
        cap = 4 * object_bytes(place)
        tiers = limited(place, cap_bytes=cap)
        with place.opened(tiers=tiers, rates=SLOW) as cache:
            for number in range(4):
                served(cache, prompt(number))
            settled(cache)
            assert len(place.files()) == 4 * BLOCKS
        assert used_bytes(place) <= cap
        with place.opened(tiers=tiers, rates=SLOW) as cache:
            assert tiering_of(cache).stats().stored["disk"]["blocks"] == 4
            assert sum(peek(cache, prompt(number)) for number in range(4)) == 4 * SIZE
            assert failed(cache) == []


def test_the_index_forgets_before_the_bytes_go(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    clock.set(monkeypatch)
    with corner(FULL) as place:
        tiers = limited(place, cap_bytes=2 * object_bytes(place))
        with place.opened(tiers=tiers, rates=SLOW) as cache:
            known: list[int] = []
            hook(cache).hooks["delete"] = lambda _: known.append(
                tiering_of(cache).stats().stored["disk"]["blocks"]
            )
            served(cache, prompt(1))
            settled(cache)
            a_round(cache, clock)
            assert known == [2]
            assert len(place.files()) == 2


def test_what_hits_on_the_device_is_in_use_below_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first prompt is stored first and used last: it is not what goes."""
    clock = Clock()
    clock.set(monkeypatch)
    with corner(FULL) as place:
        tiers = limited(place, cap_bytes=2 * BLOCKS * object_bytes(place))
        with place.opened(tiers=tiers, rates=SLOW) as cache:
            for number in range(3):
                served(cache, prompt(number))
                settled(cache)
                time.sleep(0.002)
            served(cache, text(("p0", BLOCKS * SIZE), ("q", 2)))
            a_round(cache, clock)
        with place.opened("another", tiers=tiers, rates=SLOW) as cache:
            assert [peek(cache, prompt(number)) // SIZE for number in range(3)] == [3, 0, 3]


def test_each_kind_lives_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints go first; the blocks are used again and stay."""
    clock = Clock()
    clock.set(monkeypatch)
    with corner(LAYOUT) as place:
        tiers = limited(place, checkpoint_ttl_s=0.05, block_ttl_s=3600.0)
        with place.opened(tiers=tiers, rates=SLOW) as cache:
            served(cache, text(("p", 9 * SIZE + 1)))
            settled(cache)
            time.sleep(0.06)
            a_round(cache, clock)
            (gone,) = told(cache, EventType.OBJECT_REMOVED)
            assert (gone["reason"], gone["checkpoint"]) == ("EXPIRED", 1)
            assert len(place.files()) == 9
            assert tiering_of(cache).stats().trimmed["expired"] == 1
        with place.opened("another", tiers=tiers, rates=SLOW) as cache:
            sequence = begun(cache, text(("p", 9 * SIZE + 1)))
            assert sequence.plan.source == "replay"
            assert sequence.plan.reused_tokens == 9 * SIZE
            sequence.cancel()


def test_limits_need_a_catalogue() -> None:
    """Without one nobody knows what a tier holds: said at once, not found out on a full disk."""
    with corner(FULL) as place:
        tiers = TiersConfig((TierConfig(str(place.root / "disk"), cap_bytes=1000),), catalogue="")
        with pytest.raises(ConfigError, match="expected a catalogue beside cap_bytes"):
            CacheManager.open(FULL, place.config(tiers=tiers), place.root / "log", "private")
        books = CacheManager.open(FULL, place.config(tiers=tiers), place.root / "books")
        assert books.match(asked(prompt(1))).is_cold
        books.close()


def test_a_place_that_cannot_be_used_is_told_at_the_opening() -> None:
    """Not amid the first request that would be stored there; and nothing of the log is lost."""
    with corner(FULL) as place:
        tiers = TiersConfig((TierConfig(str(place.root / "disk")),), catalogue="")
        with place.opened(tiers=tiers) as cache:
            served(cache, prompt(1))
            settled(cache)
        shutil.rmtree(place.root / "disk")
        (place.root / "disk").write_text("a file")
        before = threading.active_count()
        with pytest.raises(ConfigError, match="expected a folder to keep objects in, found"):
            CacheManager.open(FULL, place.config(tiers=tiers), place.root / "log", "private")
        assert threading.active_count() == before
        (place.root / "disk").unlink()
        with place.opened(tiers=tiers) as cache:
            served(cache, prompt(1))
