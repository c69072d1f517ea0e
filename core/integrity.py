"""check_integrity: every law the tables obey, checked from scratch. Reads, changes nothing."""

import numpy as np
import numpy.typing as npt

from .arena import Tables, Units, open_tables
from .index import find_unit
from .states import PageState
from .stored import tiers_of
from .words import (
    HOLDER_BLOCKS,
    HOLDER_CHECKPOINT,
    HOLDER_FREE,
    HOLDER_IMAGES,
    HOLDER_KIND,
    HOLDER_NEXT,
    HOLDER_NUM_IMAGES,
    HOLDER_PARTIAL,
    HOLDER_SEALED,
    MAX_IMAGES,
    META_FREE_BLOCKS,
    META_FREE_IMAGES,
    META_FREE_LEASE,
    META_FREE_SEQUENCE,
    META_FREE_STORED,
    META_IDLE_BLOCKS,
    META_IDLE_IMAGES,
    META_INDEXED_BLOCKS,
    META_INDEXED_IMAGES,
    META_NUM_HISTORY,
    META_NUM_SEQUENCES,
    META_STORED_KEYS,
    PAGE_NEXT,
    PAGE_PREV,
    PAGE_SEQNO,
    PAGE_STAMP,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_COUNTS,
    POOL_FIRST,
    POOL_SLOTS,
    STAMP_DIRTY,
    STORED_KEY_0,
    STORED_KEY_1,
    STORED_NEXT,
    STORED_PREV,
    STORED_SEQNO,
    STORED_TIERS,
    UNIT_BUILDING,
    UNIT_CANONICAL,
    UNIT_FREE,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_NEXT,
    UNIT_OWNER,
    UNIT_PAGES,
    UNIT_PREV,
    UNIT_REFS,
    UNIT_STATE,
    Arena,
)

__all__ = ["find_violations"]


def find_violations(arena: Arena) -> list[str]:
    """Every broken law, one sentence each; empty when all hold.

    Laws: per pool the states sum to the slots without scratch; free lists hold exactly the free
    pages; each page belongs to the unit that names it; the index holds exactly the indexed units
    under their keys, whole and sealed; references equal the holders that pin; the idle lists hold
    exactly what is indexed and unreferenced; limbo is empty between calls; the table of stored
    objects lists, indexes and counts exactly the keys that are in some tier.
    """
    t = open_tables(arena)
    found: list[str] = []
    history = t.blocks.pages.shape[1]
    for group in range(len(t.pools)):
        is_block = group < int(arena[META_NUM_HISTORY])
        units = t.blocks if is_block else t.images
        found += _check_pool(t, group, units, group if is_block else group - history)
    if found:
        return found  # what follows reads what these laws say is there
    found += _check_holder_lists(t)
    block_refs, image_refs = _count_references(t, found)
    meta = t.meta
    counts = (meta[META_FREE_BLOCKS], meta[META_IDLE_BLOCKS], meta[META_INDEXED_BLOCKS])
    found += _check_units(t, "block", t.blocks, block_refs, counts)
    counts = (meta[META_FREE_IMAGES], meta[META_IDLE_IMAGES], meta[META_INDEXED_IMAGES])
    found += _check_units(t, "image", t.images, image_refs, counts)
    return found + _check_stored(t)


def _walk(rows: Arena, sentinel: int, following: int, previous: int) -> list[int] | None:
    """Members of a circular list, or None where its links are broken."""
    members: list[int] = []
    at = sentinel
    for _ in range(len(rows) + 1):
        after = int(rows[at, following])
        if not 0 <= after < len(rows) or rows[after, previous] != at:
            return None
        if after == sentinel:
            return members
        members.append(after)
        at = after
    return None


