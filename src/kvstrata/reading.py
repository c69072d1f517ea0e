"""What an engine reads of a manager: where a sequence's pages are."""

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import Tables
from kvstrata.core.errors import ConfigError, StaleLease
from kvstrata.core.layout import CacheLayout
from kvstrata.core.states import PageState
from kvstrata.core.steps import (
    NUM_CAPTURES,
    STEP_CAPTURES,
    STEP_COMMITTED,
    STEP_EVERY,
    STEP_POSITION,
)
from kvstrata.core.words import (
    HOLDER_BLOCKS,
    HOLDER_ID,
    META_NUM_SEQUENCES,
    PAGE_GENERATION,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_FIRST,
    POOL_SLOTS,
    UNIT_OWNER,
    Arena,
)

from .caller import CoreCaller
from .ending import Ender
from .handles import Sequence
from .prompts import Prompts
from .requests import Plan

__all__ = ["PageReader"]


class PageReader:
    """The reading half of :class:`.manager.CacheManager`.

    Attributes:
        layout: the model's layout.
        arena: the manager's state.
        tables: views of it.
    """

    layout: CacheLayout
    arena: Arena
    tables: Tables
    _steps: Arena
    _call: CoreCaller
    _ender: Ender
    _prompts: Prompts

    def _row_of(self, identity: int) -> int:
        self._call.check()
        row = identity & 0xFFFF
        inside = 0 < row <= int(self.arena[META_NUM_SEQUENCES])
        if not inside or self.tables.holders[row, HOLDER_ID] != identity:
            raise StaleLease(f"sequence {identity:#x} has ended")
        if identity in self._ender.draining:
            raise StaleLease(f"sequence {identity:#x} was cancelled")
        return row

    def position(self, identity: int) -> int:
        """Committed tokens of a running sequence."""
        return int(self._steps[self._row_of(identity), STEP_POSITION])

    def captures(self, identity: int) -> tuple[int, ...]:
        """Positions at which a step of a running sequence must end: a checkpoint is taken there."""
        row = self._row_of(identity)
        steps, plan = self._steps[row], self._prompts.plan(row)
        wanted = set(steps[STEP_CAPTURES : STEP_CAPTURES + NUM_CAPTURES].tolist()) - {0}
        every = int(steps[STEP_EVERY])
        if every:
            first = (plan.resume_at // every + 1) * every
            wanted |= set(range(first, plan.prompt_tokens + 1, every))
        return tuple(sorted(wanted))

    def running_rows(self) -> list[int]:
        """Rows of the sequences that run."""
        return self._prompts.rows()

    def plan_of_row(self, row: int) -> Plan:
        """The plan that a row's sequence began on."""
        return self._prompts.plan(row)

    def page_generation(self, group: str, slot: int) -> int:
        """How often a page was taken from its pool.

        Raises:
            ConfigError: the pool has no such slot.
        """
        number = self.layout.group_id(group)
        first, slots = self.tables.pools[number, POOL_FIRST], self.tables.pools[number, POOL_SLOTS]
        if not 0 < slot < slots:
            raise ConfigError(f"{group}: expected a slot in 1 to {int(slots) - 1}, found {slot}")
        return int(self.tables.pages[int(first) + slot, PAGE_GENERATION])

    def block_slots(self, sequence: Sequence, group: str) -> npt.NDArray[np.int32]:
        """Slots of a sequence's pages of one history group, in order: int32[blocks]."""
        row = self._row_of(sequence.id)
        number = self.layout.group_id(group)
        if number >= len(self.layout.history_groups):
            raise ConfigError(f"block_slots: expected a history group, found {group!r}")
        blocks = self.tables.holder_blocks[row, : int(self.tables.holders[row, HOLDER_BLOCKS])]
        slots: npt.NDArray[np.int32] = self.tables.blocks.pages[blocks, number].astype(np.int32)
        return slots

    def image_slots(self, sequence: Sequence) -> dict[str, int]:
        """Group name → slot of the sequence's committed state image."""
        row = self._row_of(sequence.id)
        return self.slots_of_image(int(self._steps[row, STEP_COMMITTED]))

    def slots_of_image(self, image: int) -> dict[str, int]:
        """Group name → slot of one state image; empty where the layout has no state groups."""
        names = [group.name for group in self.layout.state_groups]
        return dict(zip(names, self.tables.images.pages[image].tolist(), strict=False))

    def writable(self, group: str, slots: npt.ArrayLike, sequence: Sequence | None = None) -> bool:
        """Whether every one of these pages may be written: reserved, in writing, or open.

        Args:
            group: name of the group.
            slots: int[n], of pages of its pool.
            sequence: whose pages they must be; None for anybody's.
        """
        number = self.layout.group_id(group)
        pool = self.tables.pools[number]
        wanted = np.asarray(slots, dtype=np.int64)
        if np.any((wanted <= 0) | (wanted >= pool[POOL_SLOTS])):
            return False
        pages = self.tables.pages[int(pool[POOL_FIRST]) + wanted]
        states = pages[:, PAGE_STATE]
        if not np.all((states >= PageState.RESERVED) & (states <= PageState.OPEN)):
            return False
        if sequence is None:
            return True
        is_block = number < len(self.layout.history_groups)
        units = self.tables.blocks if is_block else self.tables.images
        owners = units.rows[pages[:, PAGE_UNIT], UNIT_OWNER]
        return bool(np.all(owners == self._row_of(sequence.id)))
