"""The admission cap, request by request."""

import math

import pytest

from kvstrata.core.admission import (
    Admission,
    AdmissionConfig,
    AdmissionStats,
    Deferred,
    Denied,
    Granted,
    Need,
    Room,
)
from kvstrata.core.errors import ConfigError

from .engine import Engine, Job

PLENTY = Room(1000, 1000)


def admission(**settings: object) -> Admission:
    return Admission(AdmissionConfig(**settings))  # type: ignore[arg-type]


def test_adm_01_two_that_fit_only_alone_both_finish_and_hold_nothing_while_waiting() -> None:
    need = Need(blocks=60, load_bytes=20 << 20)
    engine = Engine(
        AdmissionConfig(), 100, [Job(0.0, need, load_s=0.2), Job(0.0, need, load_s=0.2)]
    )
    engine.run()
    assert engine.finished == [0, 1]
    assert engine.most_held_while_waiting == 0
    assert engine.admission.promised_blocks == engine.admission.waiting == 0


def test_a_promise_shrinks_as_the_sequence_takes_blocks() -> None:
    cap = admission()
    assert cap.ask(1, Need(60), Room(100, 100), 0.0) == Granted(0.0)
    assert cap.promised_blocks == 60
    assert cap.took(1, 50) == 50
    assert isinstance(cap.ask(2, Need(41), Room(100, 50), 0.1), Deferred)
    assert isinstance(cap.ask(3, Need(40), Room(100, 50), 0.1), Granted)
    assert cap.took(1, 20) == 10  # ten are beyond the promise
    assert cap.promised_blocks == 40
    assert cap.ended(3)
    assert cap.promised_blocks == 0
    assert cap.ended(2)  # it waited
    assert cap.waiting == 0


def test_a_later_smaller_request_passes_only_a_young_waiter() -> None:
    cap = admission(ageing_s=2.0)
    cap.ask(1, Need(60), Room(100, 100), 0.0)
    big = cap.ask(2, Need(60), Room(100, 100), 0.0)
    assert isinstance(big, Deferred)
    assert (big.ahead, big.limit) == (0, "blocks")
    assert isinstance(cap.ask(3, Need(10), Room(100, 100), 1.9), Granted)
    late = cap.ask(4, Need(10), Room(100, 100), 2.0)
    assert isinstance(late, Deferred)
    assert (late.ahead, late.limit) == (1, "queue")
    assert "expected no aged request ahead, found 1" in late.why
    cap.ended(1)
    behind = cap.ask(5, Need(35), Room(100, 100), 2.1)  # 60 and 10 are for those ahead
    assert isinstance(behind, Deferred)
    assert behind.limit == "blocks"
    assert isinstance(cap.ask(2, Need(60), Room(100, 100), 2.1), Granted)
    assert isinstance(cap.ask(4, Need(10), Room(100, 100), 2.2), Granted)
    assert isinstance(cap.ask(5, Need(20), Room(100, 100), 2.2), Granted)


def test_a_waiter_that_would_fit_now_is_not_overtaken() -> None:
    cap = admission(ageing_s=5.0)
    cap.ask(1, Need(100), Room(100, 100), 0.0)
    cap.ask(2, Need(60), Room(100, 100), 0.0)
    cap.ended(1)
    later = cap.ask(3, Need(60), Room(100, 100), 0.01)
    assert isinstance(later, Deferred)
    assert "20 too few behind the 1 waiting ahead" in later.why
    assert isinstance(cap.ask(4, Need(40), Room(100, 100), 0.01), Granted)
    assert isinstance(cap.ask(2, Need(60), Room(100, 100), 0.05), Granted)


def test_a_waiter_that_stays_away_lets_others_pass() -> None:
    cap = admission(ageing_s=1.0, max_waiting=1)
    cap.ask(1, Need(60), Room(100, 100), 0.0)
    away = cap.ask(2, Need(60), Room(100, 100), 0.0)
    assert isinstance(away, Deferred)
    assert isinstance(cap.ask(3, Need(10), Room(100, 100), 1.0), Denied)
    assert isinstance(cap.ask(3, Need(10), Room(100, 100), away.retry_after_s + 5.1), Granted)
    assert cap.waiting == 1
    assert isinstance(cap.ask(4, Need(90), Room(100, 100), 6.0), Deferred)  # takes its place
    assert cap.waiting == 1


