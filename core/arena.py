"""The arena: all manager state in one flat int64 array, and the tables inside it.

One array because then a call unboxes one argument, a snapshot is a write, a digest is one pass,
and "replay equals live" is byte equality. :func:`tables` gives 2-D views; columns have names.

Row 0 of every table means *none* (page 0 is each pool's scratch page) and doubles as the sentinel
of the list of free rows. A *unit* is what is found, leased and evicted whole: a block (one page per
history group) or an image (one page per state group); both have the same columns. A *holder* is a
sequence or a lease: a row that pins units.
"""

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .abi import abi_of
from .errors import ConfigError
from .groups import Kind
from .layout import CacheLayout
from .words import (
    ABI_MASK,
    ARENA_MAGIC,
    ARENA_VERSION,
    DEFAULT_BYTES_PER_S,
    DEFAULT_LOAD_BYTES_PER_S,
    DEFAULT_TOKENS_PER_S,
    HOLDER_NEXT,
    HOLDER_WORDS,
    KERNEL_READY,
    MAPPING_READY,
    MAX_IMAGES,
    META_AT,
    META_BLOCK_BYTES,
    META_BLOCK_TOKENS,
    META_BLOCK_WIDTH,
    META_BYTES_PER_S,
    META_FREE_BLOCKS,
    META_FREE_IMAGES,
    META_FREE_LEASE,
    META_FREE_SEQUENCE,
    META_FREE_STORED,
    META_IMAGE_BYTES,
    META_IMAGE_WIDTH,
    META_IMAGES_PER_SEQUENCE,
    META_LOAD_BYTES_PER_S,
    META_MAGIC,
    META_MAX_BLOCKS,
    META_NEXT_HOLDER,
    META_NUM_BLOCKS,
    META_NUM_GROUPS,
    META_NUM_HISTORY,
    META_NUM_HOLDERS,
    META_NUM_IMAGES,
    META_NUM_LEASES,
    META_NUM_PAGES,
    META_NUM_SEQUENCES,
    META_NUM_STORED,
    META_REPLAY_TOKENS,
    META_ROLLBACK,
    META_TOKENS_PER_S,
    META_VERSION,
    META_WORDS,
    NUM_TABLES,
    PAGE_NEXT,
    PAGE_PREV,
    PAGE_WORDS,
    POOL_ABI,
    POOL_COUNTS,
    POOL_ENTRIES,
    POOL_FIRST,
    POOL_KIND,
    POOL_LAYOUT_ABI,
    POOL_OVERLAP,
    POOL_PARTNER,
    POOL_RATIO,
    POOL_READY,
    POOL_ROWS,
    POOL_SLOTS,
    POOL_WINDOW,
    POOL_WORDS,
    STORED_NEXT,
    STORED_WORDS,
    UNIT_NEXT,
    UNIT_PREV,
    UNIT_WORDS,
    Arena,
)

__all__ = [
    "Arena",
    "ArenaParams",
    "Tables",
    "arena_digest",
    "new_arena",
    "open_tables",
    "slice_digest",
    "slice_words",
]


class Units(NamedTuple):
    """Blocks, or images: rows, their pages, and the index that finds them by key."""

    rows: Arena
    """[1 + n + 2, UNIT_WORDS]: row 0 heads the free list, n + 1 the idle list, n + 2 limbo."""
    pages: Arena
    """[1 + n, groups of this side]: slot in each group's pool, 0 for none."""
    places: Arena
    """[power of two]: unit ids by key, 0 for an empty place."""


class Tables(NamedTuple):
    """2-D views of one arena."""

    arena: Arena
    meta: Arena
    pools: Arena
    pages: Arena
    blocks: Units
    images: Units
    holders: Arena
    holder_blocks: Arena
    stored: Arena
    """[1 + n, STORED_WORDS]: objects below the device by key; row 0 heads the list by last use."""
    stored_places: Arena


