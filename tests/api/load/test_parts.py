"""Who speaks when, and which fault comes next."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kvstrata import ConfigError, Kind
from kvstrata.api.load import LoadConfig
from kvstrata.api.load.config import ServeConfig
from kvstrata.api.load.faults import Fault, FaultPlan
from kvstrata.api.load.messages import Counts
from kvstrata.api.load.traffic import MAX_TOKENS, NEW_TOKENS, Schedule, Traffic

ANSWER = np.arange(NEW_TOKENS, dtype=np.int32)


def test_a_conversation_goes_on_and_begins_anew() -> None:
    traffic = Traffic()
    prompts = [traffic.prompt(0)]
    while traffic.talks[0].serial == 0:
        traffic.hear(0, prompts[-1], ANSWER)
        prompts.append(traffic.prompt(0))
    assert len(prompts) > 4
    for before, after in pairwise(prompts[:-1]):
        assert np.array_equal(after[: len(before)], before)
        assert len(before) < len(after) <= MAX_TOKENS - NEW_TOKENS
    again = prompts[-1]
    assert len(again) < len(prompts[-2])
    assert not np.array_equal(again, prompts[0]), "the same words would be found whole"
    traffic.hear(0, again, ANSWER[:0])
    assert traffic.talks[0].serial == 2, "one that is given up begins anew"


def test_all_conversations_share_a_beginning_and_differ() -> None:
    traffic = Traffic()
    prompts = [traffic.prompt(number) for number in range(len(traffic.talks))]
    assert len({prompt.tobytes() for prompt in prompts}) == len(prompts)
    shared = min(len(prompt) for prompt in prompts) // 2
    assert all(np.array_equal(prompt[:shared], prompts[0][:shared]) for prompt in prompts)


def test_the_schedule_keeps_its_rate_and_rushes() -> None:
    schedule = Schedule(16, 4.0, seed=1)
    num_due, most = 0, 0
    for tick in range(6000):
        now_s = tick / 100
        due = schedule.due(now_s)
        assert len(set(due)) == len(due)
        num_due += len(due)
        most = max(most, len(due))
        for number in due:
            schedule.answered(number, now_s)
    assert 200 < num_due < 400
    assert most >= 12, "now and then all speak at once"


def test_who_is_not_answered_does_not_speak() -> None:
    schedule = Schedule(4, 1000.0, seed=1)
    assert sorted(schedule.due(1.0)) == [0, 1, 2, 3]
    assert schedule.due(30.0) == []
    schedule.answered(2, 30.0)
    assert schedule.due(40.0) == [2]


def test_faults_come_in_turn_one_at_a_time() -> None:
    plan = FaultPlan(10.0, True, 0.0)
    assert plan.due(9.9) is None
    assert plan.due(10.0) is Fault.PAGE
    assert plan.due(50.0) is None, "the first is still under way"
    plan.not_yet(50.0)
    assert plan.due(50.1) is None
    assert plan.due(50.5) is Fault.PAGE
    plan.done(51.0)
    assert plan.due(60.0) is None
    assert plan.due(61.0) is Fault.OBJECT
    plan.done(61.0)
    assert plan.due(71.0) is Fault.KILL
    assert [plan.kind() for _ in range(5)] == [
        Kind.COMPRESSED,
        Kind.SWA,
        Kind.INDEXER,
        Kind.TAIL,
        Kind.COMPRESSED,
    ]


def test_no_faults_and_no_files_to_damage() -> None:
    assert FaultPlan(None, True, 0.0).due(1e6) is None
    plan, found = FaultPlan(1.0, False, 0.0), []
    for now_s in range(1, 5):
        found.append(plan.due(now_s))
        plan.done(now_s)
    assert found == [Fault.PAGE, Fault.KILL] * 2


def test_counts_add_up() -> None:
    assert Counts(requests=2, loads=1).plus(Counts(requests=3)) == Counts(requests=5, loads=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"requests_per_s": 0.0}, "--rate: expected more than 0, found 0"),
        ({"duration_s": -1.0}, "--duration"),
        ({"fault_every_s": float("nan")}, "--fault-every"),
    ],
)
def test_settings_that_make_no_load(changes: dict[str, float], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        LoadConfig(tmp_path, tmp_path, **changes)


def test_where_the_api_and_the_tiers_are(tmp_path: Path) -> None:
    assert LoadConfig(tmp_path, tmp_path).tier_urls == (str(tmp_path / "disk"),)
    serve = ServeConfig(port=9, token_file=Path("tokens"), catalogue="sqlite:///x")
    assert serve.arguments == [
        *("--host", "127.0.0.1", "--port", "9"),
        *("--token-file", "tokens", "--catalogue", "sqlite:///x"),
    ]


def test_what_was_said_before_is_gone_on_with() -> None:
    before = Traffic()
    before.hear(3, before.prompt(3), ANSWER)
    after = Traffic({3: before.talks[3]})
    assert np.array_equal(after.prompt(3), before.prompt(3))
    assert np.array_equal(after.prompt(2), before.prompt(2))
