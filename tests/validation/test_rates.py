"""Observed rates: they change the choice, and are logged only where they moved by a tenth."""

import math

import pytest

from kvstrata import CacheManager, ConfigError, Rates
from kvstrata.core.events import EventType
from tests.face.support import serve

from .support import LAYOUT, WANTED, Log, open_cache

OBSERVED = EventType.RATES_OBSERVED


@pytest.fixture
def cache() -> CacheManager:
    """A prompt with a checkpoint at 80, which can also be replayed from 48."""
    cache = open_cache()
    serve(cache, WANTED)
    return cache


def rates(cache: CacheManager) -> tuple[int, int]:
    explanation = cache.explain(WANTED)
    return explanation.tokens_per_s, explanation.bytes_per_s


def test_defaults(cache: CacheManager) -> None:
    assert rates(cache) == (10_000, 10_000_000_000)
    assert rates(open_cache(rates=Rates(3, 4))) == (3, 4)


def test_they_change_the_choice(cache: CacheManager) -> None:
    """Where copying is slow a window is computed again; where computing is slow it is copied."""
    assert cache.match(WANTED).source == "checkpoint"
    saved_s = (80 - 48) / 10_000
    even = int(LAYOUT.image_bytes / saved_s)
    cache.observe_copy(even // 2, 1.0)
    assert cache.match(WANTED).source == "replay"
    cache.observe_compute(1_000, 1.0)
    assert cache.match(WANTED).source == "checkpoint"
    ways = {way.source: way for way in cache.explain(WANTED).ways}
    assert ways["checkpoint"].cost_ms == pytest.approx(
        (10 / 1_000 + LAYOUT.image_bytes / (even // 2)) * 1e3, rel=1e-3
    )
    assert ways["replay"].cost_ms == pytest.approx(42.0)
    assert ways["cold"].cost_ms == pytest.approx(90.0)


def test_logged_where_moved_by_more_than_a_tenth(cache: CacheManager) -> None:
    log = Log(cache)
    cache.observe_compute(10_900, 1.0)
    assert not log.new(OBSERVED)
    assert rates(cache)[0] == 10_000
    cache.observe_compute(20_000, 1.0)  # a fifth of the way: 12 720
    ((_, payload),) = log.new(OBSERVED)
    assert payload["tokens_per_s"] == rates(cache)[0] == 12_720
    assert payload["bytes_per_s"] == 10_000_000_000
    for _ in range(50):
        cache.observe_compute(13_900, 1.0)
    assert not log.new(OBSERVED), "it moved by 9 per cent"
    for _ in range(50):
        cache.observe_compute(14_100, 1.0)
    ((_, payload),) = log.new(OBSERVED)
    assert 13_992 < payload["tokens_per_s"] <= 14_100
    before = cache.stats().events["rates_observed"]
    cache.observe_copy(10**10, 1.0)
    assert cache.stats().events["rates_observed"] == before


def test_a_slow_drift_is_not_missed(cache: CacheManager) -> None:
    """What is compared is the rate logged last, not the one before this observation."""
    rate = 10_000.0
    for _ in range(200):
        rate *= 1.01
        cache.observe_compute(int(rate), 1.0)
    assert rates(cache)[0] > 0.8 * rate
    assert rates(cache)[0] < rate


def test_one_of_each_kind(cache: CacheManager) -> None:
    cache.observe_compute(500, 0.1)
    cache.observe_copy(1_000_000, 0.5)
    assert rates(cache) == (5_000, 2_000_000)


def test_nothing_computed(cache: CacheManager) -> None:
    cache.observe_compute(0, 5.0)
    assert rates(cache)[0] == 1
    assert cache.match(WANTED).resume_at == 80


@pytest.mark.parametrize(
    ("amount", "seconds"), [(-1, 1.0), (1, 0.0), (1, -1.0), (1, math.nan)], ids=str
)
def test_refused(cache: CacheManager, amount: int, seconds: float) -> None:
    before = cache.digest()
    with pytest.raises(ConfigError):
        cache.observe_compute(amount, seconds)
    with pytest.raises(ConfigError):
        cache.observe_copy(amount, seconds)
    assert cache.digest() == before


def test_the_same_rates_are_no_event() -> None:
    log = Log(cache := open_cache())
    cache._come_up()
    assert not log.new(OBSERVED)
