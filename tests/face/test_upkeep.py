"""Upkeep at the beginning of calls: digests and scrubs by a budget of bytes a second."""

import time
from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager, ConfigError, ScrubProgress
from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import META_COUNTS
from kvstrata.eventstore.log import read_events
from kvstrata.upkeep import SLICE_BYTES, Upkeep

from .support import Place, check_sums, config, hit, memory_manager, request, serve


class Calls:
    """Stands for the manager: counts what it is asked for; a clock that is set by hand."""

    def __init__(self, slice_bytes: int = SLICE_BYTES, scrub_bytes: int | None = None) -> None:
        self.now_s = 0.0
        self.digests: list[float] = []
        self.scrubs: list[tuple[float, int]] = []
        self._slice_bytes = slice_bytes
        self._scrub_bytes = scrub_bytes

    def log_slice_digest(self) -> int:
        self.digests.append(self.now_s)
        return self._slice_bytes

    def scrub_next(self, max_bytes: int) -> int:
        self.scrubs.append((self.now_s, max_bytes))
        return max_bytes if self._scrub_bytes is None else self._scrub_bytes

    def upkeep(self, digest_bytes_per_s: int, scrub_bytes_per_s: int) -> Upkeep:
        wanted: Any = self
        return Upkeep(wanted, digest_bytes_per_s, scrub_bytes_per_s, lambda: self.now_s)

    def run(self, upkeep: Upkeep, seconds: float, every_s: float = 0.001) -> None:
        for _ in range(round(seconds / every_s)):
            self.now_s += every_s
            upkeep.look()


@pytest.mark.parametrize("rate", [1 << 20, 8 << 20, 1 << 26])
def test_the_budget_is_kept(rate: int) -> None:
    calls = Calls()
    calls.run(calls.upkeep(rate, rate), 10.0)
    digested = len(calls.digests) * SLICE_BYTES / 10
    scrubbed = sum(num_bytes for _, num_bytes in calls.scrubs) / 10
    for done in (digested, scrubbed):
        assert 0.4 * rate < done < 1.05 * rate
    assert max(num_bytes for _, num_bytes in calls.scrubs) <= 1 << 22


def test_a_long_pause_is_not_made_up_for() -> None:
    calls = Calls()
    upkeep = calls.upkeep(1 << 20, 1 << 20)
    calls.now_s = 100.0
    for _ in range(50):
        upkeep.look()
    assert len(calls.digests) == 1
    assert len(calls.scrubs) == 1


def test_nothing_is_done_without_a_budget() -> None:
    calls = Calls()
    calls.run(calls.upkeep(0, 0), 5.0)
    assert not calls.digests
    assert not calls.scrubs


def test_with_nothing_sealed_it_looks_again_later() -> None:
    calls = Calls(scrub_bytes=0)
    calls.run(calls.upkeep(0, 1 << 30), 1.0)
    assert 5 < len(calls.scrubs) < 12


def step_until(cache: CacheManager, seconds: float) -> None:
    """An engine at work: calls, each of which may do some upkeep."""
    until_s = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until_s:
        serve(cache, request(f"beside {number % 3}", 20))
        number += 1


@pytest.mark.parametrize("group", ["full", "swa"])
def test_a_flipped_bit_is_found_within_one_period(place: Place, group: str) -> None:
    rate = 1 << 20
    with place.open("private", scrub_bytes_per_s=rate, verify_hits="never") as cache:
        serve(cache, request("kept", 90))
        pages = cache.sealed_pages(request("kept", 90), 4)
        assert set(pages) == {"full", "swa"}
        assert cache.pools is not None
        cache.pools.storage(group)[pages[group], 5] ^= 4
        round_bytes, flipped_at = cache.scrub_progress().sealed_bytes, cache.stats().last_seqno
        period_s = round_bytes / rate
        assert period_s < 1.0
        step_until(cache, 2 * period_s + 0.3)
        assert cache.arena[META_COUNTS + EventType.PAGE_QUARANTINED] == 1
        assert cache.validator.failures[0, Reason.CHECKSUM_MISMATCH.name, group] == 1
        assert hit(cache, request("kept", 90))[0] < 80
        assert cache.scrub_progress().rounds >= 1
        check_sums(cache)
        cache.flush()
        events = np.concatenate([*read_events(place.directory, flipped_at + 1)])
        found_at = events["seqno"][events["type"] == EventType.PAGE_QUARANTINED][0]
        scrubs = events[(events["type"] == EventType.SCRUBBED) & (events["seqno"] < found_at)]
        assert scrubs["b"].sum() <= round_bytes


def test_progress_is_told(cache: CacheManager, place: Place) -> None:
    with pytest.raises(ConfigError, match="metadata alone"):
        cache.scrub_progress()
    with place.open("private") as with_pools:
        assert with_pools.scrub_progress() == ScrubProgress(0, 0, 0, 0, 0)
        assert with_pools.scrub_next(1 << 20) == 0
        serve(with_pools, request("kept", 90))
        sealed = with_pools.scrub_progress().sealed_pages
        sizes = [with_pools.layout.page_bytes(group) for group in range(2)]
        with_pools.scrub(sizes[0] * 2)
        assert with_pools.scrub_progress() == ScrubProgress(
            0, 2, 2 * sizes[0], sealed, with_pools.scrub_progress().sealed_bytes
        )
        while not with_pools.scrub(sizes[0] * 2).wrapped:
            pass
        progress = with_pools.scrub_progress()
        assert (progress.rounds, progress.pages, progress.num_bytes) == (1, 0, 0)
        assert progress.to_json()["sealed_pages"] == sealed
        assert with_pools.scrub(1 << 30).num_bytes == progress.sealed_bytes


def test_settings_are_checked() -> None:
    for name in ("digest_bytes_per_s", "scrub_bytes_per_s"):
        for wrong in (-1, 1.5):
            with pytest.raises(ConfigError, match=name):
                config(**{name: wrong})


def test_a_digest_covers_each_slice_once(cache: CacheManager) -> None:
    done = cache.log_slice_digest(1 << 40)
    assert done == cache.arena.nbytes
    num_slices = -(-cache.arena.nbytes // SLICE_BYTES)
    assert cache.arena[META_COUNTS + EventType.SLICE_DIGEST] == num_slices
    assert memory_manager(digest_bytes_per_s=1).digest() != cache.digest()
    assert np.count_nonzero(cache.arena[META_COUNTS : META_COUNTS + 64]) >= 1
