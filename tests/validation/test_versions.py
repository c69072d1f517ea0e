"""What runs across a change of reader publishes nothing; odd words of the engine spoil nothing."""

from collections.abc import Callable

import numpy as np
import pytest

from kvstrata import CacheManager, ConfigError, abi_of
from tests.face.support import serve

from .support import LAYOUT, WANTED, open_cache, slot_of


def another_mapping(cache: CacheManager) -> None:
    cache.register_mapping("c4", "another")


def another_kernel(cache: CacheManager) -> None:
    cache.register_abi("c4", abi_of(LAYOUT, "c4", kernel_version="2"))


@pytest.mark.parametrize("change", [another_mapping, another_kernel])
def test_a_page_begun_before_and_sealed_after(change: Callable[[CacheManager], None]) -> None:
    """Half of its entries are of the old version, its stamp would be of the new."""
    cache = open_cache()
    sequence = cache.begin(cache.match(WANTED))
    cache.reserve([sequence.id], [8]).commit()
    change(cache)
    for end in (80, 90):
        cache.reserve([sequence.id], [end - sequence.position]).commit()
    sequence.finish()
    assert cache.begin(cache.match(WANTED)).plan.is_cold


def test_a_page_written_again_that_is_no_index() -> None:
    """Either the word is refused, or the hit."""
    cache = open_cache()
    serve(cache, WANTED)
    try:
        cache.mark_dirty("c4", [slot_of(cache, WANTED, "c4", 2)])
    except ConfigError:
        return
    assert cache.begin(cache.match(WANTED)).plan.reused_tokens < 80


def test_an_impossible_rate_spoils_the_mean() -> None:
    """Refused, it leaves no trace."""
    cache = open_cache()
    with pytest.raises(ConfigError):
        cache.observe_compute(10**30, 1.0)
    cache.observe_compute(5_000, 1.0)
    assert np.isclose(cache.explain(WANTED).tokens_per_s, 5_000, rtol=0.2)
