"""Case TOC-03 further: completions that come while a sequence still has something in flight."""

import pytest

from kvstrata import CacheManager
from tests.face.support import pages_in

from .support import asked, layout_of, opened, text

FULL = layout_of(16)


def settle(cache: CacheManager) -> None:
    """A call that takes in what was reported; it begins and ends a sequence that has no page."""
    cache.begin(cache.match(asked(text(("settles", 5))))).cancel()


@pytest.mark.parametrize("cancelled", [False, True])
def test_toc_03_a_sequence_said_to_have_ended_while_in_flight(cancelled: bool) -> None:
    """Another request's call must not fail of it, nor may what was reported after it be lost."""
    with opened(FULL, 16) as cache:
        a = cache.begin(cache.match(asked(text(("a", 64)))))
        step = cache.reserve([a.id], [64])
        transfer = cache.begin_transfer(a)
        if cancelled:
            a.cancel()
        cache.complete(a.id)  # too early: the step is in flight
        transfer.complete()
        settle(cache)
        step.abort()
        settle(cache)
        if cache.stats().sequences:
            a.finish()
        assert pages_in(cache, "full") == {"free": 16}


def test_toc_03_a_completion_takes_effect_at_the_next_call_whichever_it_is() -> None:
    with opened(FULL, 16) as cache:
        a = cache.begin(cache.match(asked(text(("a", 64)))))
        step = cache.reserve([a.id], [64])
        transfer = cache.begin_transfer(a)
        step.commit()
        transfer.complete()
        a.finish()
        assert cache.stats().sequences == 0
        assert not cache.stats().completion_anomalies
        assert cache.match(asked(text(("a", 64), ("b", 1)))).reused_tokens == 64


def test_toc_01_closed_while_a_cancelled_sequence_drains() -> None:
    with opened(FULL, 16) as cache:
        a = cache.begin(cache.match(asked(text(("a", 64)))))
        cache.begin_transfer(a)
        a.cancel()
        assert cache.stats().sequences == 1
    assert cache.stats().sequences == 0
    assert cache.stats().events["sequence_finished"] == 1
