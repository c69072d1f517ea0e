"""Validation before a hit is adopted: the structural layers, over whole ranges at once.

Two passes, over the blocks and over the checkpoint, run the rows of :mod:`.checks` in compiled
code. Their order is the order in which a page is judged, so that the first reason is the cause.
"""

from typing import Final

from .checks import (
    block_boundary,
    block_entries,
    image_boundary,
    index_clean,
    index_count,
    index_version,
    kernel_ready,
    mapping_ready,
    page_abi,
    page_state,
    page_unit,
    page_version,
    ring_head,
    ring_stride,
    tail_overlap,
    tail_rows,
    window_length,
)
from .compile import compiled, helper
from .events import Reason
from .groups import Kind
from .sealing import stamp_now
from .states import PageState
from .views import page_table, pool_table, unit_pages, unit_rows
from .words import (
    META_BLOCK_TOKENS,
    META_NUM_GROUPS,
    META_NUM_HISTORY,
    PAGE_ENTRIES,
    PAGE_STAMP,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_ENTRIES,
    POOL_FIRST,
    POOL_KIND,
    POOL_PARTNER,
    POOL_SLOTS,
    UNIT_POSITION,
    Arena,
)

__all__ = ["FOUND_WORDS", "find_bad_block", "find_bad_image", "find_bad_page"]

FOUND_GROUP, FOUND_INDEX, FOUND_SLOT, FOUND_EXPECTED, FOUND_FOUND = range(5)
FOUND_WORDS: Final = 5
"""What a pass fills in: group, block index (or 0), slot (0 where the group as a whole is bad), and
what was expected and found."""

_SEALED: Final = int(PageState.SEALED)
_SWA: Final = int(Kind.SWA)
_TAIL: Final = int(Kind.TAIL)

_MISSING_PAGE: Final = int(Reason.MISSING_PAGE)
_PARTIAL_WRITE: Final = int(Reason.PARTIAL_WRITE)
_MISALIGNED: Final = int(Reason.MISALIGNED_BOUNDARY)
_OUT_OF_BOUNDS: Final = int(Reason.WINDOW_OUT_OF_BOUNDS)
_WINDOW_OFFSET: Final = int(Reason.WINDOW_OFFSET)
_STRIDE: Final = int(Reason.STRIDE_MISMATCH)
_TAIL_SHORT: Final = int(Reason.TAIL_TOO_SHORT)
_OVERLAP: Final = int(Reason.OVERLAP_MISSING)
_COMPRESSOR: Final = int(Reason.COMPRESSOR_VERSION)
_STALE: Final = int(Reason.INDEX_STALE)
_DIRTY: Final = int(Reason.INDEX_DIRTY)
_COUNT: Final = int(Reason.INDEX_COUNT)
_ABI: Final = int(Reason.ABI_MISMATCH)
_KERNEL: Final = int(Reason.KERNEL_NOT_READY)
_MAPPING: Final = int(Reason.MAPPING_NOT_READY)


@helper
def _fail(
    found: Arena, group: int, index: int, slot: int, pair: tuple[int, int], reason: int
) -> int:
    found[FOUND_GROUP] = group
    found[FOUND_INDEX] = index
    found[FOUND_SLOT] = slot
    found[FOUND_EXPECTED] = pair[0]
    found[FOUND_FOUND] = pair[1]
    return reason


@helper
def _check_group(arena: Arena, group: int, found: Arena) -> int:
    """Rows about a group as a whole."""
    pool = pool_table(arena)[group]
    pair = kernel_ready(pool)
    if pair[0] != pair[1]:
        return _fail(found, group, 0, 0, pair, _KERNEL)
    if pool[POOL_KIND] != _SWA:
        owner = pool
        if pool[POOL_PARTNER] != 0:
            owner = pool_table(arena)[pool[POOL_PARTNER] - 1]
        pair = mapping_ready(owner)
        if pair[0] != pair[1]:
            return _fail(found, group, 0, 0, pair, _MAPPING)
    if group >= arena[META_NUM_HISTORY]:
        pair = ring_stride(arena, pool)
        if pair[0] != pair[1]:
            return _fail(found, group, 0, 0, pair, _STRIDE)
    return 0