@pytest.mark.parametrize(
    ("settings", "need", "limit", "why"),
    [
        ({}, Need(101), "blocks", "expected at most 100 blocks in all, found 101"),
        (
            {"max_recovery_bytes": 10},
            Need(1, 11),
            "recovery_bytes",
            "expected at most 10 bytes to load, found 11",
        ),
        (
            {"tenant_bytes": {"a": 5}},
            Need(1, 6, "a"),
            "tenant",
            "expected at most 5 bytes to load, the quota of tenant 'a', found 6",
        ),
    ],
)
def test_what_can_never_fit_is_denied_at_once(
    settings: dict[str, object], need: Need, limit: str, why: str
) -> None:
    cap = admission(**settings)
    assert cap.ask(1, need, Room(100, 100), 0.0) == Denied(why, None, limit)
    assert cap.waiting == cap.promised_blocks == 0


def test_deadlines() -> None:
    cap = admission(deadline_s=2.0)
    room = Room(100, 50)
    first = cap.ask(1, Need(60), room, 10.0)
    assert isinstance(first, Deferred)
    own = cap.ask(2, Need(60), room, 10.0, deadline_s=math.inf)
    assert isinstance(own, Deferred)
    assert isinstance(cap.ask(1, Need(60), room, 11.99), Deferred)
    late = cap.ask(1, Need(60), room, 12.0)  # not granted, and its time is over
    assert late == Denied("waited 2.000 s, expected at most 2.000 s", None, "deadline")
    assert isinstance(cap.ask(3, Need(60), room, 12.0), Deferred)
    over = cap.ask(3, Need(60), Room(100, 100), 14.5)  # room or not
    assert isinstance(over, Denied)
    assert isinstance(cap.ask(2, Need(60), Room(100, 100), 99.0), Granted)
    at_once = cap.ask(4, Need(60), Room(100, 100), 99.0, deadline_s=0.0)
    assert isinstance(at_once, Denied)


def test_retry_is_not_after_the_deadline() -> None:
    cap = admission(bytes_per_s=1.0, burst_bytes=10)
    cap.ask(1, Need(1, 10), PLENTY, 0.0)
    decision = cap.ask(2, Need(1, 10), PLENTY, 0.0, deadline_s=3.0)
    assert isinstance(decision, Deferred)
    assert decision.retry_after_s == 3.0


def test_a_waiter_past_its_deadline_holds_nobody_up() -> None:
    cap = admission(ageing_s=1.0)
    cap.ask(1, Need(60), Room(100, 100), 0.0)
    cap.ask(2, Need(60), Room(100, 100), 0.0, deadline_s=1.5)
    assert isinstance(cap.ask(3, Need(10), Room(100, 100), 1.2), Deferred)
    assert isinstance(cap.ask(3, Need(10), Room(100, 100), 1.6), Granted)


def test_queue_full_is_denied_with_a_time() -> None:
    cap = admission(max_waiting=1)
    cap.ask(1, Need(60), Room(100, 100), 0.0)
    assert isinstance(cap.ask(2, Need(60), Room(100, 100), 0.0), Deferred)
    denied = cap.ask(3, Need(60), Room(100, 100), 0.0)
    assert isinstance(denied, Denied)
    assert denied.limit == "queue"
    assert denied.retry_after_s is not None
    assert denied.retry_after_s > 0
    assert isinstance(cap.ask(2, Need(60), Room(100, 100), 0.1), Deferred)  # keeps its place
    assert cap.withdraw(2)
    assert not cap.withdraw(2)
    assert isinstance(cap.ask(3, Need(60), Room(100, 100), 0.2), Deferred)


def test_the_bucket_refills_and_tells_when() -> None:
    cap = admission(bytes_per_s=100.0, burst_bytes=50)
    assert isinstance(cap.ask(1, Need(1, 40), PLENTY, 0.0), Granted)
    assert isinstance(cap.ask(2, Need(1, 0), PLENTY, 0.0), Granted)  # nothing to load
    wait = cap.ask(3, Need(1, 40), PLENTY, 0.0)
    assert isinstance(wait, Deferred)
    assert wait.limit == "rate"
    assert wait.retry_after_s == pytest.approx(0.3)
    assert isinstance(cap.ask(3, Need(1, 40), PLENTY, 0.3), Granted)


