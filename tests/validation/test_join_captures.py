"""Waiters ask for checkpoints: beside those that are wanted already, and of no stranger."""

import pytest

from tests.face.support import request

from .support import flip, open_cache, slot_of
from .test_join import begin, to_end, waits


def test_waiters_at_two_places() -> None:
    """Each resumes where it was told it would."""
    cache = open_cache(max_sequences=4)
    running = begin(cache, request("shared", 250))
    to_end(cache, running, 32)
    first, second = request("shared", 100, join=True), request("shared", 150, join=True)
    waits(cache, first)
    waits(cache, second)
    to_end(cache, running, 250)
    assert cache.match(second).resume_at == 144
    assert cache.match(first).resume_at == 96


def test_three_captures_of_its_own() -> None:
    """An aligned prompt with a branch point has all three places filled."""
    cache = open_cache(max_sequences=4)
    short = begin(cache, request("shared", 40))
    to_end(cache, short, 40)
    short.finish()
    flip(cache, "swa", slot_of(cache, request("shared", 40), "swa"))
    cache.scrub(1 << 30)
    running = begin(cache, request("shared", 192))
    wanted = running.captures
    assert wanted == (32, 176, 192)
    to_end(cache, running, 50)
    waits(cache, request("shared", 100, join=True))
    assert {96, 176, 192} <= set(running.captures)


def test_a_plan_whose_sequence_has_ended() -> None:
    """Its row is another's by now, which is left alone."""
    cache = open_cache(max_sequences=1)
    running = begin(cache, request("shared", 200))
    to_end(cache, running, 64)
    plan = cache.match(request("shared", 150, join=True))
    assert plan.join is not None
    running.cancel()
    stranger = begin(cache, request("stranger", 200))
    captures = stranger.captures
    with pytest.raises(Exception):  # noqa: B017, PT011
        cache.begin(plan)
    assert stranger.captures == captures
