"""What a world is made of: its sizes, and what the engine knows of each thing it holds."""

from dataclasses import dataclass, field

from kvstrata import AdmissionConfig, Lease, Request, Sequence, Step, Suspended, Transfer

from .stamps import hashes_of


@dataclass(frozen=True)
class Setting:
    """Sizes of one world."""

    name: str
    groups: tuple[str, ...]
    block_tokens: int
    rollback_tokens: int
    blocks: int
    images: int
    max_sequences: int = 3
    images_per_sequence: int = 2
    checkpoint_every: int = 0
    admission: AdmissionConfig | None = field(
        default_factory=lambda: AdmissionConfig(max_waiting=9, ageing_s=600.0)
    )


SETTINGS = [
    Setting("plain", ("c1",), 4, 2, 14, 0),
    Setting("window", ("c1", "swa"), 4, 2, 16, 8),
    Setting("replay", ("c1", "swa"), 2, 2, 26, 7),
    Setting("index", ("c2", "c4", "c4.index", "swa", "c4.tail"), 4, 3, 18, 11, 3, 3),
    Setting("every", ("c2", "swa", "c2.tail"), 4, 3, 16, 12, 3, 2, 8),
    Setting("open", ("c1", "swa"), 4, 2, 14, 9, 4, admission=None),
]


@dataclass
class Draft:
    """What a sequence computes in one step; void once an older step kept less than it had."""

    step: Step
    tokens: list[int]
    is_void: bool = False


class Run:
    """A running sequence as the engine knows it: all its tokens, and the drafts in flight."""

    def __init__(self, sequence: Sequence, request: Request, tokens: list[int]) -> None:
        self.sequence = sequence
        self.request = request
        self.tokens = tokens
        self.drafts: list[Draft] = []
        self.transfers: list[Transfer] = []

    @property
    def reserved(self) -> list[int]:
        """Tokens committed and in flight."""
        live = [draft.tokens for draft in self.drafts if not draft.is_void]
        return self.tokens + [token for draft in live for token in draft]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight for it."""
        return not self.drafts and not self.transfers

    @property
    def hashes(self) -> list[int]:
        return hashes_of(self.request.model, self.reserved)


@dataclass
class Paused:
    suspended: Suspended
    tokens: list[int]
    request: Request | None = None


@dataclass
class Held:
    lease: Lease
    hashes: list[int]