def test_a_need_beyond_the_burst_waits_for_a_full_bucket_and_leaves_a_debt() -> None:
    cap = admission(bytes_per_s=100.0, burst_bytes=50)
    assert isinstance(cap.ask(1, Need(1, 10), PLENTY, 0.0), Granted)
    wait = cap.ask(2, Need(1, 500), PLENTY, 0.0)
    assert isinstance(wait, Deferred)
    assert wait.retry_after_s == pytest.approx(0.1)
    assert isinstance(cap.ask(2, Need(1, 500), PLENTY, 0.11), Granted)
    assert cap.snapshot().bucket_bytes == -450
    wait = cap.ask(3, Need(1, 1), PLENTY, 0.11)
    assert isinstance(wait, Deferred)
    assert wait.retry_after_s == pytest.approx(4.51)


def test_recoveries_and_their_bytes_are_counted_until_loaded() -> None:
    cap = admission(max_recoveries=2, max_recovery_bytes=100)
    assert isinstance(cap.ask(1, Need(1, 60), PLENTY, 0.0), Granted)
    bytes_full = cap.ask(2, Need(1, 60), PLENTY, 0.0)
    assert isinstance(bytes_full, Deferred)
    assert bytes_full.limit == "recovery_bytes"
    assert isinstance(cap.ask(3, Need(1, 40), PLENTY, 0.0), Granted)
    assert cap.loaded(3)
    assert not cap.loaded(3)
    assert isinstance(cap.ask(4, Need(1, 10), PLENTY, 0.0), Granted)
    slots_full = cap.ask(5, Need(1, 10), PLENTY, 0.0)
    assert isinstance(slots_full, Deferred)
    assert slots_full.limit == "recoveries"
    assert cap.ended(1)  # ends its recovery too
    assert isinstance(cap.ask(2, Need(1, 60), PLENTY, 0.1), Granted)
    assert not cap.loaded(1)  # its completion comes late
    assert cap.snapshot().recovery_bytes == 70


def test_a_tenant_at_its_quota_stops_nobody_else() -> None:
    cap = admission(tenant_bytes={"a": 100}, ageing_s=1.0)
    assert isinstance(cap.ask(1, Need(1, 80, "a"), PLENTY, 0.0), Granted)
    wait = cap.ask(2, Need(1, 80, "a"), PLENTY, 0.0)
    assert isinstance(wait, Deferred)
    assert wait.limit == "tenant"
    assert isinstance(cap.ask(2, Need(1, 80, "a"), PLENTY, 5.0), Deferred)
    assert isinstance(cap.ask(3, Need(1, 500, "b"), PLENTY, 5.0), Granted)
    assert isinstance(cap.ask(4, Need(1, 10, "a"), PLENTY, 5.0), Deferred)
    assert cap.loaded(1)
    assert isinstance(cap.ask(2, Need(1, 80, "a"), PLENTY, 5.1), Granted)


def test_an_aged_load_does_not_stop_requests_without_one() -> None:
    cap = admission(bytes_per_s=1.0, burst_bytes=10, ageing_s=1.0)
    room = Room(100, 100)
    assert isinstance(cap.ask(1, Need(10, 10), room, 0.0), Granted)
    assert isinstance(cap.ask(2, Need(60, 10), room, 0.0), Deferred)
    assert isinstance(cap.ask(3, Need(50), room, 5.0), Granted)
    assert isinstance(cap.ask(4, Need(1, 1), room, 5.0), Deferred)
    held_up = cap.ask(2, Need(60, 10), room, 10.0)
    assert isinstance(held_up, Deferred)
    assert held_up.limit == "blocks"
    assert isinstance(cap.ask(5, Need(1), room, 10.0), Deferred)  # now it lacks blocks
    cap.ended(3)
    assert isinstance(cap.ask(2, Need(60, 10), room, 10.1), Granted)


