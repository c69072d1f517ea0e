"""Sequences that run, and leases held outside them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kvstrata.core.arena import Tables
from kvstrata.core.words import (
    HOLDER_BLOCKS,
    HOLDER_CHECKPOINT,
    HOLDER_DRAINING,
    HOLDER_FREE,
    HOLDER_ID,
    HOLDER_KIND,
    HOLDER_LEASE,
    HOLDER_LEASED,
    HOLDER_NUM_IMAGES,
    HOLDER_OWNER,
    HOLDER_PROMPT,
    HOLDER_SEALED,
    HOLDER_TAINTED,
    META_BLOCK_TOKENS,
    META_NUM_SEQUENCES,
    UNIT_KEY_0,
    UNIT_KEY_1,
)
from kvstrata.operating import PIN_OWNER

from .words import hex_key

__all__ = ["leases", "sequences"]

_LOW: Final = 0xFFFF_FFFF


def sequences(tables: Tables, start: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    """Running sequences by row.

    Args:
        tables: held still by the caller.
        start: the first row to look at.
        limit: at most so many.

    Returns:
        Rows, and what is known of the sequence in each.
    """
    last = int(tables.meta[META_NUM_SEQUENCES])
    rows = tables.holders[: last + 1]
    taken = np.flatnonzero(rows[:, HOLDER_KIND] != HOLDER_FREE)
    block_tokens = int(tables.meta[META_BLOCK_TOKENS])
    found = []
    for row in taken[taken >= max(start, 1)][:limit].tolist():
        holder = rows[row]
        found.append(
            (
                row,
                {
                    "id": int(holder[HOLDER_ID]),
                    "state": "draining" if holder[HOLDER_KIND] == HOLDER_DRAINING else "running",
                    "prompt_tokens": int(holder[HOLDER_PROMPT]),
                    "sealed_tokens": int(holder[HOLDER_SEALED]) * block_tokens,
                    "num_blocks": int(holder[HOLDER_BLOCKS]),
                    "num_blocks_reused": int(holder[HOLDER_LEASED]),
                    "num_images": int(holder[HOLDER_NUM_IMAGES]),
                    "is_tainted": bool(holder[HOLDER_TAINTED]),
                },
            )
        )
    return found


def leases(tables: Tables, start: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    """Leases held outside sequences by row; see :func:`sequences`."""
    first = int(tables.meta[META_NUM_SEQUENCES]) + 1
    kinds = tables.holders[:, HOLDER_KIND]
    held = np.flatnonzero(kinds == HOLDER_LEASE)
    found = []
    for row in held[held >= max(start, first)][:limit].tolist():
        holder = tables.holders[row]
        num_blocks, owner = int(holder[HOLDER_BLOCKS]), int(holder[HOLDER_OWNER])
        key = None
        if num_blocks:
            last = tables.blocks.rows[tables.holder_blocks[row, num_blocks - 1]]
            key = hex_key(int(last[UNIT_KEY_0]), int(last[UNIT_KEY_1]))
        is_pin = owner & ~_LOW == PIN_OWNER
        held_for = "spiller" if owner else "engine"
        found.append(
            (
                row,
                {
                    "id": int(holder[HOLDER_ID]),
                    "held_for": "operator" if is_pin else held_for,
                    "command": owner & _LOW if is_pin else None,
                    "num_blocks": num_blocks,
                    "key": key,
                    "has_checkpoint": bool(holder[HOLDER_CHECKPOINT]),
                },
            )
        )
    return found
