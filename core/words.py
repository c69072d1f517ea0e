"""Words of the arena: what stands where in its header and in the rows of its tables."""

from typing import Final

import numpy as np
import numpy.typing as npt

Arena = npt.NDArray[np.int64]
"""All manager state: one flat array of words."""

ARENA_MAGIC: Final = 0x6B76_7374_7261_7461  # "kvstrata"
ARENA_VERSION: Final = 4
META_WORDS: Final = 128

# META: fixed at creation
(
    META_MAGIC,
    META_VERSION,
    META_NUM_GROUPS,
    META_NUM_HISTORY,
    META_BLOCK_TOKENS,
    META_NUM_SEQUENCES,
    META_NUM_LEASES,
    META_MAX_BLOCKS,
    META_NUM_BLOCKS,
    META_NUM_IMAGES,
    META_IMAGES_PER_SEQUENCE,
    META_ROLLBACK,
    META_NUM_PAGES,
    META_NUM_HOLDERS,
    META_BLOCK_WIDTH,
    META_IMAGE_WIDTH,
    META_AT,
) = range(17)
NUM_TABLES: Final = 12
"""Offsets of the tables follow at META_AT; the last one is the arena's length."""
META_REPLAY_TOKENS: Final = 29
"""Tokens below a point from which its state comes out the same when computed from nothing."""
META_IMAGE_BYTES: Final = 30
"""Bytes of one state image: what resuming from a checkpoint copies."""
META_NUM_STORED: Final = 31
"""Rows of the table of stored objects, row 0 included; 1 where there are no tiers."""
# META: changed by apply
META_LAST_SEQNO: Final = 32
META_LAST_TIME_NS: Final = 33
META_NEXT_HOLDER: Final = 34
"""Counter behind sequence and lease ids: id = counter << 16 | row."""
META_FREE_SEQUENCE: Final = 35
META_FREE_LEASE: Final = 36
META_FREE_BLOCKS: Final = 37
META_IDLE_BLOCKS: Final = 38
META_FREE_IMAGES: Final = 39
META_IDLE_IMAGES: Final = 40
META_INDEXED_BLOCKS: Final = 41
META_INDEXED_IMAGES: Final = 42
META_REFUSAL: Final = 43
META_INCARNATION: Final = 44
META_TOKENS_PER_S: Final = 45
"""Observed rate of computing a prompt; the planner's."""
META_BYTES_PER_S: Final = 46
"""Observed rate of copying pages; the planner's."""
META_LOAD_BYTES_PER_S: Final = 47
"""Observed rate of loading objects from a tier; the planner's."""
META_FREE_STORED: Final = 48
"""Head of the list of free rows of stored objects."""
META_STORED_KEYS: Final = 49
"""Rows of stored objects that are taken."""
META_BLOCK_BYTES: Final = 63
"""Bytes of one block's pages; fixed at creation."""
DEFAULT_TOKENS_PER_S: Final = 10_000
DEFAULT_BYTES_PER_S: Final = 10_000_000_000
DEFAULT_LOAD_BYTES_PER_S: Final = 1_000_000_000
"""Rates until any are configured or observed."""
META_COUNTS: Final = 64
"""Events applied, by type."""

# POOLS
(
    POOL_FIRST,
    POOL_SLOTS,
    POOL_KIND,
    POOL_RATIO,
    POOL_WINDOW,
    POOL_ROWS,
    POOL_ENTRIES,
) = range(7)
POOL_COUNTS: Final = 8
"""Pages by state, eight words."""
(
    POOL_ABI,
    POOL_VERSION,
    POOL_READY,
    POOL_PARTNER,
    POOL_OVERLAP,
    POOL_LAYOUT_ABI,
) = range(16, 22)
"""ABI: word of the ABI that the scheduled kernel reads; LAYOUT_ABI: the reference kernels'.
VERSION: word of the compression mapping. PARTNER: of an INDEXER and of a TAIL, 1 + the history
group it belongs to, else 0."""
POOL_WORDS: Final = 24
KERNEL_READY, MAPPING_READY, KERNEL_GIVEN, MAPPING_GIVEN = 1, 2, 4, 8
"""Bits of POOL_READY; GIVEN: registered by an engine, and to be registered again by the next."""

# PAGES
(
    PAGE_STATE,
    PAGE_GENERATION,
    PAGE_UNIT,
    PAGE_ENTRIES,
    PAGE_HEAD,
    PAGE_CHECKSUM,
    PAGE_SEQNO,
    PAGE_STAMP,
) = range(8)
PAGE_NEXT: Final = PAGE_ENTRIES
PAGE_PREV: Final = PAGE_HEAD
"""Links of the free list: they lie where a page that is taken counts what is valid in it."""
PAGE_WORDS: Final = 8
"""One cache line."""
STAMP_DIRTY: Final = 1 << 31
"""Bit of a sealed page's stamp, which is overlap | abi << 32 | dirty | version, as they were at its
sealing; an ABI's word has 30 bits, a version's 31."""
ABI_MASK: Final = (1 << 30) - 1
VERSION_MASK: Final = (1 << 31) - 1
STAMP_OVERLAP: Final = 1 << 62
"""Bit of a stamp: the page holds the overlap of the compression window closed last."""

# UNITS (blocks and images)
(
    UNIT_STATE,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_REFS,
    UNIT_NEXT,
    UNIT_PREV,
    UNIT_GENERATION,
    UNIT_POSITION,
    UNIT_PAGES,
    UNIT_CANONICAL,
    UNIT_OWNER,
    UNIT_SEALED,
    UNIT_LAST_USE,
    UNIT_PARENT,
    UNIT_PARENT_KEY_0,
    UNIT_PARENT_KEY_1,
) = range(16)
UNIT_RESUMES: Final = UNIT_PARENT
"""Of an image, which has no parent: how many sequences began on it."""
UNIT_WORDS: Final = 16
"""Two cache lines; what a look-up, a pin and a validation read is in the first."""
UNIT_FREE, UNIT_BUILDING, UNIT_INDEXED, UNIT_UNINDEXED = range(4)

# HOLDERS
(
    HOLDER_KIND,
    HOLDER_ID,
    HOLDER_BLOCKS,
    HOLDER_LEASED,
    HOLDER_SEALED,
    HOLDER_PROMPT,
    HOLDER_CHECKPOINT,
    HOLDER_OWNER,
    HOLDER_SEED_0,
    HOLDER_SEED_1,
    HOLDER_NEXT,
    HOLDER_PARTIAL,
    HOLDER_ORIGIN,
    HOLDER_ORIGIN_GENERATION,
    HOLDER_PARTIAL_ORIGIN,
    HOLDER_PARTIAL_GENERATION,
    HOLDER_TAINTED,
    HOLDER_NUM_IMAGES,
    HOLDER_IMAGES,
) = range(19)
MAX_IMAGES: Final = 4
HOLDER_WORDS: Final = HOLDER_IMAGES + MAX_IMAGES
HOLDER_FREE, HOLDER_SEQUENCE, HOLDER_DRAINING, HOLDER_LEASE = range(4)

# STORED (objects below the device, by key)
(
    STORED_TIERS,
    STORED_KEY_0,
    STORED_KEY_1,
    STORED_POSITION,
    STORED_SEQNO,
    STORED_NEXT,
    STORED_PREV,
) = range(7)
STORED_WORDS: Final = 8
CHECKPOINT_TIERS: Final = 8
"""STORED_TIERS: a bit a tier that holds the block; for the checkpoint so many bits higher."""
TIERS_MASK: Final = 255
