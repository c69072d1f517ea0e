"""The real manager as a subject: metadata alone, no directory, its events read from its ring."""

from itertools import chain
from typing import Any

import numpy as np

from kvstrata import (
    CacheConfig,
    CacheManager,
    ConfigError,
    InvariantViolation,
    LogConfig,
    OutOfPages,
    StaleLease,
)
from kvstrata.core.arena import new_arena
from kvstrata.core.crash import end_incarnation
from kvstrata.core.events import EVENT_WORDS, EventType
from kvstrata.core.integrity import find_violations
from kvstrata.core.planner import Rates
from kvstrata.core.ring import RING_HEAD, RING_HEADER_WORDS
from kvstrata.core.room import MORE
from kvstrata.core.steps import (
    STEP_COMMITTED,
    STEP_EXACT,
    STEP_FRONT,
    STEP_IN_FLIGHT,
    STEP_POSITION,
    STEP_ROLLING,
    STEP_ROLLING_POSITION,
    STEP_WRITTEN,
)
from kvstrata.core.words import (
    HOLDER_KIND,
    HOLDER_SEQUENCE,
    PAGE_GENERATION,
    POOL_FIRST,
    Arena,
)
from kvstrata.handles import Lease, Sequence, Step, Suspended
from kvstrata.requests import Plan, Request
from kvstrata.storage import BadPage

from .cases import Case
from .live_tiers import LiveTiers
from .pair import Prompt
from .subjects import Outcome, Words

REFUSALS = ("", "LONG", "BUSY", "PAGES")