@helper
def _check_history_page(
    arena: Arena, group: int, block: int, index: int, tokens: int, found: Arena
) -> int:
    """Rows about one page of a block of which ``tokens`` tokens count."""
    pool = pool_table(arena)[group]
    slot = unit_pages(arena, True)[block, group]
    pair = page_unit(arena, group, slot, block)
    if pair[0] != pair[1]:
        return _fail(found, group, index, slot, pair, _MISSING_PAGE)
    page = page_table(arena)[pool[POOL_FIRST] + slot]
    pair = page_state(page)
    if pair[0] != pair[1]:
        return _fail(found, group, index, slot, pair, _PARTIAL_WRITE)
    partner = pool[POOL_PARTNER]
    if partner == 0:
        pair = block_entries(pool, page, tokens)
        if pair[0] != pair[1]:
            return _fail(found, group, index, slot, pair, _PARTIAL_WRITE)
        pair = page_version(pool, page)
        if pair[0] != pair[1]:
            return _fail(found, group, index, slot, pair, _COMPRESSOR)
    else:
        other = unit_pages(arena, True)[block, partner - 1]
        pair = page_unit(arena, partner - 1, other, block)
        if pair[0] != pair[1]:
            return _fail(found, partner - 1, index, other, pair, _MISSING_PAGE)
        compressed = page_table(arena)[pool_table(arena)[partner - 1, POOL_FIRST] + other]
        pair = index_clean(page)
        if pair[0] != pair[1]:
            return _fail(found, group, index, slot, pair, _DIRTY)
        pair = index_count(compressed, page)
        if pair[0] != pair[1]:
            return _fail(found, group, index, slot, pair, _COUNT)
        pair = index_version(compressed, page)
        if pair[0] != pair[1]:
            return _fail(found, group, index, slot, pair, _STALE)
    pair = page_abi(pool, page)
    if pair[0] != pair[1]:
        return _fail(found, group, index, slot, pair, _ABI)
    return 0


@helper
def _all_good(arena: Arena, plan: Arena, num_blocks: int) -> bool:
    """Whether full blocks pass every row, in one pass that does not say which one fails.

    What each row expects is the same for all pages of a group, so a page is good where four words
    of its one cache line are what they must be; an INDEXER's rows compare it with a COMPRESSED
    page that was itself compared with these.
    """
    rows, pages, parts = unit_rows(arena, True), page_table(arena), unit_pages(arena, True)
    tokens = arena[META_BLOCK_TOKENS]
    wrong = 0
    for index in range(num_blocks):
        wrong |= rows[plan[index, 0], UNIT_POSITION] ^ ((index + 1) * tokens)
    for group in range(arena[META_NUM_HISTORY]):
        pool = pool_table(arena)[group]
        first, slots = pool[POOL_FIRST], pool[POOL_SLOTS]
        entries, stamp = pool[POOL_ENTRIES], stamp_now(arena, group, 0)
        for index in range(num_blocks):
            block = plan[index, 0]
            slot = parts[block, group]
            if slot <= 0 or slot >= slots:
                return False
            page = first + slot
            wrong |= pages[page, PAGE_STATE] ^ _SEALED
            wrong |= pages[page, PAGE_UNIT] ^ block
            wrong |= pages[page, PAGE_ENTRIES] ^ entries
            wrong |= pages[page, PAGE_STAMP] ^ stamp
        if wrong != 0:
            return False
    return wrong == 0


@compiled
def find_bad_block(arena: Arena, plan: Arena, num_blocks: int, tokens: int, found: Arena) -> int:
    """Judge the blocks of a plan, first to last.

    Args:
        arena: the arena; read only.
        plan: int64[n, >= 1], block ids from the root, a partial block last.
        num_blocks: blocks to judge.
        tokens: tokens that count in the last of them; all of a block in the others.
        found: int64[FOUND_WORDS], filled where one is bad.

    Returns:
        0 where all are good, else the :class:`.events.Reason` of the first that is not.

    Mutates:
        found.
    """
    num_history = arena[META_NUM_HISTORY]
    for group in range(num_history):
        reason = _check_group(arena, group, found)
        if reason != 0:
            return reason
    full = num_blocks if tokens == arena[META_BLOCK_TOKENS] else num_blocks - 1
    first = full if _all_good(arena, plan, full) else 0
    rows = unit_rows(arena, True)
    for index in range(first, num_blocks):
        block = plan[index, 0]
        counted = tokens if index == num_blocks - 1 else arena[META_BLOCK_TOKENS]
        pair = block_boundary(arena, rows[block], index)
        if pair[0] != pair[1]:
            slot = unit_pages(arena, True)[block, 0]
            return _fail(found, 0, index, slot, pair, _MISALIGNED)
        for group in range(num_history):
            reason = _check_history_page(arena, group, block, index, counted, found)
            if reason != 0:
                return reason
    return 0


