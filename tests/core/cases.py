"""Small caches for histories: every number of groups, pools so small that all is evicted."""

from dataclasses import dataclass, replace

from kvstrata.core.arena import ArenaParams
from kvstrata.core.groups import GroupSpec, Kind
from kvstrata.core.layout import CacheLayout
from kvstrata.core.presets import Row, sized_group

from ..reference.values import Sizes

LAYERS = (0, 1)


@dataclass(frozen=True)
class Case:
    """A layout by its groups, and how many pages each has beyond the least of its side."""

    name: str
    groups: tuple[str, ...]
    block_tokens: int
    rollback_tokens: int
    num_blocks: int
    num_images: int
    images_per_sequence: int = 2
    max_sequences: int = 4
    max_leases: int = 2
    max_blocks_per_sequence: int = 10
    new_text_blocks: int = 3
    ring_events: int = 1 << 13
    checkpoint_every: int = 0
    tokens_per_s: int = 10_000
    bytes_per_s: int = 10_000_000_000
    stored_keys: int = 0
    load_bytes_per_s: int = 1_000_000_000

    @property
    def layout(self) -> CacheLayout:
        groups = tuple(self._group(name) for name in self.groups)
        return CacheLayout(self.name, groups, self.block_tokens, self.rollback_tokens, 2)

    def _group(self, name: str) -> GroupSpec:
        sizes = (self.block_tokens, self.rollback_tokens)
        ratio = int(name.removeprefix("c").split(".")[0]) if name != "swa" else 1
        kind = Kind.COMPRESSED
        if name == "swa":
            return sized_group(name, Kind.SWA, LAYERS, [Row("kv", "u8", (2,))], *sizes, window=4)
        if name.endswith(".index"):
            kind = Kind.INDEXER
        elif name.endswith(".tail"):
            kind = Kind.TAIL
        return sized_group(name, kind, LAYERS, [Row("entry", "u8", (2,))], *sizes, ratio=ratio)

    @property
    def slots(self) -> dict[str, int]:
        """Slots by group; pools of one side differ, so that their free lists do too."""
        num_history = len(self.layout.history_groups)
        return {
            name: 1 + (self.num_blocks + i if i < num_history else self.num_images + i % 3)
            for i, name in enumerate(self.groups)
        }

    @property
    def params(self) -> ArenaParams:
        return ArenaParams(
            slots=self.slots,
            max_sequences=self.max_sequences,
            max_leases=self.max_leases,
            max_blocks_per_sequence=self.max_blocks_per_sequence,
            images_per_sequence=self.images_per_sequence,
            stored_keys=self.stored_keys,
        )

    @property
    def sizes(self) -> Sizes:
        return Sizes(
            slots=tuple(self.slots.values()),
            num_history=len(self.layout.history_groups),
            block_tokens=self.block_tokens,
            rollback_tokens=self.rollback_tokens,
            images_per_sequence=self.images_per_sequence,
            max_sequences=self.max_sequences,
            max_leases=self.max_leases,
            max_blocks_per_sequence=self.max_blocks_per_sequence,
            replay_tokens=self.layout.replay_tokens,
            tokens_per_s=self.tokens_per_s,
            bytes_per_s=self.bytes_per_s,
            image_bytes=self.layout.image_bytes,
            checkpoint_every=self.checkpoint_every,
            stored_keys=self.stored_keys,
            block_bytes=self.layout.block_bytes,
            load_bytes_per_s=self.load_bytes_per_s,
        )


CASES = {
    case.name: case
    for case in (
        Case("plain", ("c1",), 4, 1, num_blocks=14, num_images=0, max_sequences=5),
        Case("window", ("c1", "swa"), 4, 2, num_blocks=16, num_images=8),
        Case("spare", ("c2", "swa"), 4, 3, num_blocks=20, num_images=14, images_per_sequence=4),
        Case("index", ("c4", "c4.index", "swa", "c4.tail"), 16, 8, 12, 7, max_sequences=3),
        Case(
            "all",
            ("c4", "c16", "c4.index", "swa", "c4.tail", "c4.index.tail", "c16.tail"),
            *(16, 4, 40, 16),
            images_per_sequence=3,
        ),
        # few checkpoints, and a window that is short against the prompts: replays
        Case(
            "replay",
            ("c1", "swa"),
            *(2, 2, 40, 9),
            max_blocks_per_sequence=16,
            new_text_blocks=8,
        ),
        # a block costs as much to compute as a checkpoint to load: candidates cost the same
        Case(
            "every",
            ("c2", "swa"),
            *(4, 3, 36, 20),
            images_per_sequence=3,
            max_blocks_per_sequence=14,
            new_text_blocks=5,
            checkpoint_every=8,
            tokens_per_s=10**9,
            bytes_per_s=16 * 10**9,
        ),
        # lower tiers of which so little is remembered that some is always forgotten; a block is
        # loaded sooner than it is computed
        Case("stored", ("c1",), 4, 1, 40, 0, max_sequences=8, stored_keys=12),
        Case(
            "loads",
            ("c1", "swa"),
            *(4, 2, 34, 16),
            max_sequences=7,
            stored_keys=20,
            load_bytes_per_s=400_000,
        ),
        Case(
            "reloads",
            ("c1", "swa"),
            *(2, 2, 50, 14),
            max_sequences=7,
            max_blocks_per_sequence=16,
            new_text_blocks=8,
            stored_keys=40,
            load_bytes_per_s=800_000,
        ),
    )
}

LONG = Case(
    "long",
    ("c2", "c4", "c4.index", "swa"),
    *(4, 3, 220, 12),
    max_blocks_per_sequence=150,
    new_text_blocks=150,
    ring_events=1 << 11,
)
"""Steps of so many blocks that a quarter of the ring does not hold one call's events."""

LONG_LOADS = replace(
    LONG, name="long-loads", stored_keys=400, max_sequences=6, max_blocks_per_sequence=170
)
"""Loads of so many blocks that a quarter of the ring does not hold their draining either."""
