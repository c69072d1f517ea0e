from __future__ import annotations

import itertools

import pytest

from kvstrata.core.errors import ConfigError
from kvstrata.tiers.outage import FIRST_WAIT_S, LONGEST_WAIT_S, Outage


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def outage_of(clock: Clock, limit: int = 3, random: float = 0.0) -> Outage:
    return Outage(limit, clock, lambda: random)


def fail(outage: Outage, times: int) -> None:
    for _ in range(times):
        assert outage.may_try()
        outage.failed()


def test_a_tier_goes_down_after_failures_in_a_row_only(clock: Clock) -> None:
    outage = outage_of(clock)
    fail(outage, 2)
    outage.succeeded()
    fail(outage, 2)
    assert not outage.is_down
    assert outage.retry_in_s == 0
    fail(outage, 1)
    assert outage.is_down
    assert not outage.may_try()
    assert (outage.outages, outage.retry_in_s) == (1, FIRST_WAIT_S)


def test_one_probe_goes_out_after_the_back_off_and_brings_the_tier_up(clock: Clock) -> None:
    outage = outage_of(clock)
    fail(outage, 3)
    clock.now_s += FIRST_WAIT_S - 0.01
    assert not outage.may_try()
    clock.now_s += 0.02
    assert [outage.may_try() for _ in range(3)] == [True, False, False]
    assert outage.is_down
    outage.succeeded()
    assert not outage.is_down
    assert all(outage.may_try() for _ in range(3))


def test_the_back_off_doubles_to_a_minute_and_begins_anew_after_a_success(clock: Clock) -> None:
    outage = outage_of(clock, limit=1)
    waits = []
    for _ in range(9):
        fail(outage, 1)
        waits.append(outage.retry_in_s)
        clock.now_s += outage.retry_in_s
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 48, 48]  # 48 leaves room for the jitter
    assert outage.outages == 1
    assert outage.may_try()
    outage.succeeded()
    fail(outage, 1)
    assert (outage.outages, outage.retry_in_s) == (2, 0.5)


@pytest.mark.parametrize("random", [0.0, 0.5, 0.999_999])
def test_every_wait_lies_between_half_a_second_and_a_minute(clock: Clock, random: float) -> None:
    outage = outage_of(clock, limit=1, random=random)
    for doublings in itertools.chain(range(7), [7, 7, 7]):
        fail(outage, 1)
        usual_s = min(FIRST_WAIT_S * 2**doublings, 48)
        assert outage.retry_in_s == pytest.approx(usual_s * (1 + random / 4))
        assert FIRST_WAIT_S <= outage.retry_in_s < LONGEST_WAIT_S
        clock.now_s += outage.retry_in_s


def test_failures_that_began_before_do_not_lengthen_the_back_off(clock: Clock) -> None:
    outage = outage_of(clock)
    assert all(outage.may_try() for _ in range(16))
    for _ in range(16):
        outage.failed()
    assert outage.retry_in_s == FIRST_WAIT_S


def test_a_late_success_brings_the_tier_up(clock: Clock) -> None:
    outage = outage_of(clock, limit=1)
    assert outage.may_try()
    fail(outage, 1)
    outage.succeeded()
    assert not outage.is_down


def test_a_probe_that_was_not_made_is_for_the_next(clock: Clock) -> None:
    outage = outage_of(clock, limit=1)
    fail(outage, 1)
    clock.now_s += FIRST_WAIT_S
    assert outage.may_try()
    assert not outage.may_try()
    outage.not_tried()
    assert outage.is_down
    assert outage.may_try()


def test_a_probe_that_never_reports_is_replaced(clock: Clock) -> None:
    outage = outage_of(clock, limit=1)
    fail(outage, 1)
    clock.now_s += FIRST_WAIT_S
    assert outage.may_try()
    clock.now_s += LONGEST_WAIT_S - 1
    assert not outage.may_try()
    clock.now_s += 2
    assert outage.may_try()


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1, found 0"):
        Outage(0)