def _check_pool(t: Tables, group: int, units: Units, part: int) -> list[str]:
    pool = t.pools[group]
    pages = t.pages[pool[POOL_FIRST] : pool[POOL_FIRST] + pool[POOL_SLOTS]]
    found = []
    states = pages[1:, PAGE_STATE]
    if np.any((states < 0) | (states >= len(PageState))):
        return [f"group {group}: a page is in no known state"]
    counts = np.bincount(states, minlength=len(PageState))
    if not np.array_equal(counts, pool[POOL_COUNTS : POOL_COUNTS + len(PageState)]):
        found.append(f"group {group}: pages by state {counts.tolist()} differ from the counts")
    if pool[POOL_COUNTS : POOL_COUNTS + len(PageState)].sum() != pool[POOL_SLOTS] - 1:
        found.append(f"group {group}: states do not sum to the slots")
    free = _walk(pages, 0, PAGE_NEXT, PAGE_PREV)
    if free is None or set(free) != set((np.flatnonzero(states == 0) + 1).tolist()):
        found.append(f"group {group}: the free list does not hold exactly the free pages")
    owners = pages[1:, PAGE_UNIT]
    if np.any((owners < 0) | (owners >= len(units.pages))):
        return [*found, f"group {group}: a page names a unit that does not exist"]
    slots = np.arange(1, len(pages))
    taken = states != PageState.FREE
    if np.any(owners[~taken] != 0):
        found.append(f"group {group}: a free page is owned")
    if np.any(units.pages[owners[taken], part] != slots[taken]):
        found.append(f"group {group}: a page is not the one its unit names")
    named = units.pages[1:, part]
    if np.any((named < 0) | (named >= pool[POOL_SLOTS])):
        return [*found, f"group {group}: a unit names a page that does not exist"]
    named = named[named != 0]
    if len(named) != int(taken.sum()):
        found.append(f"group {group}: units name {len(named)} pages, {int(taken.sum())} are taken")
    return found


