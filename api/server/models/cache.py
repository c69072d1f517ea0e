"""Layout, pools, pages, segments, sequences, leases, tiers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Histogram, Key, KindName, Model, Reader, ReasonCount, StateName

__all__ = [
    "Block",
    "BlockDetails",
    "Component",
    "Group",
    "Holder",
    "InFlight",
    "Layout",
    "Lease",
    "Pool",
    "Segment",
    "Sequence",
    "Sizes",
    "Stamp",
    "StoredObject",
    "Tier",
    "Tiers",
    "Transfers",
    "Unit",
    "UnitPage",
]


class Component(Model):
    """One tensor inside a page."""

    name: str = Field(examples=["kv"])
    dtype: str = Field(examples=["bf16"])
    rows: int
    shape: list[int]


class Group(Model):
    """Layers that share one cache lifecycle."""

    id: int
    name: str = Field(examples=["c4"])
    kind: KindName
    layers: list[int]
    ratio: int = Field(description="Tokens that one entry stands for.")
    window_tokens: int = Field(description="Tokens that a query sees; 0 where nothing slides.")
    page_bytes: int
    is_history: bool = Field(description="Whether a resume needs every block of it.")
    components: list[Component]


class Sizes(Model):
    """Sizes of the tables."""

    slots: dict[str, int] = Field(description="Pages by group, the scratch page included.")
    max_sequences: int
    max_leases: int
    max_blocks_per_sequence: int
    images_per_sequence: int
    stored_keys: int


class Layout(Model):
    """What the cache was made for."""

    log_id: str
    name: str = Field(examples=["deepseek-v4-flash"])
    digest: str
    num_layers: int
    block_tokens: int
    rollback_tokens: int
    replay_tokens: int
    block_bytes: int
    image_bytes: int
    groups: list[Group]
    sizes: Sizes


class Pool(Model):
    """One group's pages."""

    group: str = Field(examples=["c4"])
    kind: KindName
    num_pages: int
    page_bytes: int
    pool_bytes: int
    pages: dict[StateName, int] = Field(description="How many pages are in each state.")
    reader: Reader


class Block(Model):
    """One page: one group's share of a block, or one state image."""

    group: str = Field(examples=["c4"])
    kind: KindName
    page: int = Field(description="Slot in the group's pool.", examples=[17])
    generation: int = Field(description="How often the slot was taken.")
    state: StateName
    key: Key | None = Field(description="Of the prefix that ends with it; null while it is built.")
    is_indexed: bool = Field(description="Whether a request can find it.")
    position_tokens: int = Field(description="Where it ends in its prefix.")
    entries: int = Field(description="Entries valid in it, as of the last boundary.")
    references: int = Field(description="Of its block or image.")
    checksum: str | None = Field(description="Of its sealing, 16 hexadecimal digits.")
    sequence: int | None = Field(description="That builds it; null once it is complete.")
    tiers: list[str] = Field(description="Where it is, or its object.", examples=[["device"]])
    changed_seqno: int = Field(description="The event that changed its state last.")
    age_s: float | None = Field(description="Since then; null where the time is not known.")


class Stamp(Model):
    """What a page was sealed under."""

    abi: int
    version: int
    is_dirty: bool = Field(description="Written behind its seal.")
    has_overlap: bool = Field(description="Holds the overlap of the window closed last.")


class UnitPage(Model):
    """A page of the same block or image."""

    group: str
    kind: KindName
    page: int
    state: StateName
    entries: int


class Unit(Model):
    """A block (a page of every history group) or an image (a page of every state group)."""

    kind: Literal["block", "image"]
    number: int
    generation: int
    state: Literal["free", "building", "indexed", "unindexed"]
    references: int
    parent_key: Key | None
    canonical: int | None = Field(description="Of a duplicate, the block that is indexed.")
    num_sealed_pages: int
    last_use_seqno: int | None
    resumes: int | None = Field(description="Sequences that began on it; null for blocks.")
    pages: list[UnitPage]


class Holder(Model):
    """A sequence or lease that holds a page."""

    kind: Literal["sequence", "lease"]
    id: int


class BlockDetails(Block):
    """The full morphology of one page."""

    entries_when_full: int
    awaiting: Literal["compression", "filling"] | None
    window_tokens: int
    ring_rows: int
    ring_head: int | None
    stamp: Stamp | None
    reader: Reader
    index_version: int | None = Field(
        description="Version stamp of the block's index, or of an index's compressed page."
    )
    unit: Unit | None
    holders: list[Holder]
    last_use_s: float | None = Field(description="Seconds since the last reader released it.")


class Segment(Model):
    """All groups of one token segment, side by side."""

    key: Key
    block_tokens: int
    block: Unit | None
    block_tiers: list[str]
    checkpoint: Unit | None
    checkpoint_tiers: list[str]
    num_children: int
    children: list[Key] = Field(description="Keys of blocks that go on from it, 100 at most.")
    seqno: int


class Sequence(Model):
    """A running request, or a load that owns pages as one does."""

    id: int
    state: Literal["running", "draining"]
    prompt_tokens: int
    sealed_tokens: int
    num_blocks: int
    num_blocks_reused: int
    num_images: int
    is_tainted: bool = Field(description="Stands on something found bad: it publishes nothing.")


class Lease(Model):
    """A permission to read pages, held outside sequences."""

    id: int
    held_for: Literal["engine", "spiller", "operator"]
    command: int | None = Field(description="Of a pin, the command that made it.")
    num_blocks: int
    key: Key | None
    has_checkpoint: bool


class Tier(Model):
    """A place for objects below the device."""

    name: str
    num_blocks: int
    num_checkpoints: int
    failures: list[ReasonCount]


class Transfers(Model):
    """Loads, or spills, that have ended."""

    count: int
    objects: int
    bytes: int
    seconds: Histogram


class InFlight(Model):
    """What is under way."""

    loads: int = 0
    load_bytes: int = 0
    spills: int = 0
    waiting: int = Field(default=0, description="Requests that admission holds up.")


class Tiers(Model):
    """What is stored below the device, as this log saw it."""

    tiers: list[Tier]
    num_keys: int
    max_keys: int
    in_flight: InFlight
    loads: Transfers
    spills: Transfers
    seqno: int


class StoredObject(Model):
    """A key whose block or checkpoint lies below the device."""

    key: Key
    position_tokens: int
    block_tiers: list[str]
    checkpoint_tiers: list[str]
