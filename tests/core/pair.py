"""The reference and a subject side by side: each verb on both, then everything is compared."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvstrata.core.arena import new_arena
from kvstrata.core.events import LAST_OF_CALL
from kvstrata.core.words import (
    Arena,
)

from ..reference.laws import violations
from ..reference.model import ReferenceCache
from ..reference.values import Refused
from .cases import Case
from .encode import encode, outline
from .observe import differences, observe
from .subjects import Outcome, Subject, Words, outline_of_plan, replay
from .tier_verbs import IN_ORDER, TierVerbs

BESIDE_THE_RULES = ("RATES_OBSERVED",)
"""Events of which the rules do not speak."""


@dataclass(frozen=True)
class Prompt:
    """A request as both sides take it."""

    tokens: tuple[int, ...]
    model: str
    extras: Mapping[int, bytes] = field(default_factory=dict)
    max_resume: int | None = None
    at: int | None = None


@dataclass(frozen=True)
class Pause:
    """A suspended sequence: where, and what a request that goes on from there is made of."""

    both: "Both"
    tokens: tuple[int, ...]
    model: str

    @property
    def position(self) -> int:
        return int(self.both.reference.position)


@dataclass(eq=False)
class Both:
    """One thing's handles on both sides."""

    reference: Any
    subject: Any


class Different(AssertionError):
    """The two sides are not equal, or one of them is not lawful."""


