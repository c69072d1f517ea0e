"""Scrubbing: every sealed page's turn comes, within a budget, and what is bad is withdrawn."""

import pytest

from kvstrata import CacheManager, ConfigError
from kvstrata.core.events import EventType, Reason
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_STATE
from tests.face.support import check_sums, hit, memory_manager, prefill, request, serve
from tests.system.seven_groups import PAGE_BYTES

from .support import GROUPS, WANTED, Log, filled, flip, open_cache, page_row, slot_of

SCRUBBED = EventType.SCRUBBED


@pytest.fixture
def cache() -> CacheManager:
    return filled()


def sealed(cache: CacheManager) -> int:
    pools = cache.stats().pools
    return sum(pool.pages["sealed_idle"] + pool.pages["sealed_pinned"] for pool in pools)


def test_all_at_once(cache: CacheManager) -> None:
    log = Log(cache)
    report = cache.scrub(1 << 30)
    assert (report.pages, report.bad, report.wrapped) == (sealed(cache), 0, True)
    ((_, payload),) = log.new(SCRUBBED)
    assert (payload["pages"], payload["bytes"], payload["bad"]) == (
        report.pages,
        report.num_bytes,
        0,
    )
    assert report.num_bytes == sum(
        PAGE_BYTES[pool.group] * (pool.pages["sealed_idle"] + pool.pages["sealed_pinned"])
        for pool in cache.stats().pools
    )


@pytest.mark.parametrize("max_bytes", [1, 64, 700, 5_000, 20_000])
def test_every_page_has_its_turn(cache: CacheManager, max_bytes: int) -> None:
    """Once around looks at each page once, in calls that keep to the budget."""
    largest, pages = max(PAGE_BYTES.values()), 0
    for _ in range(2 * sealed(cache)):
        report = cache.scrub(max_bytes)
        assert report.num_bytes <= max(max_bytes, largest)
        assert report.pages or report.wrapped
        pages += report.pages
        if report.wrapped:
            break
    assert pages == sealed(cache)


@pytest.mark.parametrize("group", GROUPS)
def test_a_flipped_byte_anywhere(cache: CacheManager, group: str) -> None:
    slot, size = slot_of(cache, WANTED, group, 4), PAGE_BYTES[group]
    log = Log(cache)
    flip(cache, group, slot, size - 1, 128)
    bad = 0
    for _ in range(2 * sealed(cache)):
        report = cache.scrub(1_000)
        bad += report.bad
        if report.wrapped:
            break
    assert bad == 1
    ((event, payload),) = log.new(EventType.VALIDATION_FAILED)
    assert (GROUPS[event["group"]], event["page"]) == (group, slot)
    assert (event["reason"], payload["layer"]) == (Reason.CHECKSUM_MISMATCH, 0)
    assert page_row(cache, group, slot)[PAGE_STATE] == PageState.FREE
    assert cache.match(WANTED).reused_tokens < 80 or cache.match(WANTED).source == "replay"
    check_sums(cache)
    serve(cache, WANTED)
    assert hit(cache, WANTED) == (80, 80)


def test_open_pages_are_left_alone(cache: CacheManager) -> None:
    """They change all the time, and have no checksum yet."""
    assert cache.pools is not None
    sequence = prefill(cache, request("running", 60))
    for name, slot in cache.image_slots(sequence).items():
        cache.pools.storage(name)[slot].random_()
    cache.pools.storage("c4")[int(cache.block_slots(sequence, "c4")[-1])].random_()
    assert cache.scrub(1 << 30).bad == 0


def test_several_pages_of_one_unit(cache: CacheManager) -> None:
    for group in ("c4", "c16", "c4.index"):
        flip(cache, group, slot_of(cache, WANTED, group, 4))
    report = cache.scrub(1 << 30)
    assert report.bad == 3
    check_sums(cache)
    assert cache.match(WANTED).history_tokens == 64
    assert cache.scrub(1 << 30).bad == 0


def test_several_pages_of_one_unit_that_is_held(cache: CacheManager) -> None:
    reader = cache.begin(cache.match(WANTED))
    for group in ("c4", "c16", "c4.index"):
        flip(cache, group, slot_of(cache, WANTED, group, 4))
    assert cache.scrub(1 << 30).bad == 3
    assert cache.scrub(1 << 30).bad == 0
    check_sums(cache)
    reader.finish()
    check_sums(cache)


def test_nothing_is_there() -> None:
    cache = open_cache()
    report = cache.scrub(1 << 30)
    assert (report.pages, report.num_bytes, report.bad, report.wrapped) == (0, 0, 0, True)
    with pytest.raises(ConfigError, match="pools"):
        memory_manager().scrub(1)
