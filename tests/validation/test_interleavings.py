"""Any order of calls over pools so small that all is evicted: see :mod:`.world` for what holds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvstrata import Request

from .world import World
from .world_parts import SETTINGS, Setting

numbers = st.integers(0, 63)
new_tokens = st.lists(st.integers(0, 2), max_size=18)
requests = st.tuples(numbers, numbers, new_tokens, st.booleans(), numbers)
batches = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=3)


class Interleavings(RuleBasedStateMachine):
    """The face, called in any order."""

    setting: Setting

    @initialize()
    def open(self) -> None:
        self.world = World(self.setting)

    def _request(self, drawn: tuple[int, int, list[int], bool, int]) -> Request:
        return self.world.request(*drawn)

    @rule(drawn=requests)
    def begin(self, drawn: Any) -> None:
        self.world.begin(self._request(drawn))

    @rule(drawn=requests)
    def serve(self, drawn: Any) -> None:
        self.world.serve(self._request(drawn))

    @rule(drawn=requests)
    def match_early(self, drawn: Any) -> None:
        self.world.match_early(self._request(drawn))

    @rule(number=numbers)
    def begin_late(self, number: int) -> None:
        self.world.begin_late(number)

    @rule(number=numbers)
    def begin_waiting(self, number: int) -> None:
        self.world.begin_waiting(number)

    @rule(chosen=batches)
    def reserve(self, chosen: Any) -> None:
        self.world.reserve(chosen)

    @rule(chosen=batches)
    def step(self, chosen: Any) -> None:
        self.world.reserve(chosen)
        self.world.commit([0])

    @rule(accepted=st.lists(numbers, min_size=1, max_size=3))
    def commit(self, accepted: list[int]) -> None:
        self.world.commit(accepted)

    @rule(number=numbers)
    def abort(self, number: int) -> None:
        self.world.abort(number)

    @rule(how=st.sampled_from(["finish", "suspend", "fork", "cancel"]), number=numbers)
    def end(self, how: str, number: int) -> None:
        self.world.end(how, number)

    @rule(number=numbers, extra=new_tokens)
    def resume(self, number: int, extra: list[int]) -> None:
        self.world.resume(number, extra)

    @rule(drawn=requests)
    def lease(self, drawn: Any) -> None:
        self.world.lease(self._request(drawn))

    @rule(number=numbers)
    def release(self, number: int) -> None:
        self.world.release(number)

    @rule(number=numbers, which=numbers, byte=st.integers(0, 1023))
    def flip(self, number: int, which: int, byte: int) -> None:
        self.world.flip(number, which, byte)

    @rule(text=numbers, which=numbers, byte=st.integers(0, 1023))
    def flip_wanted(self, text: int, which: int, byte: int) -> None:
        self.world.flip_wanted(text, which, byte)

    @rule(max_bytes=st.sampled_from([1, 500, 1 << 20]))
    def scrub(self, max_bytes: int) -> None:
        self.world.scrub(max_bytes)

    @rule(which=numbers)
    def dirty(self, which: int) -> None:
        self.world.dirty(which)

    @rule(number=numbers)
    def begin_transfer(self, number: int) -> None:
        self.world.begin_transfer(number)

    @rule(number=numbers, twice=st.booleans())
    def complete(self, number: int, twice: bool) -> None:
        self.world.complete(number, twice)

    @rule(number=numbers)
    def report(self, number: int) -> None:
        self.world.report(number)

    @rule(slow=st.booleans())
    def rates(self, slow: bool) -> None:
        self.world.rates(10_000, 1_000_000 if slow else 10_000_000_000)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end_everything()


def random_walk(setting: Setting, seed: int, num_steps: int) -> World:
    """The same rules, drawn by a generator: for long searches by hand."""
    dice, world = np.random.default_rng(seed), World(setting)

    def number() -> int:
        return int(dice.integers(0, 64))

    def tokens() -> list[int]:
        return [int(token) for token in dice.integers(0, 3, dice.integers(0, 19))]

    def wanted() -> Request:
        return world.request(number(), number(), tokens(), bool(dice.integers(2)), number())

    def batch() -> list[tuple[int, int, int]]:
        return [(number(), number(), number()) for _ in range(dice.integers(1, 4))]

    def step() -> None:
        world.reserve(batch())
        world.commit([0])

    def end(how: str) -> None:
        world.end(how, number())

    rules: list[tuple[int, Any]] = [
        (12, lambda: world.begin(wanted())),
        (8, lambda: world.serve(wanted())),
        (2, lambda: world.match_early(wanted())),
        (2, lambda: world.begin_late(number())),
        (4, lambda: world.begin_waiting(number())),
        (10, lambda: world.reserve(batch())),
        (16, step),
        (10, lambda: world.commit([number() for _ in range(3)])),
        (3, lambda: world.abort(number())),
        (6, lambda: end("finish")),
        (7, lambda: end("suspend")),
        (4, lambda: end("fork")),
        (3, lambda: end("cancel")),
        (14, lambda: world.resume(number(), tokens())),
        (3, lambda: world.lease(wanted())),
        (3, lambda: world.release(number())),
        (2, lambda: world.flip(number(), number(), int(dice.integers(1024)))),
        (3, lambda: world.flip_wanted(number(), number(), int(dice.integers(1024)))),
        (2, lambda: world.scrub([1, 500, 1 << 20][int(dice.integers(3))])),
        (1, lambda: world.dirty(number())),
        (2, lambda: world.begin_transfer(number())),
        (4, lambda: world.complete(number(), bool(dice.integers(2)))),
        (1, lambda: world.report(number())),
        (1, lambda: world.rates(10_000, 1_000_000 if dice.integers(2) else 10**10)),
    ]
    weights = np.array([weight for weight, _ in rules], dtype=float)
    for _ in range(num_steps):
        rules[int(dice.choice(len(rules), p=weights / weights.sum()))][1]()
        world.check()
    world.end_everything()
    return world


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_walk(setting: Setting) -> None:
    """One long walk; it must have met what it is for."""
    world = random_walk(setting, 1, 400)
    assert world.counts.keys() & {"history", "checkpoint", "replay", "suspended"}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_any_order(setting: Setting) -> None:
    name = f"Interleavings_{setting.name}"
    machine: Any = type(name, (Interleavings,), {"setting": setting})
    machine.TestCase.settings = settings(
        max_examples=12,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    ended: list[int] = []
    end = machine.teardown

    def teardown(self: Any) -> None:
        end(self)
        ended.append(sum(self.world.counts.values()))

    machine.teardown = teardown
    machine.TestCase("runTest").debug()
    assert len(ended) >= 12
    assert max(ended) > 0, "no history did anything"
