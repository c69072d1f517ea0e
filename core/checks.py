"""The checks before a hit is adopted: one small pure function a row, and the table of them all.

A row function looks at one page (or one group) and gives what it expected and what it found; it is
good where they agree. :mod:`.validation` runs them over ranges. :data:`CHECKS` lists them for
people, docs and tests. Layer 0 is the bytes: see the face's storage.
"""

from typing import Final, NamedTuple

from .compile import helper
from .events import Reason
from .sealing import state_entries
from .states import PageState
from .views import page_table, pool_table
from .words import (
    ABI_MASK,
    KERNEL_READY,
    MAPPING_READY,
    META_BLOCK_TOKENS,
    META_ROLLBACK,
    PAGE_ENTRIES,
    PAGE_HEAD,
    PAGE_STAMP,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_ABI,
    POOL_FIRST,
    POOL_OVERLAP,
    POOL_RATIO,
    POOL_READY,
    POOL_ROWS,
    POOL_SLOTS,
    POOL_VERSION,
    POOL_WINDOW,
    STAMP_DIRTY,
    STAMP_OVERLAP,
    UNIT_POSITION,
    VERSION_MASK,
    Arena,
)

__all__ = ["CHECKS", "LAYERS", "Check", "layer_of"]

_SEALED: Final = int(PageState.SEALED)


@helper
def page_unit(arena: Arena, group: int, slot: int, unit: int) -> tuple[int, int]:
    """MISSING_PAGE: the unit names a page of this pool, and that page names the unit."""
    pool = pool_table(arena)[group]
    if slot <= 0 or slot >= pool[POOL_SLOTS]:
        return unit, -1
    return unit, page_table(arena)[pool[POOL_FIRST] + slot, PAGE_UNIT]


@helper
def page_state(page: Arena) -> tuple[int, int]:
    """PARTIAL_WRITE: the page is sealed."""
    return _SEALED, page[PAGE_STATE]


@helper
def block_entries(pool: Arena, page: Arena, tokens: int) -> tuple[int, int]:
    """PARTIAL_WRITE: as many entries as ``tokens`` of a block give (count == P // ratio)."""
    return tokens // pool[POOL_RATIO], page[PAGE_ENTRIES]


@helper
def block_boundary(arena: Arena, block: Arena, index: int) -> tuple[int, int]:
    """MISALIGNED_BOUNDARY: the block ends where the one at this place of the prefix ends."""
    return (index + 1) * arena[META_BLOCK_TOKENS], block[UNIT_POSITION]


@helper
def image_boundary(image: Arena, position: int) -> tuple[int, int]:
    """MISALIGNED_BOUNDARY: the state's position is the hit's."""
    return position, image[UNIT_POSITION]


@helper
def page_abi(pool: Arena, page: Arena) -> tuple[int, int]:
    """ABI_MISMATCH: written in the layout that the scheduled kernel reads."""
    return pool[POOL_ABI], (page[PAGE_STAMP] >> 32) & ABI_MASK


@helper
def page_version(pool: Arena, page: Arena) -> tuple[int, int]:
    """COMPRESSOR_VERSION: compressed by the mapping that is registered now."""
    return pool[POOL_VERSION], page[PAGE_STAMP] & VERSION_MASK


@helper
def index_version(compressed: Arena, page: Arena) -> tuple[int, int]:
    """INDEX_STALE: the index was made for these compressed entries."""
    return compressed[PAGE_STAMP] & VERSION_MASK, page[PAGE_STAMP] & VERSION_MASK


@helper
def index_count(compressed: Arena, page: Arena) -> tuple[int, int]:
    """INDEX_COUNT: one routing key for each compressed entry."""
    return compressed[PAGE_ENTRIES], page[PAGE_ENTRIES]


@helper
def index_clean(page: Arena) -> tuple[int, int]:
    """INDEX_DIRTY: nothing was written into the page since it was sealed."""
    return 0, 1 if page[PAGE_STAMP] & STAMP_DIRTY else 0


@helper
def window_length(pool: Arena, page: Arena, position: int) -> tuple[int, int]:
    """WINDOW_OUT_OF_BOUNDS: the image starts at max(0, P - window + 1) and ends at P."""
    return state_entries(pool, position), page[PAGE_ENTRIES]


@helper
def ring_head(pool: Arena, page: Arena, position: int) -> tuple[int, int]:
    """WINDOW_OFFSET: the ring's head is where the layer reads on."""
    return position % pool[POOL_ROWS], page[PAGE_HEAD]


@helper
def ring_stride(arena: Arena, pool: Arena) -> tuple[int, int]:
    """STRIDE_MISMATCH: a position's row recurs after as many rows as the layer takes."""
    reach = pool[POOL_WINDOW] - 1 if pool[POOL_WINDOW] > 0 else pool[POOL_RATIO]
    return reach + arena[META_ROLLBACK], pool[POOL_ROWS]


