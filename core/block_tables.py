"""Block tables: slots by sequence and block, for kernels to read. Filled in place, never moved."""

import numpy as np
import numpy.typing as npt

from .compile import compiled
from .steps import STEP_COMMITTED
from .views import holder_blocks, holder_table, unit_pages
from .words import HOLDER_BLOCKS, META_NUM_HISTORY, Arena

__all__ = ["fill_block_table", "fill_state_slots"]

Slots = npt.NDArray[np.int32]


@compiled
def fill_block_table(arena: Arena, rows: Arena, group: int, table: Slots, lengths: Arena) -> None:
    """Write the slots of a batch of sequences; what a row held before and holds no more becomes 0.

    Args:
        arena: the arena; read only.
        rows: int64[n], the sequences' rows, none with more blocks than the table is wide; 0 leaves
            the row of the table empty.
        group: a history group.
        table: int32[batch, width], row ``i`` for the ``i``-th sequence; rows from n on are emptied.
        lengths: int64[batch], slots that each row holds.

    Mutates:
        table, lengths.
    """
    for place in range(table.shape[0]):
        row = rows[place] if place < rows.shape[0] else 0
        count = holder_table(arena)[row, HOLDER_BLOCKS] if row != 0 else 0
        count = min(count, table.shape[1])
        for index in range(count):
            table[place, index] = unit_pages(arena, True)[holder_blocks(arena)[row, index], group]
        for index in range(count, lengths[place]):
            table[place, index] = 0
        lengths[place] = count


@compiled
def fill_state_slots(arena: Arena, steps: Arena, rows: Arena, group: int, slots: Slots) -> None:
    """Write the slot of each sequence's committed state image; 0 where there is none.

    Args:
        arena: the arena; read only.
        steps: the step table.
        rows: int64[n], the sequences' rows, 0 for none.
        group: a state group.
        slots: int32[batch], those from n on become 0.

    Mutates:
        slots.
    """
    part = group - arena[META_NUM_HISTORY]
    for place in range(slots.shape[0]):
        row = rows[place] if place < rows.shape[0] else 0
        slots[place] = unit_pages(arena, False)[steps[row, STEP_COMMITTED], part] if row != 0 else 0
