"""What goes into the reference and comes out of it: requests, plans, sequences, steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field


class Refused(Exception):
    """A verb was refused and changed nothing."""


class Stale(Refused):
    """A plan names blocks that are no longer what they were."""


class NoRoom(Refused):
    """There are not enough free and idle units or rows."""


class Misuse(Refused):
    """The caller broke a rule of the verbs."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a cache: slots of each group in group order, history groups first."""

    slots: tuple[int, ...]
    num_history: int
    block_tokens: int
    rollback_tokens: int
    images_per_sequence: int
    max_sequences: int
    max_leases: int
    max_blocks_per_sequence: int
    replay_tokens: int
    tokens_per_s: int
    bytes_per_s: int
    image_bytes: int
    checkpoint_every: int
    stored_keys: int = 0
    block_bytes: int = 0
    load_bytes_per_s: int = 1


Named = tuple[int, int]
"""A unit and the generation it had."""


@dataclass(frozen=True)
class Wanted:
    """What a plan loads from lower tiers."""

    first: int
    num_blocks: int
    checkpoint_at: int  # position in tokens, 0 for none
    num_bytes: int


@dataclass(frozen=True)
class Plan:
    """A resume point, what is pinned, and where checkpoints are wanted."""

    tokens: tuple[int, ...]
    seed: bytes
    extras: Mapping[int, bytes]
    max_resume: int | None
    keys: tuple[bytes, ...]
    source: str  # history, checkpoint, replay, stored, stored replay, cold, suspended
    resume_at: int
    found: int  # blocks of the prompt that are here
    limit: int  # tokens of blocks here or stored that may be reused
    blocks: tuple[Named, ...]  # first to last
    partial: Named | None
    checkpoint: Named | None
    key: bytes  # of what the checkpoint and the partial block stand under, else of the last block
    branch: int
    captures: tuple[int, ...] = ()
    load: Wanted | None = None

    @property
    def pins_nothing(self) -> bool:
        return not self.blocks and self.partial is None and self.checkpoint is None


@dataclass(frozen=True)
class Suspended:
    """What is left of a suspended sequence for its engine: the request, and how far it was."""

    position: int
    seed: bytes
    extras: Mapping[int, bytes]
    max_resume: int | None
    prompt: tuple[int, ...]


@dataclass(eq=False)
class Sequence:
    """A running request and what it owns."""

    number: int
    row: int
    seed: bytes
    extras: Mapping[int, bytes]
    max_resume: int | None
    prompt_tokens: int
    tokens: list[int]  # the prompt, then what was accepted of the output
    captures: tuple[int, ...]
    branch: int
    position: int
    exact: int  # below it a replay's state is not that of a sequence computed from the start
    blocks: list[int]
    sealed: int
    origin: Named | None = None  # the checkpoint it began on
    partial_origin: Named | None = None  # the partial block it began on
    tainted: bool = False
    images: list[int] = field(default_factory=list)
    committed: int = 0
    front: int = 0
    rolling: int = 0
    rolling_position: int = 0
    written: int = 0  # how far the front image's ring was ever written
    written_before: int = 0  # the same of the committed image while a switched step is in flight
    draining: bool = False
    is_load: bool = False
    image: int = 0  # of a load: the one it fills


@dataclass(eq=False)
class Load:
    """A load and the row that owns its pages."""

    sequence: Sequence
    keys: tuple[bytes, ...]  # of the blocks it loads
    checkpoint_key: bytes
    is_drained: bool = False
    is_ended: bool = False


@dataclass(eq=False)
class Row:
    """One sequence's share of a step."""

    sequence: Sequence
    start: int
    num_tokens: int
    switched: bool
    is_void: bool = False


@dataclass(eq=False)
class Step:
    """A step in flight: for each sequence asked for its row, or why it was refused."""

    refused: list[str]
    rows: list[Row | None]


@dataclass(eq=False)
class Lease:
    """A prefix pinned outside sequences."""

    number: int
    row: int
    blocks: list[int]
    checkpoint: int = 0
    partial: int = 0
