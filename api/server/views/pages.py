"""Pages of the pools: which ones a question asks for, and a row about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import Tables, Units
from kvstrata.core.layout import CacheLayout
from kvstrata.core.states import PageState
from kvstrata.core.stored import tiers_of_all
from kvstrata.core.words import (
    CHECKPOINT_TIERS,
    HOLDER_BLOCKS,
    HOLDER_CHECKPOINT,
    HOLDER_ID,
    HOLDER_IMAGES,
    HOLDER_KIND,
    HOLDER_NUM_IMAGES,
    HOLDER_PARTIAL,
    KERNEL_READY,
    MAPPING_READY,
    META_NUM_HISTORY,
    PAGE_CHECKSUM,
    PAGE_ENTRIES,
    PAGE_GENERATION,
    PAGE_SEQNO,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_ABI,
    POOL_FIRST,
    POOL_READY,
    POOL_SLOTS,
    POOL_VERSION,
    TIERS_MASK,
    UNIT_BUILDING,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_OWNER,
    UNIT_POSITION,
    UNIT_REFS,
    UNIT_STATE,
)

from .words import hex_key, hex_word

__all__ = [
    "PageQuestion",
    "PageRows",
    "bit_names",
    "describe_rows",
    "find_pages",
    "page_index",
    "reader_of",
    "take_rows",
    "tier_bits",
]

Indices = npt.NDArray[np.int64]
_CHUNK: Final = 1 << 16
_ALL_BUT_FREE: Final = tuple(state for state in PageState if state is not PageState.FREE)


@dataclass(frozen=True)
class PageQuestion:
    """Which pages are asked for; what is None or empty limits nothing.

    Attributes:
        groups: numbers of groups.
        states: states; all but FREE where empty.
        tier: 0 the device, n the tier of bit n - 1: pages whose object lies there too.
        sequence: id of a sequence or lease that holds them.
        key: of the prefix that ends with them.
        changed_after: changed after this event.
        changed_before: changed before this event.
    """

    groups: tuple[int, ...] = ()
    states: tuple[PageState, ...] = ()
    tier: int | None = None
    sequence: int | None = None
    key: tuple[int, int] | None = None
    changed_after: float | None = None
    changed_before: float | None = None


@dataclass(frozen=True)
class PageRows:
    """Copies of what the tables say of some pages.

    Attributes:
        groups: int64[n], numbers of their groups.
        slots: int64[n], in their pools.
        pages: int64[n, PAGE_WORDS].
        units: int64[n, UNIT_WORDS], of the block or image that each belongs to.
        owners: int64[n], ids of the sequences that units being built belong to.
        tiers: int64[n], a bit for each tier below the device that holds the object of the key.
    """

    groups: Indices
    slots: Indices
    pages: Indices
    units: Indices
    owners: Indices
    tiers: Indices


def page_index(tables: Tables, group: int, slot: int) -> int | None:
    """Row of a page in the table of pages, None where the pool has no such slot."""
    pool = tables.pools[group]
    return int(pool[POOL_FIRST]) + slot if 0 < slot < int(pool[POOL_SLOTS]) else None


def find_pages(tables: Tables, question: PageQuestion, start: int, limit: int) -> Indices:
    """The next pages that a question asks for, in the order of the table.

    Args:
        tables: held still by the caller.
        question: which.
        start: rows before this one were given before.
        limit: at most so many.

    Returns:
        int64[n], rows of the table of pages.
    """
    wanted = _candidates(tables, question)
    found: list[Indices] = []
    count = 0
    for group in range(len(tables.pools)):
        if question.groups and group not in question.groups:
            continue
        first, slots = int(tables.pools[group, POOL_FIRST]), int(tables.pools[group, POOL_SLOTS])
        for at in range(max(first + 1, start), first + slots, _CHUNK):
            end = min(at + _CHUNK, first + slots)
            if wanted is None:
                indices = np.flatnonzero(_matches(tables, question, slice(at, end))) + at
            else:
                indices = wanted[(wanted >= at) & (wanted < end)]
                indices = indices[_matches(tables, question, indices)]
            if question.tier and len(indices):
                indices = indices[_is_in_tier(tables, group, indices, question.tier)]
            found.append(indices[: limit - count])
            count += len(found[-1])
            if count == limit:
                return np.concatenate(found)
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _matches(
    tables: Tables, question: PageQuestion, which: slice | Indices
) -> npt.NDArray[np.bool_]:
    allowed = np.zeros(len(PageState), dtype=bool)
    allowed[list(question.states or _ALL_BUT_FREE)] = True
    matches: npt.NDArray[np.bool_] = allowed[tables.pages[which, PAGE_STATE]]
    if question.changed_after is not None:
        matches &= tables.pages[which, PAGE_SEQNO] > question.changed_after
    if question.changed_before is not None:
        matches &= tables.pages[which, PAGE_SEQNO] < question.changed_before
    return matches


def _is_in_tier(tables: Tables, group: int, indices: Indices, tier: int) -> npt.NDArray[np.bool_]:
    is_block = group < int(tables.meta[META_NUM_HISTORY])
    units = (tables.blocks if is_block else tables.images).rows[tables.pages[indices, PAGE_UNIT]]
    found: npt.NDArray[np.bool_] = _tiers(tables, is_block, units) & (1 << tier - 1) != 0
    return found


def _tiers(tables: Tables, is_block: bool, units: Indices) -> Indices:
    keys = np.ascontiguousarray(units[:, UNIT_KEY_0 : UNIT_KEY_1 + 1])
    tiers = np.zeros(len(units), dtype=np.int64)
    if len(tables.stored) > 1 and len(units):
        tiers_of_all(tables.arena, not is_block, keys, tiers)
        tiers[(keys == 0).all(axis=1)] = 0
    return tiers


def _candidates(tables: Tables, question: PageQuestion) -> Indices | None:
    """Rows of the pages of a sequence or a key, ascending; None where neither is asked for."""
    if question.sequence is None and question.key is None:
        return None
    blocks: Indices | None = None
    images: Indices | None = None
    if question.sequence is not None:
        blocks, images = _held(tables, question.sequence)
    if question.key is not None:
        of_key = [_of_key(units, question.key) for units in (tables.blocks, tables.images)]
        blocks = of_key[0] if blocks is None else np.intersect1d(blocks, of_key[0])
        images = of_key[1] if images is None else np.intersect1d(images, of_key[1])
    history = int(tables.meta[META_NUM_HISTORY])
    rows = []
    for units, numbers, first_group in (
        (tables.blocks, blocks, 0),
        (tables.images, images, history),
    ):
        if numbers is None or not len(numbers):
            continue
        slots = units.pages[numbers]
        firsts = tables.pools[first_group : first_group + slots.shape[1], POOL_FIRST]
        rows.append((slots + firsts)[slots != 0])
    return np.unique(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64)


def _held(tables: Tables, identity: int) -> tuple[Indices, Indices]:
    """Blocks and images that a sequence or lease holds."""
    row = identity & 0xFFFF
    none = np.zeros(0, dtype=np.int64)
    if not 0 < row < len(tables.holders):
        return none, none
    holder = tables.holders[row]
    if not holder[HOLDER_KIND] or holder[HOLDER_ID] != identity:
        return none, none
    blocks = [*tables.holder_blocks[row, : int(holder[HOLDER_BLOCKS])], holder[HOLDER_PARTIAL]]
    own = holder[HOLDER_IMAGES : HOLDER_IMAGES + int(holder[HOLDER_NUM_IMAGES])]
    images = [*own, holder[HOLDER_CHECKPOINT]]
    return np.unique([n for n in blocks if n]).astype(np.int64), np.unique(
        [n for n in images if n]
    ).astype(np.int64)


def _of_key(units: Units, key: tuple[int, int]) -> Indices:
    if key == (0, 0):  # the words of units that have none yet
        return np.zeros(0, dtype=np.int64)
    rows = units.rows[:-2]
    same = (rows[:, UNIT_KEY_0] == key[0]) & (rows[:, UNIT_KEY_1] == key[1])
    return np.flatnonzero(same & (rows[:, UNIT_STATE] != 0))


def take_rows(tables: Tables, indices: Indices) -> PageRows:
    """Copy what the tables say of some pages.

    Args:
        tables: held still by the caller.
        indices: int64[n], ascending rows of the table of pages.
    """
    history = int(tables.meta[META_NUM_HISTORY])
    groups = np.searchsorted(tables.pools[:, POOL_FIRST], indices, side="right") - 1
    pages = tables.pages[indices]
    units = np.zeros((len(indices), tables.blocks.rows.shape[1]), dtype=np.int64)
    tiers = np.zeros(len(indices), dtype=np.int64)
    is_taken = pages[:, PAGE_STATE] != PageState.FREE
    for is_block, table in ((True, tables.blocks), (False, tables.images)):
        these = is_taken & ((groups < history) == is_block)
        units[these] = table.rows[pages[these, PAGE_UNIT]]
        tiers[these] = _tiers(tables, is_block, units[these])
    building = units[:, UNIT_STATE] == UNIT_BUILDING
    owners = np.where(building, tables.holders[units[:, UNIT_OWNER] * building, HOLDER_ID], 0)
    slots = indices - tables.pools[groups, POOL_FIRST]
    return PageRows(groups, slots, pages, units, owners, tiers)


def describe_rows(
    rows: PageRows,
    layout: CacheLayout,
    tier_names: tuple[str, ...],
    times_s: npt.NDArray[np.float64],
    now_s: float,
) -> list[dict[str, Any]]:
    """A row of the API for each page.

    Args:
        rows: what the tables say of them.
        layout: the layout.
        tier_names: of the tiers below the device.
        times_s: float64[n], when each page changed last; NaN where that is not known.
        now_s: seconds of the Unix epoch.
    """
    names = [(group.name, group.kind.name) for group in layout.groups]
    ages = [None if age != age else round(max(age, 0.0), 3) for age in (now_s - times_s).tolist()]
    facts = zip(
        rows.groups.tolist(),
        rows.slots.tolist(),
        rows.pages.tolist(),
        rows.units.tolist(),
        rows.owners.tolist(),
        rows.tiers.tolist(),
        ages,
        strict=True,
    )
    return [
        {
            "group": names[group][0],
            "kind": names[group][1],
            "page": slot,
            "generation": page[PAGE_GENERATION],
            "state": PageState(page[PAGE_STATE]).name,
            "key": hex_key(unit[UNIT_KEY_0], unit[UNIT_KEY_1]),
            "is_indexed": unit[UNIT_STATE] == UNIT_INDEXED,
            "position_tokens": unit[UNIT_POSITION],
            # Words of a free page are links of its pool's list.
            "entries": page[PAGE_ENTRIES] if page[PAGE_STATE] else 0,
            "references": unit[UNIT_REFS],
            "checksum": _checksum(page),
            "sequence": owner or None,
            "tiers": ["device", *bit_names(tiers, tier_names)] if page[PAGE_STATE] else [],
            "changed_seqno": page[PAGE_SEQNO],
            "age_s": age,
        }
        for group, slot, page, unit, owner, tiers, age in facts
    ]


def _checksum(page: list[int]) -> str | None:
    return hex_word(page[PAGE_CHECKSUM]) if page[PAGE_STATE] == PageState.SEALED else None


def reader_of(pool: Indices) -> dict[str, Any]:
    """What the kernel that reads a pool expects of its pages, and whether it can read.

    Args:
        pool: int64[POOL_WORDS], its row of the table of pools.
    """
    return {
        "abi": int(pool[POOL_ABI]),
        "version": int(pool[POOL_VERSION]),
        "is_kernel_ready": bool(pool[POOL_READY] & KERNEL_READY),
        "is_mapping_ready": bool(pool[POOL_READY] & MAPPING_READY),
    }


def bit_names(bits: int, tier_names: tuple[str, ...]) -> list[str]:
    """Names of the tiers below the device whose bits are set."""
    return [name for number, name in enumerate(tier_names) if bits >> number & 1]


def tier_bits(word: int, is_checkpoint: bool) -> int:
    """The tiers of a stored row's word, a bit each."""
    return word >> (CHECKPOINT_TIERS if is_checkpoint else 0) & TIERS_MASK
