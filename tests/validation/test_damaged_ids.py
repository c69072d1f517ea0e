"""Ids that name nothing: beyond their table, or of no unit at all. Named, and never followed."""

from collections.abc import Callable

import numpy as np
import pytest

from kvstrata import CacheManager, InvariantViolation
from kvstrata.core.states import PageState
from kvstrata.core.words import HOLDER_TAINTED, PAGE_NEXT, PAGE_STATE, POOL_COUNTS

from .support import WANTED, filled, open_cache, page_row, pages_of


def a_place_beyond_the_images(cache: CacheManager) -> None:
    places, image = cache.tables.images.places, cache.match(WANTED).checkpoint[0]
    places[np.flatnonzero(places & 0xFFFF_FFFF == image)] += 1000


def a_slot_beyond_the_pool(cache: CacheManager) -> None:
    pages_of(cache, WANTED, "c4", 2)[0] = 10**6


@pytest.mark.parametrize("damage", [a_place_beyond_the_images, a_slot_beyond_the_pool])
@pytest.mark.parametrize("call", ["explain", "begin", "check_integrity"])
def test_an_id_beyond_its_table(damage: Callable[[CacheManager], None], call: str) -> None:
    cache = filled()
    damage(cache)
    if call == "check_integrity":
        with pytest.raises(InvariantViolation):
            cache.check_integrity()
    elif call == "explain":
        assert cache.explain(WANTED).resume_at < 80
    else:
        assert cache.begin(cache.match(WANTED)).resumed_at < 80


def test_a_resurrected_page_that_a_scrub_finds() -> None:
    """It is nobody's: no sequence stands on it, now or later."""
    cache = open_cache()
    slot = int(page_row(cache, "c4", 0)[PAGE_NEXT])
    page_row(cache, "c4", slot)[PAGE_STATE] = PageState.SEALED
    cache.tables.pools[0, POOL_COUNTS + PageState.FREE] -= 1
    cache.tables.pools[0, POOL_COUNTS + PageState.SEALED] += 1
    cache.scrub(1 << 30)
    assert not cache.tables.holders[1:, HOLDER_TAINTED].any()
