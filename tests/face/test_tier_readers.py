"""What is stored and here, but cannot be read now: the request runs cold, and at once."""

from typing import Any

import pytest

from kvstrata import CacheManager, Request
from tests.cases.support import asked

from .test_tiering import PROMPT, corner, stored


def test_a_kernel_that_is_not_there_yet_sends_a_request_cold_and_not_round_in_a_circle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The better plan that the tiers promise is refused each time: it must not be tried again."""
    with corner() as place:
        stored(place, PROMPT)
        with place.opened() as cache:
            cache.begin_when_ready(asked(PROMPT)).finish()  # all of it is here, and stored
            cache.register_kernel("full", "reference", "1", ready=False)
            _at_most(monkeypatch, cache, 6)
            sequence = cache.begin_when_ready(asked(PROMPT))
            assert sequence.plan.source == "cold"
            sequence.cancel()
            cache.apply_completions()
            cache.register_kernel("full", "reference", "1", ready=True)
            again = cache.begin(cache.match(asked(PROMPT)))
            assert again.plan.source == "checkpoint"
            again.cancel()


def _at_most(monkeypatch: pytest.MonkeyPatch, cache: CacheManager, most: int) -> None:
    """Let so many plans be made; a begin that goes round in a circle makes more."""
    plan, made = cache._planner.plan, [0]

    def counted(request: Request, at: int | None = None, stored: bool = True) -> Any:
        made[0] += 1
        if made[0] > most:
            pytest.fail(f"{most} plans did not do for one request")
        return plan(request, at, stored)

    monkeypatch.setattr(cache._planner, "plan", counted)
