"""Beginning sequences: admitted, validated, pinned all or nothing; resumed and forked."""

from typing import TYPE_CHECKING

import numpy as np

from kvstrata.core import begin as core_begin
from kvstrata.core import suspend as core_suspend
from kvstrata.core.errors import Deferred, KvstrataError, OutOfPages, StaleLease
from kvstrata.core.events import EventType, Reason
from kvstrata.core.index import find_unit
from kvstrata.core.layout import CacheLayout
from kvstrata.core.room import NO_ROOM, STALE
from kvstrata.core.steps import STEP_COMMITTED, STEP_IN_FLIGHT, STEP_POSITION
from kvstrata.core.words import (
    HOLDER_BLOCKS,
    HOLDER_ID,
    HOLDER_SEALED,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_STATE,
    Arena,
)

from .admitting import AdmissionControl
from .asking import ask_of
from .caller import CoreCaller, zeros
from .handles import Sequence
from .prompts import Prompts
from .requests import Plan, Request

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["Beginner"]

_READY, _IS_STALE = 2, 1
"""What ranks tell each other before they begin; 0 is no room."""
_RANK_RETRY_S = 0.01
"""When to ask again where another rank refused: it said so to its own engine only."""


class Beginner:
    """Begins the sequences of one manager.

    Args:
        manager: the manager.
        layout: its layout.
        call: runs compiled calls.
        prompts: tokens of running sequences.
        admission_control: asks the admission cap; None admits everybody.
    """

    def __init__(
        self,
        manager: "CacheManager",
        layout: CacheLayout,
        call: CoreCaller,
        prompts: Prompts,
        admission_control: AdmissionControl | None,
    ) -> None:
        self._manager = manager
        self._layout = layout
        self._call = call
        self._prompts = prompts
        self.admission_control = admission_control
        self._every = manager.config.checkpoints_every(layout)

    def begin(self, plan: Plan) -> Sequence:
        """See :meth:`.manager.CacheManager.begin`."""
        ticket = 0
        try:
            self._manager.check_admits()
            plan = self._manager.with_tiers(plan)
            while True:
                loaded = self._manager.loaded_tokens(plan)
                ask = ask_of(self._layout, plan, self._every, loaded)
                ticket = self._ready(plan, ask)
                better = self._manager.judged(plan)
                if better is None:
                    break
                self._give_back(ticket)
                plan, ticket = better(plan), 0
                if plan.load is not None:  # what was withdrawn here is stored
                    plan = self._manager.with_tiers(plan)
            sequence = self._begin(plan, ask)
        except KvstrataError:
            self._give_back(ticket)
            raise
        except BaseException as error:
            self._call.interrupted("begin", error)
            raise
        if self.admission_control is not None:
            self.admission_control.begun(ticket, sequence.id, len(plan.blocks))
        self._manager.request_began(plan)
        self._report_limit(plan)
        return sequence

    def withdraw(self, request: Request) -> None:
        """See :meth:`.manager.CacheManager.withdraw`."""
        if self.admission_control is not None:
            self.admission_control.forget(request)
        self._manager.request_withdrawn(request)

    def _ready(self, plan: Plan, ask: tuple[Arena, Arena]) -> int:
        """Admitted, fresh, and with room, on every rank; the ticket.

        Ranks must agree before any of them raises: one that went its own way would leave the others
        waiting for it.
        """
        refusal: KvstrataError | None = None
        ticket = 0
        try:
            self._check_room(ask)  # first: what does not fit must not pay
            ticket = self._admit(plan)
        except KvstrataError as error:
            refusal = error
        ranks = self._manager.ranks
        if ranks.size > 1:
            mine = _READY if refusal is None else _IS_STALE * isinstance(refusal, StaleLease)
            agreed = int(ranks.least(np.array([mine], dtype=np.int64))[0])
            if agreed == _IS_STALE and refusal is None:
                refusal = StaleLease("the plan's pages changed on another rank; match again")
            elif agreed < _READY and refusal is None:
                refusal = Deferred("another rank has no room for it now", _RANK_RETRY_S)
        if refusal is None:
            return ticket
        self._give_back(ticket)
        try:
            raise refusal
        finally:
            # An exception kept in a frame of its own traceback would keep the request alive.
            refusal = None

    def _check_room(self, ask: tuple[Arena, Arena]) -> None:
        code = core_begin.why_not(self._call.arena, *ask)
        if code == STALE:
            raise StaleLease("the plan's pages changed since it was made; match again")
        if code == NO_ROOM:
            raise self._no_room()

    def _admit(self, plan: Plan) -> int:
        return 0 if self.admission_control is None else self.admission_control.admit(plan)

    def _give_back(self, ticket: int) -> None:
        if self.admission_control is not None and ticket:
            self.admission_control.withdrawn(ticket)

    def _begin(self, plan: Plan, ask: tuple[Arena, Arena]) -> Sequence:
        manager, call = self._manager, self._call
        row = call.run(core_begin.begin, call.arena, manager._steps, call.ring, *ask)
        identity = int(manager.tables.holders[row, HOLDER_ID])
        self._prompts.begin(row, plan)
        if plan.checkpoint[0] or plan.partial[0]:
            if manager._storage is not None:
                committed = int(manager._steps[row, STEP_COMMITTED])
                if plan.checkpoint[0]:
                    manager._storage.copy_images([plan.checkpoint[0]], [committed])
                if plan.partial[0]:
                    manager._storage.copy_blocks([plan.partial[0]], [self._own_block(row)])
            code = call.run(
                core_begin.checkpoint_loaded, call.arena, manager._steps, call.ring, row
            )
            call.drain_limbo(code)
        return Sequence(manager, identity, plan)

    def _no_room(self) -> OutOfPages:
        return OutOfPages(
            "expected a free sequence row, images and a block for one more sequence, found "
            f"{self._manager.stats().describe_images()}; finish a sequence, or open the manager "
            "with more max_sequences or a larger budget"
        )

    def _own_block(self, row: int) -> int:
        """The first block of a sequence that is not sealed, or 0."""
        tables = self._manager.tables
        sealed, blocks = tables.holders[row, [HOLDER_SEALED, HOLDER_BLOCKS]].tolist()
        return int(tables.holder_blocks[row, sealed]) if sealed < blocks else 0

    def _report_limit(self, plan: Plan) -> None:
        """Log why no more is reused than is."""
        if plan.limited is None:
            return
        reason, here, agreed = plan.limited
        payload = zeros(4)
        payload[:2] = here, agreed
        self._call.note(EventType.HIT_LIMITED, payload, reason)
        self._manager.validator.failures[3, Reason(reason).name, ""] += 1

    def fork(self, parent: Sequence) -> Sequence:
        """See :meth:`.manager.CacheManager.fork`."""
        manager, call = self._manager, self._call
        of = manager._row_of(parent.id)
        if manager._steps[of, STEP_IN_FLIGHT]:
            raise StaleLease(
                f"sequence {parent.id:#x}: expected no step in flight to fork it, found "
                f"{int(manager._steps[of, STEP_IN_FLIGHT])}; commit or abort them"
            )
        ticket = 0
        try:
            self._validate_twins(parent, of)
            sealed = int(manager.tables.holders[of, HOLDER_SEALED])
            if self.admission_control is not None:
                ticket = self.admission_control.admit_fork(self._prompts.plan(of), sealed)
            child = self._fork(parent, of)
        except KvstrataError:
            self._give_back(ticket)
            raise
        except BaseException as error:
            call.interrupted("fork", error)
            raise
        if self.admission_control is not None:
            self.admission_control.begun(ticket, child.id, sealed)
        return child

    def _validate_twins(self, parent: Sequence, of: int) -> None:
        """Validate what a fork would share and its parent does not read itself.

        A parent's block that another had sealed before it is a duplicate of the one that is
        indexed; the fork shares that one.
        """
        tables = self._manager.tables
        mine = tables.holder_blocks[of, : int(tables.holders[of, HOLDER_SEALED])]
        keys = tables.blocks.rows[mine[tables.blocks.rows[mine, UNIT_STATE] != UNIT_INDEXED]]
        found = [
            int(find_unit(self._call.arena, True, int(row[UNIT_KEY_0]), int(row[UNIT_KEY_1])))
            for row in keys
        ]
        if not self._manager.sound(np.array([one for one in found if one], dtype=np.int64)):
            raise StaleLease(
                f"sequence {parent.id:#x}: a block of its prefix failed validation; begin anew"
            )

    def _fork(self, parent: Sequence, of: int) -> Sequence:
        manager, call = self._manager, self._call
        row = call.run(core_suspend.fork, call.arena, manager._steps, call.ring, of)
        if row == STALE:
            raise StaleLease(
                f"sequence {parent.id:#x}: a block of its prefix was withdrawn; begin anew"
            )
        if row == NO_ROOM:
            raise self._no_room()
        identity = int(manager.tables.holders[row, HOLDER_ID])
        self._prompts.fork(row, of)
        if manager._storage is not None:
            images = manager._steps[[of, row], STEP_COMMITTED].tolist()
            if images[0]:
                manager._storage.copy_images(images[:1], images[1:])
            block = self._own_block(row)
            if block:
                index = int(manager._steps[of, STEP_POSITION]) // self._layout.block_tokens
                source = int(manager.tables.holder_blocks[of, index])
                manager._storage.copy_blocks([source], [block])
        call.run(core_suspend.fork_loaded, call.arena, manager._steps, call.ring, row, of)
        return Sequence(manager, identity, self._prompts.plan(row))
