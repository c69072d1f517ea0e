"""The end of sequences: finished, suspended, cancelled, drained."""

from typing import TYPE_CHECKING

import numpy as np

from kvstrata.core import finish as core_finish
from kvstrata.core import suspend as core_suspend
from kvstrata.core.errors import StaleLease
from kvstrata.core.events import NO_CHECKSUM, Reason
from kvstrata.core.keys import words_key
from kvstrata.core.layout import CacheLayout
from kvstrata.core.room import MORE
from kvstrata.core.steps import STEP_COMMITTED, STEP_IN_FLIGHT
from kvstrata.core.words import HOLDER_ID, HOLDER_SEED_0, UNIT_KEY_0, Arena

from .caller import CoreCaller, zeros
from .handles import Sequence, Suspended
from .prompts import Prompts

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["Ender"]


class Ender:
    """Ends the sequences of one manager.

    Args:
        manager: the manager.
        layout: its layout.
        call: runs compiled calls.
        prompts: tokens of running sequences.
    """

    def __init__(
        self, manager: "CacheManager", layout: CacheLayout, call: CoreCaller, prompts: Prompts
    ) -> None:
        self._manager = manager
        self._layout = layout
        self._call = call
        self._prompts = prompts
        self.draining: set[int] = set()
        """Ids of cancelled sequences with something in flight."""

    def finish(self, sequence: Sequence) -> None:
        """See :meth:`.handles.Sequence.finish`."""
        row = self._idle_row(sequence)
        image = int(core_finish.rolling_to_seal(self._call.arena, self._manager._steps, row))
        self._end(sequence.id, Reason.FINISHED, image)

    def finish_id(self, identity: int) -> None:
        """Finish a running sequence by its id."""
        plan = self._prompts.plan(identity & 0xFFFF)
        self.finish(Sequence(self._manager, identity, plan))

    def suspend(self, sequence: Sequence) -> Suspended:
        """See :meth:`.handles.Sequence.suspend`."""
        row, steps = self._idle_row(sequence), self._manager._steps
        position = self._manager.position(sequence.id)
        request = self._prompts.plan(row).request
        kept = int(core_suspend.state_to_keep(self._call.arena, steps, row)) > 0
        if kept:
            try:
                self._keep_state(row, position)
                self._end(sequence.id, Reason.SUSPENDED, 0)
            except BaseException as error:
                self._call.interrupted("suspend", error)
                raise
        else:
            self._end(sequence.id, Reason.SUSPENDED, 0)
        return Suspended(request, position, kept)

    def _keep_state(self, row: int, position: int) -> None:
        call, manager = self._call, self._manager
        index, inside = divmod(position, self._layout.block_tokens)
        before = self._key_before(row, index)
        key = zeros(2)
        block_sums = zeros(len(self._layout.history_groups))
        image_sums = zeros(max(len(self._layout.state_groups), 1))
        key[:] = before
        if inside:
            key[:] = self._prompts.key_inside(row, position, words_key(*before.tolist()))
        if manager._storage is not None:
            if inside:
                block = int(manager.tables.holder_blocks[row, index])
                block_sums = manager._storage.block_checksums(np.array([block]))[0]
            image = int(manager._steps[row, STEP_COMMITTED])
            if image:
                image_sums = manager._storage.image_checksums(np.array([image]))[0]
        call.run(
            core_suspend.keep_state,
            call.arena,
            manager._steps,
            call.ring,
            row,
            key,
            block_sums,
            image_sums,
            NO_CHECKSUM if manager._storage is None else 0,
        )

    def _key_before(self, row: int, index: int) -> Arena:
        """Key of a sequence's block before place ``index``, or its seed: int64[2]."""
        tables = self._manager.tables
        if index == 0:
            return tables.holders[row, HOLDER_SEED_0 : HOLDER_SEED_0 + 2]
        block = int(tables.holder_blocks[row, index - 1])
        return tables.blocks.rows[block, UNIT_KEY_0 : UNIT_KEY_0 + 2]

    def cancel(self, sequence: Sequence) -> None:
        """See :meth:`.handles.Sequence.cancel`."""
        manager = self._manager
        row = manager._row_of(sequence.id)
        if not manager._steps[row, STEP_IN_FLIGHT]:
            self._end(sequence.id, Reason.CANCELLED, 0)
            return
        code = MORE
        while code == MORE:
            code = self._call.run(
                core_finish.cancel_in_flight,
                self._call.arena,
                manager._steps,
                self._call.ring,
                sequence.id,
            )
        self.draining.add(sequence.id)

    def end_drained(self) -> None:
        """End the cancelled sequences for which nothing is in flight any more."""
        for identity in sorted(self.draining):
            if not self._manager._steps[identity & 0xFFFF, STEP_IN_FLIGHT]:
                self.draining.remove(identity)
                self._end(identity, Reason.CANCELLED, 0)

    def _idle_row(self, sequence: Sequence) -> int:
        row = self._manager._row_of(sequence.id)
        in_flight = int(self._manager._steps[row, STEP_IN_FLIGHT])
        if in_flight:
            raise StaleLease(
                f"sequence {sequence.id:#x}: expected no step in flight, found {in_flight}; "
                "commit or abort them, or cancel it"
            )
        return row

    def _end(self, identity: int, reason: Reason, image: int) -> None:
        manager, call = self._manager, self._call
        sums = zeros(max(len(self._layout.state_groups), 1))
        if image and manager._storage is not None:
            sums = manager._storage.image_checksums(np.array([image]))[0]
        flags = NO_CHECKSUM if manager._storage is None else 0
        how = np.array([int(reason), image, flags], dtype=np.int64)
        arguments = (call.arena, manager._steps, call.ring, identity, sums, how)
        try:
            code = call.run(core_finish.end_sequence, *arguments)
            row = identity & 0xFFFF
            while code == MORE and manager.tables.holders[row, HOLDER_ID] == identity:
                code = call.run(core_finish.end_sequence, *arguments)
            self._prompts.end(row)
            manager.sequence_ended(identity)
            call.drain_limbo(code)
        except BaseException as error:
            call.interrupted("the end of a sequence", error)
            raise
