"""Units by key, followed in compiled code, beside a dictionary."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstrata.core.events import EVENT_DTYPE, EventType, Reason
from kvstrata.eventstore.history.uses import Uses

NUM_UNITS = 12
KEYS = [1, 2, 3, 1 << 32, (1 << 32) | 1, -1, -(1 << 40), 17, 33, 49, 65, 81]
"""Many of them are looked for first at the same place."""

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["seal", "seal", "evict", "free", "hit", "lease"]),
        st.integers(1, NUM_UNITS),
        st.sampled_from(KEYS),
    ),
    max_size=120,
)


class Plain:
    """What must come out."""

    def __init__(self) -> None:
        self.key_of: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.first: dict[int, int] = {}
        self.ages: list[int] = []
        self.gaps: list[int] = []
        self.evicted = 0

    def step(self, step: Step, now_ns: int) -> None:
        verb, unit, key = step
        if verb == "seal":
            found = self.first.setdefault(key, unit)
            self.used[found] = now_ns
            self.key_of[unit], self.used[unit] = key, now_ns
        elif verb in ("evict", "free"):
            self.evicted += verb == "evict"
            before = self.key_of.pop(unit, None)
            if before is not None:
                if verb == "evict":
                    self.ages.append(now_ns - self.used[unit])
                if self.first.get(before) == unit:
                    del self.first[before]
        elif key in self.first:
            unit = self.first[key]
            if verb == "hit":
                self.gaps.append(now_ns - self.used[unit])
            self.used[unit] = now_ns


def events_of(steps: list[Step]) -> np.ndarray:
    events = np.zeros(2 * len(steps), dtype=EVENT_DTYPE)
    for number, (verb, unit, key) in enumerate(steps):
        event = events[2 * number : 2 * number + 1]
        events["time_ns"][2 * number] = 1000 + number * number
        if verb == "seal":
            event["type"], event["a"], event["d"] = EventType.PAGE_SEALED, key, unit
        elif verb in ("evict", "free"):
            event["type"], event["b"] = EventType.PAGE_FREED, unit
            event["reason"] = Reason.EVICTED if verb == "evict" else Reason.DUPLICATE
        else:
            event["type"], event["a"] = EventType.LEASE_GRANTED, key
            if verb == "hit":
                events["type"][2 * number + 1] = EventType.REQUEST_RESUMED
    return events.view(np.int64).reshape(-1, 8)


def lawful(steps: list[Step]) -> list[Step]:
    """Units are sealed when they are free."""
    sealed: set[int] = set()
    kept = []
    for step in steps:
        if step[0] == "seal":
            if step[1] in sealed:
                continue
            sealed.add(step[1])
        elif step[0] in ("evict", "free"):
            sealed.discard(step[1])
        kept.append(step)
    return kept


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 120))
def test_as_a_dictionary_would(steps: list[Step], cut: int) -> None:
    steps = lawful(steps)
    plain, uses = Plain(), Uses(NUM_UNITS)
    for number, step in enumerate(steps):
        plain.step(step, 1000 + number * number)
    words = events_of(steps)
    ages, gaps, evicted = [], [], 0
    for part in (words[: 2 * cut], words[2 * cut :]):
        found = uses.add(part, np.arange(0, len(part), 2))
        ages += found[0].tolist()
        gaps += found[1].tolist()
        evicted += found[2]
        again = Uses(NUM_UNITS)
        again.restore(uses.arrays())
        uses = again
    assert (ages, gaps, evicted) == (plain.ages, plain.gaps, plain.evicted)


def test_times_that_go_back_are_left_out() -> None:
    """The clock begins anew with the machine."""
    words = events_of([("seal", 1, 5), ("hit", 1, 5), ("evict", 1, 5)])
    words[2, 1] = words[4, 1] = 3
    uses = Uses(NUM_UNITS)
    ages, gaps, evicted = uses.add(words, np.array([0, 2, 4]))
    assert (ages.tolist(), gaps.tolist(), evicted) == ([0], [], 1)