@dataclass(frozen=True)
class ArenaParams:
    """Sizes of an arena.

    Attributes:
        slots: pages of each group's pool by group name, the scratch page included.
        max_sequences: running sequences at once.
        max_leases: leases held outside sequences at once.
        max_blocks_per_sequence: longest sequence, in blocks.
        images_per_sequence: state images each sequence owns, 2 to 4.
        stored_keys: keys of objects in lower tiers that are remembered; 0 where there are none.
    """

    slots: dict[str, int]
    max_sequences: int = 256
    max_leases: int = 64
    max_blocks_per_sequence: int = 8192
    images_per_sequence: int = 2
    stored_keys: int = 0

    def num_blocks(self, layout: CacheLayout) -> int:
        """Blocks that can exist at once: each takes one page of every history group."""
        return min(self.slots[group.name] - 1 for group in layout.history_groups)

    def num_images(self, layout: CacheLayout) -> int:
        """State images that can exist at once, private ones and checkpoints together."""
        return min((self.slots[group.name] - 1 for group in layout.state_groups), default=0)

    def check(self, layout: CacheLayout) -> None:
        """Refuse sizes that could not serve one sequence.

        Raises:
            ConfigError: says what was expected and found.
        """
        names = [group.name for group in layout.groups]
        if sorted(self.slots) != sorted(names):
            raise ConfigError(f"slots: expected one entry per group {names}, found {self.slots}")
        rows = self.max_sequences + self.max_leases
        if self.max_sequences < 1 or self.max_leases < 0 or rows > 65_000:
            raise ConfigError(
                "expected 1 <= max_sequences, 0 <= max_leases and a sum of at most 65000, found "
                f"{self.max_sequences} and {self.max_leases}"
            )
        if not 2 <= self.images_per_sequence <= MAX_IMAGES:
            raise ConfigError(
                f"images_per_sequence: expected 2 to {MAX_IMAGES}, found {self.images_per_sequence}"
            )
        if not 0 <= self.stored_keys < 2**31:
            raise ConfigError(f"stored_keys: expected at least 0, found {self.stored_keys}")
        if not 1 <= self.max_blocks_per_sequence < 2**31:
            raise ConfigError(
                "max_blocks_per_sequence: expected at least 1, found "
                f"{self.max_blocks_per_sequence}"
            )
        for group in layout.groups:
            is_state = group in layout.state_groups
            least = 1 + (self.images_per_sequence if is_state else 1)
            if self.slots[group.name] < least:
                raise ConfigError(
                    f"pool {group.name!r} is too small for one sequence: expected at least "
                    f"{least} pages (one of them scratch), found {self.slots[group.name]}; "
                    "give it a larger byte budget or more slots"
                )


def _power_of_two(at_least: int) -> int:
    return 1 << max(3, (at_least - 1).bit_length())


def new_arena(layout: CacheLayout, params: ArenaParams) -> Arena:
    """An arena in which nothing has happened yet.

    Raises:
        ConfigError: the sizes cannot serve one sequence.
    """
    params.check(layout)
    groups, history = len(layout.groups), len(layout.history_groups)
    blocks, images = params.num_blocks(layout), params.num_images(layout)
    holders = 1 + params.max_sequences + params.max_leases
    block_index, image_index = _power_of_two(2 * blocks), _power_of_two(2 * max(images, 1))
    sizes = [
        groups * POOL_WORDS,
        sum(params.slots.values()) * PAGE_WORDS,
        (blocks + 3) * UNIT_WORDS,
        (blocks + 1) * max(history, 1),
        block_index,
        (images + 3) * UNIT_WORDS,
        (images + 1) * max(groups - history, 1),
        image_index,
        holders * HOLDER_WORDS,
        holders * params.max_blocks_per_sequence,
        (params.stored_keys + 1) * STORED_WORDS,
        _power_of_two(2 * params.stored_keys) if params.stored_keys else 0,
    ]
    assert len(sizes) == NUM_TABLES
    offsets = np.cumsum([META_WORDS, *sizes])
    arena = _aligned_zeros(int(offsets[-1]))
    arena[[META_MAGIC, META_VERSION]] = ARENA_MAGIC, ARENA_VERSION
    arena[[META_NUM_GROUPS, META_NUM_HISTORY]] = groups, history
    arena[META_BLOCK_TOKENS] = layout.block_tokens
    arena[[META_NUM_SEQUENCES, META_NUM_LEASES]] = params.max_sequences, params.max_leases
    arena[META_MAX_BLOCKS] = params.max_blocks_per_sequence
    arena[[META_NUM_BLOCKS, META_NUM_IMAGES]] = blocks, images
    arena[META_IMAGES_PER_SEQUENCE] = params.images_per_sequence if groups > history else 0
    arena[META_ROLLBACK] = layout.rollback_tokens
    arena[META_REPLAY_TOKENS] = layout.replay_tokens
    arena[[META_IMAGE_BYTES, META_BLOCK_BYTES]] = layout.image_bytes, layout.block_bytes
    arena[META_TOKENS_PER_S] = DEFAULT_TOKENS_PER_S
    arena[META_BYTES_PER_S] = DEFAULT_BYTES_PER_S
    arena[META_LOAD_BYTES_PER_S] = DEFAULT_LOAD_BYTES_PER_S
    arena[[META_NUM_PAGES, META_NUM_HOLDERS]] = sum(params.slots.values()), holders
    arena[[META_BLOCK_WIDTH, META_IMAGE_WIDTH]] = max(history, 1), max(groups - history, 1)
    arena[META_NUM_STORED] = params.stored_keys + 1
    arena[META_AT : META_AT + NUM_TABLES + 1] = offsets
    _link_free_rows(arena, layout, params)
    return arena


