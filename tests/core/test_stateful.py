"""Replay equals live equals the reference, over histories that hypothesis makes up and shrinks."""

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from . import actions, tier_actions
from .cases import CASES, Case
from .live import Live
from .pair import Pair

RANDOM = st.randoms(use_true_random=False)


class History(RuleBasedStateMachine):
    """Each rule is one action; after it the log is replayed from scratch and from a snapshot."""

    case: Case

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.case, Live(self.case))

    def act(self, action: actions.Action, rng: Random) -> None:
        action(self.pair, rng)
        self.pair.check_replay(0)
        self.pair.check_replay(rng.randrange(len(self.pair.snapshots)))

    @rule(rng=RANDOM)
    def begin(self, rng: Random) -> None:
        self.act(actions.begin, rng)

    @rule(rng=RANDOM)
    def begin_twice(self, rng: Random) -> None:
        self.act(actions.begin_twice, rng)

    @rule(rng=RANDOM)
    def plan_ahead(self, rng: Random) -> None:
        self.act(actions.plan_ahead, rng)

    @rule(rng=RANDOM)
    def reserve(self, rng: Random) -> None:
        self.act(actions.reserve, rng)

    @rule(rng=RANDOM)
    def commit(self, rng: Random) -> None:
        self.act(actions.commit, rng)

    @rule(rng=RANDOM)
    def run_a_step(self, rng: Random) -> None:
        self.act(actions.reserve, rng)
        self.act(actions.commit, rng)

    @rule(rng=RANDOM)
    def abort(self, rng: Random) -> None:
        self.act(actions.abort, rng)

    @rule(rng=RANDOM)
    def finish(self, rng: Random) -> None:
        self.act(actions.finish, rng)

    @rule(rng=RANDOM)
    def suspend(self, rng: Random) -> None:
        self.act(actions.suspend, rng)

    @rule(rng=RANDOM)
    def resume(self, rng: Random) -> None:
        self.act(actions.resume, rng)

    @rule(rng=RANDOM)
    def plan_to_resume(self, rng: Random) -> None:
        self.act(actions.plan_to_resume, rng)

    @rule(rng=RANDOM)
    def fork(self, rng: Random) -> None:
        self.act(actions.fork, rng)

    @rule(rng=RANDOM)
    def cancel(self, rng: Random) -> None:
        self.act(actions.cancel, rng)

    @rule(rng=RANDOM)
    def lease(self, rng: Random) -> None:
        self.act(actions.lease, rng)

    @rule(rng=RANDOM)
    def release(self, rng: Random) -> None:
        self.act(actions.release, rng)

    @rule(rng=RANDOM)
    def quarantine(self, rng: Random) -> None:
        self.act(actions.quarantine, rng)

    @rule(rng=RANDOM)
    def misuse(self, rng: Random) -> None:
        self.act(actions.misuse, rng)

    @rule(rng=RANDOM)
    def crash(self, rng: Random) -> None:
        self.act(actions.crash, rng)

    @rule()
    def take_snapshot(self) -> None:
        self.pair.take_snapshot()


class TieredHistory(History):
    """The same with lower tiers."""

    @rule(rng=RANDOM)
    def tell(self, rng: Random) -> None:
        self.act(tier_actions.tell, rng)

    @rule(rng=RANDOM)
    def read_tiers(self, rng: Random) -> None:
        self.act(tier_actions.read_tiers, rng)

    @rule(rng=RANDOM)
    def begin_load(self, rng: Random) -> None:
        self.act(tier_actions.begin_load, rng)

    @rule(rng=RANDOM)
    def load_and_end(self, rng: Random) -> None:
        self.act(tier_actions.begin_load, rng)
        self.act(tier_actions.end_load, rng)

    @rule(rng=RANDOM)
    def end_load(self, rng: Random) -> None:
        self.act(tier_actions.end_load, rng)

    @rule(rng=RANDOM)
    def drain_load(self, rng: Random) -> None:
        self.act(tier_actions.drain_load, rng)

    @rule(rng=RANDOM)
    def release_load(self, rng: Random) -> None:
        self.act(tier_actions.release_load, rng)


@pytest.mark.parametrize("name", CASES)
def test_any_history_is_equal_live_replayed_and_in_the_reference(name: str) -> None:
    ended: list[int] = []

    def teardown(self: History) -> None:
        ended.append(len(self.pair.log))

    kind = TieredHistory if CASES[name].stored_keys else History
    machine = type(f"History_{name}", (kind,), {"case": CASES[name], "teardown": teardown})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=20,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    assert len(ended) >= 20
    assert max(ended) > 10, "no history did anything"