@compiled
def find_bad_page(arena: Arena, group: int, plan: Arena, num_blocks: int, found: Arena) -> int:
    """Judge the pages of one history group, first to last; see :func:`find_bad_block`.

    Args:
        arena: the arena; read only.
        group: the history group.
        plan: int64[n, >= 1], block ids from the root.
        num_blocks: blocks to judge, all of them full.
        found: int64[FOUND_WORDS], filled where one is bad.

    Returns:
        0, or the :class:`.events.Reason` of the first that is not good.

    Mutates:
        found.
    """
    reason = _check_group(arena, group, found)
    tokens = arena[META_BLOCK_TOKENS]
    for index in range(num_blocks):
        if reason == 0:
            reason = _check_history_page(arena, group, plan[index, 0], index, tokens, found)
    return reason


@helper
def _check_state_page(arena: Arena, group: int, image: int, position: int, found: Arena) -> int:
    """Rows about one page of a state image."""
    pool = pool_table(arena)[group]
    slot = unit_pages(arena, False)[image, group - arena[META_NUM_HISTORY]]
    pair = page_unit(arena, group, slot, image)
    if pair[0] != pair[1]:
        return _fail(found, group, 0, slot, pair, _MISSING_PAGE)
    page = page_table(arena)[pool[POOL_FIRST] + slot]
    pair = page_state(page)
    if pair[0] != pair[1]:
        return _fail(found, group, 0, slot, pair, _PARTIAL_WRITE)
    pair = image_boundary(unit_rows(arena, False)[image], position)
    if pair[0] != pair[1]:
        return _fail(found, group, 0, slot, pair, _MISALIGNED)
    if pool[POOL_KIND] == _SWA:
        pair = window_length(pool, page, position)
        if pair[0] != pair[1]:
            return _fail(found, group, 0, slot, pair, _OUT_OF_BOUNDS)
    elif pool[POOL_KIND] == _TAIL:
        pair = tail_rows(pool, page, position)
        if pair[0] != pair[1]:
            return _fail(found, group, 0, slot, pair, _TAIL_SHORT)
        pair = tail_overlap(pool, page, position)
        if pair[0] != pair[1]:
            return _fail(found, group, 0, slot, pair, _OVERLAP)
        owner = pool
        if pool[POOL_PARTNER] != 0:
            owner = pool_table(arena)[pool[POOL_PARTNER] - 1]
        pair = page_version(owner, page)
        if pair[0] != pair[1]:
            return _fail(found, group, 0, slot, pair, _COMPRESSOR)
    pair = ring_head(pool, page, position)
    if pair[0] != pair[1]:
        return _fail(found, group, 0, slot, pair, _WINDOW_OFFSET)
    pair = page_abi(pool, page)
    if pair[0] != pair[1]:
        return _fail(found, group, 0, slot, pair, _ABI)
    return 0


@compiled
def find_bad_image(arena: Arena, image: int, position: int, found: Arena) -> int:
    """Judge a checkpoint, group by group.

    Args:
        arena: the arena; read only.
        image: its id; 0 judges only the groups.
        position: of the hit, in tokens.
        found: int64[FOUND_WORDS], filled where it is bad.

    Returns:
        0 where it is good, else the :class:`.events.Reason`.

    Mutates:
        found.
    """
    for group in range(arena[META_NUM_HISTORY], arena[META_NUM_GROUPS]):
        reason = _check_group(arena, group, found)
        if reason == 0 and image != 0:
            reason = _check_state_page(arena, group, image, position, found)
        if reason != 0:
            return reason
    return 0