def test_guesses_follow_what_was_observed() -> None:
    cap = admission(max_recoveries=1)
    cap.ask(1, Need(10, 1), PLENTY, 0.0)
    unknown = cap.ask(2, Need(10, 1), PLENTY, 0.0)
    assert isinstance(unknown, Deferred)
    assert unknown.retry_after_s == pytest.approx(0.05)
    cap.loaded(1, 0.4)
    assert isinstance(cap.ask(2, Need(10, 1), PLENTY, 0.4), Granted)
    known = cap.ask(3, Need(10, 1), PLENTY, 0.5)
    assert isinstance(known, Deferred)
    assert known.retry_after_s == pytest.approx(0.3)


def test_a_clock_that_goes_back_stands_still() -> None:
    cap = admission(bytes_per_s=100.0, burst_bytes=100)
    cap.ask(1, Need(1, 100), PLENTY, 10.0)
    assert isinstance(cap.ask(2, Need(1, 50), PLENTY, 9.0), Deferred)
    assert isinstance(cap.ask(2, Need(1, 50), PLENTY, 10.4), Deferred)
    assert isinstance(cap.ask(2, Need(1, 50), PLENTY, 10.5), Granted)


def test_unknown_tickets_change_nothing() -> None:
    cap = admission()
    assert (cap.took(9, 5), cap.loaded(9), cap.ended(9), cap.withdraw(9)) == (
        0,
        False,
        False,
        False,
    )
    with pytest.raises(ConfigError, match="expected at least 0 blocks taken, found -1"):
        cap.took(9, -1)


def test_a_ticket_is_granted_once() -> None:
    cap = admission()
    cap.ask(1, Need(1), PLENTY, 0.0)
    with pytest.raises(ConfigError, match="expected a ticket not granted yet, found 1"):
        cap.ask(1, Need(1), PLENTY, 0.0)
    with pytest.raises(ConfigError, match="expected a time in seconds, found nan"):
        cap.ask(2, Need(1), PLENTY, math.nan)


def test_snapshot() -> None:
    cap = admission(max_recovery_bytes=100)
    assert cap.snapshot() == AdmissionStats(0, 0, 0.0, 0, 0, None, 0, 0, 0)
    cap.ask(1, Need(60, 100), Room(100, 100), 1.0)
    cap.ask(2, Need(1, 1), Room(100, 100), 2.0)
    cap.ask(2, Need(1, 1), Room(100, 100), 3.0)
    cap.ask(3, Need(101), Room(100, 100), 4.0)
    assert cap.snapshot() == AdmissionStats(
        promised_blocks=60,
        waiting=1,
        oldest_wait_s=2.0,
        recoveries=1,
        recovery_bytes=100,
        bucket_bytes=None,
        num_granted=1,
        num_deferred=1,
        num_denied=1,
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bytes_per_s": 0.0}, "bytes_per_s: expected a positive number or None, found 0.0"),
        ({"bytes_per_s": math.inf}, "bytes_per_s: expected a positive"),
        ({"bytes_per_s": 1.0}, "burst_bytes: expected at least 1 with bytes_per_s, found 0"),
        ({"burst_bytes": -1}, "burst_bytes: expected at least 0"),
        ({"max_recoveries": 0}, "max_recoveries: expected at least 1 or None, found 0"),
        ({"max_recovery_bytes": 0}, "max_recovery_bytes: expected at least 1"),
        ({"ageing_s": -1.0}, "ageing_s: expected at least 0"),
        ({"ageing_s": math.nan}, "ageing_s: expected at least 0"),
        ({"deadline_s": -1.0}, "deadline_s: expected at least 0"),
        ({"max_waiting": -1}, "max_waiting: expected at least 0"),
        ({"tenant_bytes": {"a": -1}}, "tenant_bytes of 'a': expected at least 0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        admission(**settings)


def test_settings_are_values() -> None:
    quotas = {"a": 1}
    config = AdmissionConfig(tenant_bytes=quotas)
    quotas["a"] = 2
    assert config == AdmissionConfig(tenant_bytes={"a": 1})
    assert hash(config) == hash(AdmissionConfig(tenant_bytes={"a": 1}))
    assert (config.quota("a"), config.quota("b")) == (1, math.inf)
    with pytest.raises(ConfigError, match="load_bytes: expected at least 0, found -1"):
        Need(1, -1)
    with pytest.raises(ConfigError, match="blocks: expected at least 0, found -1"):
        Need(-1)
