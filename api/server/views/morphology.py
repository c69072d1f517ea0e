"""The morphology of one page, and of one token segment over all groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvstrata.core.arena import Tables
from kvstrata.core.index import find_unit
from kvstrata.core.layout import CacheLayout
from kvstrata.core.states import PageState
from kvstrata.core.stored import tiers_of
from kvstrata.core.words import (
    ABI_MASK,
    HOLDER_BLOCKS,
    HOLDER_CHECKPOINT,
    HOLDER_FREE,
    HOLDER_ID,
    HOLDER_IMAGES,
    HOLDER_KIND,
    HOLDER_LEASE,
    HOLDER_PARTIAL,
    META_NUM_HISTORY,
    PAGE_ENTRIES,
    PAGE_HEAD,
    PAGE_STAMP,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_ENTRIES,
    POOL_FIRST,
    POOL_PARTNER,
    POOL_ROWS,
    POOL_WINDOW,
    STAMP_DIRTY,
    STAMP_OVERLAP,
    UNIT_CANONICAL,
    UNIT_GENERATION,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_LAST_USE,
    UNIT_PARENT_KEY_0,
    UNIT_PARENT_KEY_1,
    UNIT_REFS,
    UNIT_RESUMES,
    UNIT_SEALED,
    UNIT_STATE,
    VERSION_MASK,
)

from .pages import bit_names, reader_of
from .words import hex_key

__all__ = ["MOST_CHILDREN", "page_details", "segment_of"]

MOST_CHILDREN = 100
_AWAITING = {"COMPRESSED": "compression", "INDEXER": "compression"}


def page_details(tables: Tables, layout: CacheLayout, index: int, group: int) -> dict[str, Any]:
    """What a row of the listing leaves out about a page.

    Args:
        tables: held still by the caller.
        layout: the layout.
        index: row of the page in the table of pages.
        group: number of its group.
    """
    pool, page = tables.pools[group], tables.pages[index]
    is_block = group < int(tables.meta[META_NUM_HISTORY])
    kind = layout.groups[group].kind.name
    state, stamp = PageState(int(page[PAGE_STATE])), int(page[PAGE_STAMP])
    is_free = state is PageState.FREE
    is_stamped = state in (PageState.SEALED, PageState.QUARANTINED)
    is_filling = state in (PageState.OPEN, PageState.WRITING)
    unit = 0 if is_free else int(page[PAGE_UNIT])
    version = stamp & VERSION_MASK
    return {
        "entries_when_full": int(pool[POOL_ENTRIES]) if is_block else int(pool[POOL_ROWS]),
        "awaiting": _AWAITING.get(kind, "filling") if is_filling else None,
        "window_tokens": int(pool[POOL_WINDOW]),
        "ring_rows": int(pool[POOL_ROWS]),
        "ring_head": None if is_free or is_block else int(page[PAGE_HEAD]),
        "stamp": {
            "abi": stamp >> 32 & ABI_MASK,
            "version": version,
            "is_dirty": bool(stamp & STAMP_DIRTY),
            "has_overlap": bool(stamp & STAMP_OVERLAP),
        }
        if is_stamped
        else None,
        "reader": reader_of(pool),
        "index_version": _partner_version(tables, group, is_block, unit) if is_stamped else None,
        "unit": None if is_free else _unit(tables, layout, is_block, unit),
        "holders": [] if is_free else holders_of(tables, is_block, unit),
    }


def _partner_version(tables: Tables, group: int, is_block: bool, unit: int) -> int | None:
    """Version stamp of the INDEXER page of the same block; of an index, of what it indexes."""
    if not is_block:
        return None
    partner = int(tables.pools[group, POOL_PARTNER]) - 1
    if partner < 0:  # a compressed group: the index that points at it
        of_indexes = np.flatnonzero(
            tables.pools[: tables.blocks.pages.shape[1], POOL_PARTNER] == group + 1
        )
        partner = int(of_indexes[0]) if len(of_indexes) else -1
    slot = int(tables.blocks.pages[unit, partner]) if partner >= 0 else 0
    if not slot:
        return None
    row = tables.pages[int(tables.pools[partner, POOL_FIRST]) + slot]
    return int(row[PAGE_STAMP]) & VERSION_MASK


def _unit(tables: Tables, layout: CacheLayout, is_block: bool, number: int) -> dict[str, Any]:
    """The block or image that a page belongs to, with all its pages side by side."""
    units = tables.blocks if is_block else tables.images
    row = units.rows[number]
    parent = int(row[UNIT_PARENT_KEY_0]), int(row[UNIT_PARENT_KEY_1])
    return {
        "kind": "block" if is_block else "image",
        "number": number,
        "generation": int(row[UNIT_GENERATION]),
        "state": ("free", "building", "indexed", "unindexed")[int(row[UNIT_STATE])],
        "references": int(row[UNIT_REFS]),
        "parent_key": hex_key(*parent) if is_block else None,
        "canonical": int(row[UNIT_CANONICAL]) or None,
        "num_sealed_pages": int(row[UNIT_SEALED]),
        "last_use_seqno": int(row[UNIT_LAST_USE]) or None,
        "resumes": None if is_block else int(row[UNIT_RESUMES]),
        "pages": _unit_pages(tables, layout, is_block, number),
    }


def _unit_pages(
    tables: Tables, layout: CacheLayout, is_block: bool, number: int
) -> list[dict[str, Any]]:
    units = tables.blocks if is_block else tables.images
    first = 0 if is_block else int(tables.meta[META_NUM_HISTORY])
    found = []
    for part, slot in enumerate(units.pages[number].tolist()):
        if slot:
            row = tables.pages[int(tables.pools[first + part, POOL_FIRST]) + slot]
            found.append(
                {
                    "group": layout.groups[first + part].name,
                    "kind": layout.groups[first + part].kind.name,
                    "page": slot,
                    "state": PageState(int(row[PAGE_STATE])).name,
                    "entries": int(row[PAGE_ENTRIES]),
                }
            )
    return found


def holders_of(tables: Tables, is_block: bool, unit: int) -> list[dict[str, Any]]:
    """The sequences and leases that hold a block or image."""
    holders = tables.holders
    alive = holders[:, HOLDER_KIND] != HOLDER_FREE
    if is_block:
        width = np.arange(tables.holder_blocks.shape[1])
        lived = np.flatnonzero(alive)
        held = tables.holder_blocks[lived] == unit
        held &= width[None, :] < holders[lived, HOLDER_BLOCKS][:, None]
        has = held.any(axis=1) | (holders[lived, HOLDER_PARTIAL] == unit)
        rows = lived[has]
    else:
        has = (holders[:, HOLDER_IMAGES:] == unit).any(axis=1)
        rows = np.flatnonzero(alive & (has | (holders[:, HOLDER_CHECKPOINT] == unit)))
    return [
        {
            "kind": "lease" if holders[row, HOLDER_KIND] == HOLDER_LEASE else "sequence",
            "id": int(holders[row, HOLDER_ID]),
        }
        for row in rows
    ]


def segment_of(
    tables: Tables, layout: CacheLayout, key: tuple[int, int], tier_names: tuple[str, ...]
) -> dict[str, Any] | None:
    """All groups of the token segment that ends with a key, side by side.

    Args:
        tables: held still by the caller.
        layout: the layout.
        key: its two words.
        tier_names: of the tiers below the device.

    Returns:
        None where nothing of it is here or in a tier.
    """
    arena = tables.arena
    found: dict[str, Any] = {"key": hex_key(*key), "block_tokens": layout.block_tokens}
    is_here = False
    for name, is_block in (("block", True), ("checkpoint", False)):
        number = int(find_unit(arena, is_block, *key))
        stored = int(tiers_of(arena, not is_block, *key))
        is_here = is_here or bool(number) or bool(stored)
        found[name] = _unit(tables, layout, is_block, number) if number else None
        found[f"{name}_tiers"] = [
            *(["device"] if number else []),
            *bit_names(stored, tier_names),
        ]
    if not is_here:
        return None
    rows = tables.blocks.rows[:-2]
    below = (rows[:, UNIT_PARENT_KEY_0] == key[0]) & (rows[:, UNIT_PARENT_KEY_1] == key[1])
    children = np.flatnonzero(below & (rows[:, UNIT_STATE] == UNIT_INDEXED))
    found["num_children"] = len(children)
    found["children"] = [
        hex_key(int(rows[child, UNIT_KEY_0]), int(rows[child, UNIT_KEY_1]))
        for child in children[:MOST_CHILDREN]
    ]
    return found
