"""Block tables as static tensors: made once, filled in place, so that captured graphs keep them."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from kvstrata.core.block_tables import fill_block_table, fill_state_slots
from kvstrata.core.errors import CapacityError, ConfigError
from kvstrata.core.words import HOLDER_BLOCKS

from .integers import int64s

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["BlockTables"]


class BlockTables:
    """Slots of the sequences of a batch, by group.

    Slot 0 is scratch: it stands wherever a row has no page, and in every row without a sequence, so
    that padded and captured launches read and write nothing of anybody's.

    Attributes:
        blocks: history group → int32[max_batch, max_blocks].
        images: state group → int32[max_batch], slots of the committed images.
    """

    def __init__(self, manager: "CacheManager", max_batch: int, max_blocks: int) -> None:
        if max_batch < 1 or max_blocks < 1:
            raise ConfigError(
                f"block tables: expected at least one row and column, found {max_batch} and "
                f"{max_blocks}"
            )
        self._manager = manager
        layout = manager.layout
        self.blocks: dict[str, torch.Tensor] = {
            group.name: torch.zeros((max_batch, max_blocks), dtype=torch.int32)
            for group in layout.history_groups
        }
        self.images: dict[str, torch.Tensor] = {
            group.name: torch.zeros(max_batch, dtype=torch.int32) for group in layout.state_groups
        }
        self._lengths: dict[str, npt.NDArray[np.int64]] = {
            name: np.zeros(max_batch, dtype=np.int64) for name in self.blocks
        }
        self._max_batch = max_batch
        self._max_blocks = max_blocks

    def fill(self, sequences: npt.ArrayLike) -> None:
        """Write the tables for a batch, in place.

        Args:
            sequences: int64[n], ids of running sequences, n at most ``max_batch``; 0 leaves a row
                empty.

        Raises:
            StaleLease: an id is not that of a running sequence; nothing was written.
            CapacityError: a sequence has more blocks than the tables have columns; nothing was
                written.
            ConfigError: more sequences than rows.

        Mutates:
            the tensors.
        """
        manager = self._manager
        ids = int64s("sequences", sequences)
        if len(ids) > self._max_batch:
            raise ConfigError(f"expected at most {self._max_batch} sequences, found {len(ids)}")
        rows = np.array([manager._row_of(one) if one else 0 for one in ids.tolist()], np.int64)
        counts = manager.tables.holders[rows, HOLDER_BLOCKS]
        if len(counts) and int(counts.max()) > self._max_blocks:
            place = int(counts.argmax())
            raise CapacityError(
                f"block tables: expected at most {self._max_blocks} blocks, found "
                f"{counts[place]} in sequence {int(ids[place]):#x}; make the tables wider"
            )
        for name, table in self.blocks.items():
            group = manager.layout.group_id(name)
            fill_block_table(manager.arena, rows, group, table.numpy(), self._lengths[name])
        for name, slots in self.images.items():
            group = manager.layout.group_id(name)
            fill_state_slots(manager.arena, manager._steps, rows, group, slots.numpy())