def _count_references(
    t: Tables, found: list[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    blocks = np.zeros(len(t.blocks.pages), dtype=np.int64)
    images = np.zeros(len(t.images.pages), dtype=np.int64)
    for row in range(1, len(t.holders)):
        holder = t.holders[row]
        count = int(holder[HOLDER_BLOCKS])
        if holder[HOLDER_KIND] == HOLDER_FREE:
            if count or np.any(t.holder_blocks[row] != 0):
                found.append(f"holder {row} is free and holds blocks")
            continue
        held = t.holder_blocks[row, :count]
        if np.any((held < 1) | (held >= len(blocks))) or holder[HOLDER_SEALED] > count:
            found.append(f"holder {row} holds a block that does not exist")
            continue
        np.add.at(blocks, held, 1)
        mine = holder[HOLDER_IMAGES : HOLDER_IMAGES + int(holder[HOLDER_NUM_IMAGES])]
        np.add.at(images, mine, 1)
        if holder[HOLDER_CHECKPOINT]:
            images[holder[HOLDER_CHECKPOINT]] += 1
        if holder[HOLDER_PARTIAL]:
            blocks[holder[HOLDER_PARTIAL]] += 1
    images[_images_being_made(t)] += 1
    canonical = t.blocks.rows[1 : len(blocks), UNIT_CANONICAL]
    np.add.at(blocks, canonical[canonical > 0], 1)
    return blocks, images


def _images_being_made(t: Tables) -> npt.NDArray[np.int64]:
    """Images that become checkpoints: their owner's, and none of its private ones."""
    rows = t.images.rows[: len(t.images.pages)]
    building = np.flatnonzero(rows[:, UNIT_STATE] == UNIT_BUILDING)
    private = t.holders[rows[building, UNIT_OWNER], HOLDER_IMAGES : HOLDER_IMAGES + MAX_IMAGES]
    made: npt.NDArray[np.int64] = building[~np.any(private == building[:, None], axis=1)]
    return made


def _check_units(
    t: Tables,
    name: str,
    units: Units,
    references: npt.NDArray[np.int64],
    counts: tuple[int, int, int],
) -> list[str]:
    found = []
    last = len(units.pages)
    rows = units.rows[:last]
    state = rows[:, UNIT_STATE]
    wrong = np.flatnonzero(rows[1:, UNIT_REFS] != references[1:]) + 1
    if len(wrong):
        found.append(f"{name} {int(wrong[0])}: references differ from the holders that pin it")
    if np.any(rows[1:, UNIT_PAGES] != (units.pages[1:] != 0).sum(axis=1)):
        found.append(f"a {name} counts its pages wrongly")
    expected = (
        (0, "free", counts[0], np.flatnonzero(state[1:] == UNIT_FREE) + 1),
        (
            last,
            "idle",
            counts[1],
            np.flatnonzero((state[1:] == UNIT_INDEXED) & (rows[1:, UNIT_REFS] == 0)) + 1,
        ),
        (last + 1, "limbo", 0, np.empty(0, dtype=np.int64)),
    )
    for sentinel, which, count, members in expected:
        listed = _walk(units.rows, sentinel, UNIT_NEXT, UNIT_PREV)
        if listed is None or sorted(listed) != members.tolist() or len(listed) != count:
            found.append(f"the {which} list of {name}s does not hold exactly what it should")
    indexed = np.flatnonzero(state == UNIT_INDEXED)
    if len(indexed) != counts[2] or np.count_nonzero(units.places) != len(indexed):
        found.append(f"the index of {name}s does not hold exactly the indexed ones")
    for unit in indexed.tolist():
        key = int(rows[unit, UNIT_KEY_0]), int(rows[unit, UNIT_KEY_1])
        if find_unit(t.arena, name == "block", *key) != unit:
            found.append(f"{name} {unit} is not found under its key")
    return found + _check_pages_of_units(t, name, units, indexed, state)


def _check_pages_of_units(
    t: Tables,
    name: str,
    units: Units,
    indexed: npt.NDArray[np.int64],
    state: npt.NDArray[np.int64],
) -> list[str]:
    found = []
    first_group = 0 if name == "block" else t.blocks.pages.shape[1]
    if name == "block":
        found += _check_calls(t, units, indexed)
    for part in range(units.pages.shape[1] if first_group + units.pages.shape[1] else 0):
        if first_group + part >= len(t.pools):
            break
        pages = t.pages[int(t.pools[first_group + part, POOL_FIRST]) :]
        slots = units.pages[indexed, part]
        if np.any(slots == 0) or np.any(pages[slots, PAGE_STATE] != PageState.SEALED):
            found.append(f"an indexed {name} is not whole and sealed (group {first_group + part})")
        building = np.flatnonzero(state == UNIT_BUILDING)
        slots = units.pages[building, part]
        bad = np.isin(pages[slots, PAGE_STATE], [PageState.SEALED, PageState.QUARANTINED])
        if np.any(bad & (slots != 0)):
            found.append(f"a {name} being built holds a sealed page (group {first_group + part})")
    return found


def _check_calls(t: Tables, units: Units, indexed: npt.NDArray[np.int64]) -> list[str]:
    """Pages of one unit are sealed one after the other: two exchanged between units would show."""
    seqnos, dirty = [], np.zeros(len(indexed), dtype=bool)
    for group in range(units.pages.shape[1]):
        pages = t.pages[int(t.pools[group, POOL_FIRST]) + units.pages[indexed, group]]
        seqnos.append(pages[:, PAGE_SEQNO] - group)
        dirty |= (pages[:, PAGE_STAMP] & STAMP_DIRTY) != 0
    apart = np.any(np.array(seqnos) != seqnos[0], axis=0) & ~dirty
    wrong = indexed[apart]
    return [f"block {int(wrong[0])}: its pages were not sealed together"] if len(wrong) else []


def _check_stored(t: Tables) -> list[str]:
    """The rows of stored objects: free or in some tier, listed by last use, found by key."""
    rows = t.stored
    taken = (np.flatnonzero(rows[1:, STORED_TIERS] != 0) + 1).tolist()
    found = []
    listed = _walk(rows, 0, STORED_NEXT, STORED_PREV)
    if listed is None or sorted(listed) != taken or len(taken) != int(t.meta[META_STORED_KEYS]):
        found.append("the list of stored objects does not hold exactly those in some tier")
    elif np.any(np.diff(rows[listed, STORED_SEQNO]) < 0):
        found.append("the list of stored objects is not in the order of their last use")
    free: list[int] = []
    row = int(t.meta[META_FREE_STORED])
    while 0 < row < len(rows) and len(free) < len(rows):
        free.append(row)
        row = int(rows[row, STORED_NEXT])
    if row != 0 or sorted([*free, *taken]) != list(range(1, len(rows))):
        found.append("a row of stored objects is neither free nor taken, or both")
    if np.count_nonzero(t.stored_places) != len(taken):
        found.append("the index of stored objects does not hold exactly those in some tier")
    for row in taken:
        key = int(rows[row, STORED_KEY_0]), int(rows[row, STORED_KEY_1])
        tiers = int(rows[row, STORED_TIERS])
        both = int(tiers_of(t.arena, False, *key)) | int(tiers_of(t.arena, True, *key)) << 8
        if both != tiers:
            found.append(f"stored object {row} is not found under its key")
    return found


def _check_holder_lists(t: Tables) -> list[str]:
    """The lists of free rows hold exactly the free rows."""
    sequences = int(t.meta[META_NUM_SEQUENCES])
    found = []
    for which, head, rows in (
        ("sequence", META_FREE_SEQUENCE, range(1, sequences + 1)),
        ("lease", META_FREE_LEASE, range(sequences + 1, len(t.holders))),
    ):
        listed: list[int] = []
        row = int(t.meta[head])
        while row in rows and len(listed) < len(rows):
            listed.append(row)
            row = int(t.holders[row, HOLDER_NEXT])
        free = [row for row in rows if t.holders[row, HOLDER_KIND] == HOLDER_FREE]
        if row != 0 or sorted(listed) != free:
            found.append(f"the list of free {which} rows does not hold exactly the free ones")
    return found