def _aligned_zeros(num_words: int) -> Arena:
    """Zeros that begin on a cache line, so that rows of eight words are one line each."""
    room: Arena = np.zeros(num_words + 8, dtype=np.int64)
    first = -(room.ctypes.data // 8) % 8
    return room[first : first + num_words]


def _link_free_rows(arena: Arena, layout: CacheLayout, params: ArenaParams) -> None:
    view = open_tables(arena)
    first = 0
    for number, group in enumerate(layout.groups):
        slots = params.slots[group.name]
        pool = view.pools[number]
        pool[[POOL_FIRST, POOL_SLOTS, POOL_KIND]] = first, slots, group.kind
        pool[[POOL_RATIO, POOL_WINDOW, POOL_ROWS]] = (
            group.ratio,
            group.window,
            max(component.rows for component in group.components),
        )
        if group.is_history:
            pool[POOL_ENTRIES] = layout.block_tokens // group.ratio
        pool[POOL_OVERLAP] = group.overlap
        pool[POOL_READY] = KERNEL_READY | MAPPING_READY
        pool[POOL_PARTNER] = _partner(layout, number)
        pool[[POOL_ABI, POOL_LAYOUT_ABI]] = abi_of(layout, group.name).word() & ABI_MASK
        pool[POOL_COUNTS] = slots - 1
        _link_circle(view.pages[first : first + slots], PAGE_NEXT, PAGE_PREV)
        first += slots
    blocks, images = int(arena[META_NUM_BLOCKS]), int(arena[META_NUM_IMAGES])
    for units, count in ((view.blocks, blocks), (view.images, images)):
        _link_circle(units.rows[: count + 1], UNIT_NEXT, UNIT_PREV)
        for sentinel in (count + 1, count + 2):
            units.rows[sentinel, [UNIT_NEXT, UNIT_PREV]] = sentinel
    arena[[META_FREE_BLOCKS, META_FREE_IMAGES]] = blocks, images
    last_sequence = params.max_sequences
    view.holders[1:last_sequence, HOLDER_NEXT] = np.arange(2, last_sequence + 1)
    arena[META_FREE_SEQUENCE] = 1
    if params.max_leases:
        last = last_sequence + params.max_leases
        view.holders[last_sequence + 1 : last, HOLDER_NEXT] = np.arange(last_sequence + 2, last + 1)
        arena[META_FREE_LEASE] = last_sequence + 1
    arena[META_NEXT_HOLDER] = 1
    if params.stored_keys:
        view.stored[1:-1, STORED_NEXT] = np.arange(2, params.stored_keys + 1)
        arena[META_FREE_STORED] = 1


def _partner(layout: CacheLayout, number: int) -> int:
    """1 + the history group whose compression an INDEXER or TAIL group belongs to, or 0."""
    group = layout.groups[number]
    if group.kind not in (Kind.INDEXER, Kind.TAIL):
        return 0
    for other, candidate in enumerate(layout.history_groups):
        same = candidate.ratio == group.ratio and candidate.layers == group.layers
        if same and candidate.kind is Kind.COMPRESSED:
            return other + 1
    return 0


def _link_circle(rows: Arena, following: int, previous: int) -> None:
    count = len(rows)
    rows[:, following] = (np.arange(count) + 1) % count
    rows[:, previous] = (np.arange(count) - 1) % count


def open_tables(arena: Arena) -> Tables:
    """Views of an arena's tables, for Python.

    Raises:
        ConfigError: the array is not an arena of this version.
    """
    if arena.dtype != np.int64 or arena.ndim != 1 or len(arena) < META_WORDS:
        raise ConfigError(f"expected a flat int64 arena, found {arena.dtype} {arena.shape}")
    if arena[META_MAGIC] != ARENA_MAGIC or arena[META_VERSION] != ARENA_VERSION:
        raise ConfigError(
            f"expected arena version {ARENA_VERSION}, found magic {int(arena[META_MAGIC]):#x} "
            f"version {int(arena[META_VERSION])}"
        )
    at = arena[META_AT : META_AT + NUM_TABLES + 1].tolist()
    part = [arena[first:last] for first, last in pairwise(at)]
    history, states = int(arena[META_BLOCK_WIDTH]), int(arena[META_IMAGE_WIDTH])
    return Tables(
        arena,
        arena[:META_WORDS],
        part[0].reshape(-1, POOL_WORDS),
        part[1].reshape(-1, PAGE_WORDS),
        Units(part[2].reshape(-1, UNIT_WORDS), part[3].reshape(-1, history), part[4]),
        Units(part[5].reshape(-1, UNIT_WORDS), part[6].reshape(-1, states), part[7]),
        part[8].reshape(-1, HOLDER_WORDS),
        part[9].reshape(-1, int(arena[META_MAX_BLOCKS])),
        part[10].reshape(-1, STORED_WORDS),
        part[11],
    )


def arena_digest(arena: Arena) -> bytes:
    """16 bytes that two arenas share if and only if they are equal, word for word."""
    return hashlib.sha256(arena.data.cast("B")).digest()[:16]


def slice_words(arena: Arena, num_slices: int) -> int:
    """Words of each of an arena's slices but the last, which may be shorter, even empty."""
    return -(-len(arena) // num_slices)


def slice_digest(arena: Arena, number: int, num_slices: int) -> bytes:
    """16 bytes that equal those of the same words of another arena, where these are equal.

    Args:
        arena: the arena.
        number: of the slice, from 0.
        num_slices: slices into which the arena is cut, at least 1.
    """
    words = slice_words(arena, num_slices)
    part = arena[number * words : (number + 1) * words]
    return hashlib.sha256(part.data.cast("B") if len(part) else b"").digest()[:16]
