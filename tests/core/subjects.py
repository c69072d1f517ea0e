"""What the reference is compared with: apply alone, fed by the reference's own events."""

from dataclasses import astuple
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import new_arena
from kvstrata.core.refusals import refusal_text
from kvstrata.core.replay import apply_events
from kvstrata.core.words import META_REFUSAL, Arena

from ..reference.keys import block_key
from ..reference.values import Plan, Step
from .cases import Case
from .encode import encode, outline

Words = npt.NDArray[np.int64]
Outcome = tuple[str, Any]
"""A verb's fate: "done" or the name of the reference's refusal, and what it returned."""


class Subject(Protocol):
    """One side of a comparison; plans, sequences, steps and leases are its own handles."""

    arena: Arena

    def seed(self, model: str) -> bytes:
        """Chain seed of a model's keys."""

    def call(self, verb: str, arguments: tuple[Any, ...], expected: Outcome) -> Outcome:
        """Do what the reference did with the outcome ``expected``."""

    def plan_of(self, plan: Any) -> dict[str, Any]:
        """What a plan says, as :func:`outline_of_plan` does."""

    def refused(self, step: Any) -> list[str]:
        """Why each sequence was refused a place in a step, or nothing."""

    def observe_steps(self) -> dict[int, dict[str, Any]] | None:
        """What the step table holds of each running sequence, by row; None without one."""

    def new_events(self, expected: list[dict[str, Any]]) -> Words:
        """Events of the last call, int64[n, 8]; ``expected`` are the reference's."""

    def check(self) -> None:
        """Check its own integrity."""


def outline_of_plan(plan: Plan) -> dict[str, Any]:
    """What is compared of a plan; (0, 0) where it pins none."""
    return {
        "source": plan.source,
        "resume_at": plan.resume_at,
        "captures": plan.captures,
        "found": plan.found,
        "blocks": list(plan.blocks),
        "partial": plan.partial or (0, 0),
        "checkpoint": plan.checkpoint or (0, 0),
        "load": astuple(plan.load) if plan.load else None,
    }


def replay(arena: Arena, words: Words) -> None:
    """Apply events; none may be refused."""
    applied = apply_events(arena, words)
    if applied != len(words):
        reason = refusal_text(int(arena[META_REFUSAL]))
        event = outline(words[applied : applied + 1])
        raise AssertionError(f"event {applied} of {len(words)} refused: {reason}: {event}")


class Applied:
    """Decides nothing: applies, one by one, the events that the reference names."""

    def __init__(self, case: Case) -> None:
        self.arena = new_arena(case.layout, case.params)
        self._num_events = 0

    def seed(self, model: str) -> bytes:
        return block_key(bytes(16), [], model.encode())

    def call(self, verb: str, arguments: tuple[Any, ...], expected: Outcome) -> Outcome:
        return expected

    def observe_steps(self) -> None:
        return None

    def plan_of(self, plan: Plan) -> dict[str, Any]:
        return outline_of_plan(plan)

    def refused(self, step: Step) -> list[str]:
        return step.refused

    def new_events(self, expected: list[dict[str, Any]]) -> Words:
        words = encode(expected, self._num_events + 1, 0)
        for index in range(len(words)):
            replay(self.arena, words[index : index + 1])
        self._num_events += len(words)
        return words

    def check(self) -> None:
        pass