class Pair(TierVerbs):
    """Drives both sides through one history."""

    def __init__(self, case: Case, subject: Subject) -> None:
        super().__init__()
        self.case = case
        self.reference = ReferenceCache(case.sizes)
        self.subject = subject
        self.plans: list[Both] = []
        self.sequences: list[Both] = []
        self.steps: list[Both] = []
        self.leases: list[Both] = []
        self.ended: list[Both] = []
        self.pauses: list[Pause] = []
        self.models: dict[bytes, str] = {}  # by chain seed
        self.texts: list[tuple[int, ...]] = []
        self.seen: Counter[str] = Counter()
        """How often each verb, refusal, event and reason occurred."""
        self.log: list[Words] = []
        self.num_events = 0
        self._follower = new_arena(case.layout, case.params)
        self.snapshots: list[tuple[int, Arena]] = [(0, self._follower.copy())]
        self._check("open")

    def match(self, prompt: Prompt) -> Both:
        seed = self.subject.seed(prompt.model)
        self.models[seed] = prompt.model
        arguments = (prompt.tokens, seed, prompt.extras, prompt.max_resume, prompt.at)
        plan = self._both("match", arguments, (prompt,))
        assert plan is not None
        expected = outline_of_plan(plan.reference)
        lines = list(differences(expected, self.subject.plan_of(plan.subject), "/plan"))
        if lines:
            self._fail("match", lines)
        self.seen[f"match {plan.reference.source}"] += 1
        return plan

    def begin(self, plan: Both) -> Both | None:
        sequence = self._on(plan, "begin")
        if sequence:
            self.sequences.append(sequence)
            self.seen[f"began {plan.reference.source}"] += 1
            self.seen["began partial"] += plan.reference.partial is not None
        return sequence

    def suspend(self, sequence: Both) -> Pause | None:
        both = self._on(sequence, "suspend")
        if both is None:
            return None
        self.sequences.remove(sequence)
        s = sequence.reference
        pause = Pause(both, tuple(s.tokens), self.models[s.seed])
        self.pauses.append(pause)
        return pause

    def resume(self, pause: Pause, tokens: tuple[int, ...]) -> Both | None:
        sequence = self._on(pause.both, "resume", tokens)
        if sequence:
            self.sequences.append(sequence)
            at_once = sequence.reference.position == pause.position
            self.seen["resumed there" if at_once else "resumed elsewhere"] += 1
        return sequence

    def fork(self, sequence: Both) -> Both | None:
        child = self._on(sequence, "fork")
        if child:
            self.sequences.append(child)
        return child

    def reserve(self, wanted: list[tuple[Both, int]]) -> Both | None:
        step = self._both(
            "reserve",
            ([(sequence.reference, tokens) for sequence, tokens in wanted],),
            ([(sequence.subject, tokens) for sequence, tokens in wanted],),
        )
        if step:
            expected, found = step.reference.refused, self.subject.refused(step.subject)
            if found != expected:
                self._fail("reserve", [f"refused: reference {expected}, core {found}"])
            self.seen.update(f"refused {reason}" for reason in expected if reason)
            rows = [row for row in step.reference.rows if row]
            self.seen["switched"] += sum(row.switched for row in rows)
            self.seen["written below exact"] += sum(row.start < row.sequence.exact for row in rows)
            self.steps.append(step)
        return step

    def commit(
        self, step: Both, accepted: list[int] | None, tokens: list[list[int]] | None
    ) -> None:
        if self._on(step, "commit", accepted, tokens):
            self.steps.remove(step)

    def abort(self, step: Both) -> None:
        if self._on(step, "abort"):
            del self.steps[self.steps.index(step) :]

    def finish(self, sequence: Both) -> None:
        if self._on(sequence, "finish"):
            self.sequences.remove(sequence)

    def cancel(self, sequence: Both) -> None:
        if self._on(sequence, "cancel"):
            self.sequences.remove(sequence)

    def lease(self, plan: Both) -> None:
        lease = self._on(plan, "lease")
        if lease:
            self.leases.append(lease)

    def release(self, lease: Both) -> None:
        if self._on(lease, "release"):
            self.leases.remove(lease)

    def quarantine(self, group: int, slot: int) -> None:
        self._both("quarantine", (group, slot), (group, slot))
        self.seen["orphan"] += self.reference.tables.orphans
        self.reference.tables.orphans = 0

    def crash(self, bytes_trusted: bool) -> None:
        self._both("crash", (bytes_trusted,), (bytes_trusted,))
        self.count_loads_of_a_crash()
        for gone in (self.plans, self.sequences, self.steps, self.leases, self.ended):
            gone.clear()

    def take_snapshot(self) -> None:
        self.snapshots.append((len(self.log), self.subject.arena.copy()))

    def check_laws(self) -> None:
        """The reference keeps its own laws."""
        lines = list(violations(self.reference))
        if lines:
            self._fail("laws of the reference", lines)

    def check_replay(self, snapshot: int) -> None:
        """The log from a snapshot on, applied in one go, gives the same bytes as live."""
        calls, arena = self.snapshots[snapshot % len(self.snapshots)]
        arena = arena.copy()
        if self.log[calls:]:
            replay(arena, np.concatenate(self.log[calls:]))
        self._same_bytes("replay", arena, f"replay from call {calls}")

    def _on(self, thing: Both, verb: str, *more: Any) -> Both | None:
        return self._both(verb, (thing.reference, *more), (thing.subject, *more))

    def _both(
        self, verb: str, arguments: tuple[Any, ...], subject_arguments: tuple[Any, ...]
    ) -> Both | None:
        """Run a verb on both sides: both do it, or both refuse it for the same reason."""
        expected = _outcome(getattr(self.reference, verb), arguments)
        found = self.subject.call(verb, subject_arguments, expected)
        if expected[0] != found[0]:
            self._fail(verb, [f"reference {expected[0]}, core {found[0]}: {found[1]!r}"])
        self._check(verb)
        self.seen[verb if expected[0] == "done" else f"{verb} {expected[0]}"] += 1
        return Both(expected[1], found[1]) if expected[0] == "done" else None

    def _check(self, verb: str) -> None:
        happened, self.reference.tables.happened = self.reference.tables.happened, []
        expected = outline(encode(happened, self.num_events + 1, 0))
        words = self.subject.new_events(happened)
        found = [event for event in outline(words) if event[0] not in BESIDE_THE_RULES]
        if self._is_cut(verb, words):
            self.seen[f"{verb} cut"] += 1
            # Evicting and taking alternate; each is in its own order, as the tables show.
            if verb not in IN_ORDER:
                expected, found = sorted(expected, key=repr), sorted(found, key=repr)
        if expected != found:
            self._fail(verb, _first_difference(expected, found))
        lines = list(differences(self.reference.observe(), observe(self.subject.arena)))
        steps = self.subject.observe_steps()
        if steps is not None:
            lines += differences(self.reference.observe_steps(), steps, "/steps")
        if lines:
            self._fail(verb, lines)
        self.subject.check()
        if len(words):
            self.log.append(words)
            self.num_events += len(words)
            for event in happened:
                self._count(event)
            replay(self._follower, words)
            self._same_bytes(verb, self._follower, "the follower")

    def _is_cut(self, verb: str, words: Words) -> bool:
        """Whether one verb's work was too large for the ring, and done in several calls."""
        calls = np.count_nonzero(words[:, 2] >> 40 & LAST_OF_CALL)
        return calls > 1 and len(words) > self.case.ring_events // 5

    def _count(self, event: dict[str, Any]) -> None:
        side = "image" if event.get("group", 0) >= self.case.sizes.num_history else "block"
        self.seen[event["type"]] += 1
        if "reason" in event:
            self.seen[f"{side} {event['reason']}"] += 1
        if "role" in event:
            self.seen[event["role"]] += 1
        for name in ("tainted", "partial", "superseded", "with_partial"):
            self.seen[name] += bool(event.get(name))
        if "why" in event:
            self.seen[f"capture {event['why']}"] += 1

    def _same_bytes(self, verb: str, arena: Arena, name: str) -> None:
        if not np.array_equal(arena, self.subject.arena):
            places = np.flatnonzero(arena != self.subject.arena)[:8]
            self._fail(verb, [f"{name} differs from live at words {places.tolist()}"])

    def _fail(self, verb: str, lines: list[str]) -> None:
        shown = "\n  ".join(lines[:20])
        raise Different(f"{self.case.name}, call {len(self.log)}, {verb}:\n  {shown}")


def _outcome(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
    try:
        return "done", call(*arguments)
    except Refused as refused:
        return type(refused).__name__, None


def _first_difference(expected: list[Any], found: list[Any]) -> list[str]:
    place = 0
    while place < min(len(expected), len(found)) and expected[place] == found[place]:
        place += 1
    lines = [f"events differ from event {place} of the call on:"]
    lines += [f"  reference {event}" for event in expected[place : place + 4]]
    return lines + [f"  core      {event}" for event in found[place : place + 4]]