@helper
def tail_rows(pool: Arena, page: Arena, position: int) -> tuple[int, int]:
    """TAIL_TOO_SHORT: row count == P mod ratio."""
    return position % pool[POOL_RATIO], page[PAGE_ENTRIES]


@helper
def tail_overlap(pool: Arena, page: Arena, position: int) -> tuple[int, int]:
    """OVERLAP_MISSING: where P >= ratio an overlapped compressor has its last closed window."""
    wanted = 1 if pool[POOL_OVERLAP] != 0 and position >= pool[POOL_RATIO] else 0
    return wanted, wanted if page[PAGE_STAMP] & STAMP_OVERLAP else 0


@helper
def kernel_ready(pool: Arena) -> tuple[int, int]:
    """KERNEL_NOT_READY: the kernel that reads the group is there."""
    return KERNEL_READY, pool[POOL_READY] & KERNEL_READY


@helper
def mapping_ready(pool: Arena) -> tuple[int, int]:
    """MAPPING_NOT_READY: the compression mapping (projection, scales) is resident."""
    return MAPPING_READY, pool[POOL_READY] & MAPPING_READY


LAYERS: Final = {
    0: "bytes",
    1: "LCM block",
    2: "kernel ABI",
    3: "intersection",
    4: "alignment",
}
"""Names of the layers by their number in the log."""


class Check(NamedTuple):
    """One row of the table of checks.

    Attributes:
        layer: 0 bytes, 1 block, 2 kernel ABI, 3 cache-group intersection, 4 byte alignment.
        reason: what a failure is called.
        kinds: of the groups it looks at.
        question: what must hold.
    """

    layer: int
    reason: Reason
    kinds: str
    question: str


def _question(function: object) -> str:
    return str(function.__doc__).split(": ", 1)[1].rstrip(".")


CHECKS: Final = (
    Check(1, Reason.MISSING_PAGE, "all", _question(page_unit)),
    Check(1, Reason.PARTIAL_WRITE, "all", _question(page_state)),
    Check(1, Reason.PARTIAL_WRITE, "COMPRESSED", _question(block_entries)),
    Check(1, Reason.MISALIGNED_BOUNDARY, "COMPRESSED, INDEXER", _question(block_boundary)),
    Check(1, Reason.MISALIGNED_BOUNDARY, "SWA, TAIL", _question(image_boundary)),
    Check(1, Reason.STRIDE_MISMATCH, "SWA, TAIL", _question(ring_stride)),
    Check(1, Reason.WINDOW_OUT_OF_BOUNDS, "SWA", _question(window_length)),
    Check(1, Reason.TAIL_TOO_SHORT, "TAIL", _question(tail_rows)),
    Check(1, Reason.OVERLAP_MISSING, "TAIL", _question(tail_overlap)),
    Check(1, Reason.WINDOW_OFFSET, "SWA, TAIL", _question(ring_head)),
    Check(1, Reason.INDEX_DIRTY, "INDEXER", _question(index_clean)),
    Check(1, Reason.INDEX_COUNT, "INDEXER", _question(index_count)),
    Check(1, Reason.INDEX_STALE, "INDEXER", _question(index_version)),
    Check(1, Reason.COMPRESSOR_VERSION, "COMPRESSED, TAIL", _question(page_version)),
    Check(2, Reason.ABI_MISMATCH, "all", _question(page_abi)),
    Check(2, Reason.KERNEL_NOT_READY, "all", _question(kernel_ready)),
    Check(2, Reason.MAPPING_NOT_READY, "COMPRESSED, INDEXER, TAIL", _question(mapping_ready)),
    Check(3, Reason.GROUP_LIMITED, "all", "every group holds as much of the prefix"),
    Check(3, Reason.RANK_LIMITED, "all", "every rank holds as much of the prefix"),
    Check(3, Reason.RANK_INTERSECTION_EMPTY, "all", "the ranks have a common resume point"),
    Check(4, Reason.UNALIGNED_ADDRESS, "all", "a pool's base address fits the device's rule"),
    Check(4, Reason.UNALIGNED_STRIDE, "all", "a pool's page stride fits the device's rule"),
    Check(4, Reason.TOPOLOGY_MOVED, "all", "a pool is where it was when the topology was sealed"),
    Check(0, Reason.CHECKSUM_MISMATCH, "all", "the page's bytes are those that were sealed"),
)
"""Every check there is, in the order in which they are made within a layer."""


def layer_of(reason: int) -> int:
    """The layer a reason belongs to.

    Raises:
        KeyError: it is not a reason of validation.
    """
    return {check.reason: check.layer for check in CHECKS}[Reason(reason)]