class Live(LiveTiers):
    """Calls a manager as an engine does."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._config = CacheConfig(
            slots=case.slots,
            max_sequences=case.max_sequences,
            max_leases=case.max_leases,
            max_tokens_per_sequence=case.max_blocks_per_sequence * case.block_tokens,
            images_per_sequence=case.images_per_sequence,
            rates=Rates(case.tokens_per_s, case.bytes_per_s, case.load_bytes_per_s),
            checkpoint_every=case.checkpoint_every,
            admission=None,
            log=LogConfig(ring_events=case.ring_events),
        )
        self.readable = 255
        self.manager = CacheManager.open(case.layout, self._config)
        if case.stored_keys:
            self._come_up(new_arena(case.layout, case.params), self.manager._call.ring)
            self.manager._come_up()
        self._seen = 0

    @property
    def arena(self) -> Arena:
        return self.manager.arena

    def seed(self, model: str) -> bytes:
        return Request(np.zeros(1, dtype=np.int32), model).seed(self._case.block_tokens)

    def call(self, verb: str, arguments: tuple[Any, ...], expected: Outcome) -> Outcome:
        try:
            return "done", getattr(self, f"_{verb}")(*arguments)
        except OutOfPages as error:
            return "NoRoom", error
        except StaleLease as error:
            stale = verb in ("begin", "lease", "load") or (
                verb == "fork" and expected[0] == "Stale"
            )
            return "Stale" if stale else "Misuse", error
        except ConfigError as error:
            return "Misuse", error
        except InvariantViolation as error:
            return "violated", error

    def _match(self, prompt: Prompt) -> Plan:
        tokens = np.array(prompt.tokens, dtype=np.int32)
        request = Request(tokens, prompt.model, extras=prompt.extras, max_resume=prompt.max_resume)
        return self.manager.match(request, at=prompt.at)

    def _begin(self, plan: Plan) -> Sequence:
        if plan.load is not None:
            plan = self.manager._planner.plan(plan.request, stored=False)
        return self.manager.begin(plan)

    def _reserve(self, wanted: list[tuple[Sequence, int]]) -> Step:
        ids = np.array([sequence.id for sequence, _ in wanted], dtype=np.int64)
        return self.manager.reserve(ids, np.array([m for _, m in wanted], dtype=np.int32))

    def _commit(
        self, step: Step, accepted: list[int] | None, tokens: list[list[int]] | None
    ) -> None:
        step.commit(
            None if accepted is None else np.array(accepted, dtype=np.int32),
            None if tokens is None else np.array([*chain(*tokens)], dtype=np.int32),
        )

    def _abort(self, step: Step) -> None:
        step.abort()

    def _finish(self, sequence: Sequence) -> None:
        sequence.finish()

    def _cancel(self, sequence: Sequence) -> None:
        sequence.cancel()

    def _suspend(self, sequence: Sequence) -> Suspended:
        return self.manager.suspend(sequence)

    def _resume(self, suspended: Suspended, tokens: tuple[int, ...]) -> Sequence:
        request = suspended.with_tokens(np.array(tokens, dtype=np.int32))
        return self._begin(self.manager.match(request, suspended.position))

    def _fork(self, sequence: Sequence) -> Sequence:
        return self.manager.fork(sequence)

    def _lease(self, plan: Plan) -> Lease:
        return self.manager.lease(plan)

    def _release(self, lease: Lease) -> None:
        lease.release()

    def _quarantine(self, group: int, slot: int) -> None:
        first = int(self.manager.tables.pools[group, POOL_FIRST])
        generation = int(self.manager.tables.pages[first + slot, PAGE_GENERATION])
        self.manager.quarantine(BadPage(group, slot, generation, 1, 2))

    def _crash(self, bytes_trusted: bool) -> None:
        """A manager that comes up on the tables as the one before left them."""
        arena, ring, call = self.manager.arena, self.manager._call.ring, self.manager._call
        nothing = np.zeros(4, dtype=np.int64)
        call.note(EventType.RECOVERY_BEGUN, nothing)
        code = MORE
        while code == MORE:
            code = call.run(end_incarnation, arena, ring, bytes_trusted)
        call.note(EventType.RECOVERY_ENDED, nothing)
        self._come_up(arena, ring)

    def _come_up(self, arena: Arena, ring: Arena) -> None:
        self.manager = CacheManager(self._case.layout, self._config, arena, ring, None)
        if self._case.stored_keys:
            self.manager._planner.tiers = lambda: self.readable

    def plan_of(self, plan: Plan) -> dict[str, Any]:
        return {
            "source": plan.source,
            "resume_at": plan.resume_at,
            "captures": plan.captures,
            "found": plan.history_tokens // self._case.block_tokens,
            "blocks": [(block, generation) for block, generation in plan.blocks.tolist()],
            "partial": plan.partial,
            "checkpoint": plan.checkpoint,
            "load": plan.load and tuple(plan.load),
        }

    def refused(self, step: Step) -> list[str]:
        return [REFUSALS[code] for code in step.refused.tolist()]

    def observe_steps(self) -> dict[int, dict[str, Any]]:
        table = self.manager._steps.tolist()
        kinds = self.manager.tables.holders[:, HOLDER_KIND].tolist()
        return {
            row: {
                "position": this[STEP_POSITION],
                "exact": this[STEP_EXACT],
                "written": this[STEP_WRITTEN],
                "steps in flight": this[STEP_IN_FLIGHT],
                "committed": this[STEP_COMMITTED],
                "front": this[STEP_FRONT],
                "rolling": (this[STEP_ROLLING], this[STEP_ROLLING_POSITION]),
            }
            for row, this in enumerate(table)
            if row > 0 and kinds[row] == HOLDER_SEQUENCE
        }

    def new_events(self, expected: list[dict[str, Any]]) -> Words:
        ring = self.manager._call.ring
        events = ring[RING_HEADER_WORDS:].reshape(-1, EVENT_WORDS)
        seqnos = np.arange(self._seen, int(ring[RING_HEAD]))
        if len(seqnos) > len(events):
            raise AssertionError("one verb wrote more events than the ring holds: some are lost")
        self._seen = int(ring[RING_HEAD])
        return events[seqnos % len(events)]

    def check(self) -> None:
        lines = find_violations(self.arena)
        if lines:
            raise AssertionError("; ".join(lines))
