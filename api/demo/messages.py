"""What the demo and its engine process say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from kvstrata import Kind, KvstrataError

if TYPE_CHECKING:
    from kvstrata import Recovery

__all__ = [
    "Close",
    "Done",
    "Failed",
    "Find",
    "Flip",
    "Flush",
    "InsideStep",
    "Match",
    "Matched",
    "Open",
    "Opened",
    "Place",
    "Serve",
    "Served",
    "Settle",
    "StepBegun",
    "Tiered",
    "Tokens",
]

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Open:
    """Open a manager, in place of the one before.

    Attributes:
        seed: seeds the model's weights.
        directory: the log directory; None for memory of the process and no log.
        shared_memory_root: where ring and pools lie.
        verify_hits: whether the pages of a hit are checksummed.
        tier: a folder below the device; None for none.
        spill: when pages are written there.
    """

    seed: int
    directory: Path | None
    shared_memory_root: Path
    verify_hits: Literal["always", "never"] = "always"
    tier: Path | None = None
    spill: Literal["seal", "never"] = "never"


@dataclass(frozen=True)
class Opened:
    """The manager is open; ``recovery`` is what it found, None without a log."""

    recovery: Recovery | None


@dataclass(frozen=True)
class Serve:
    """Serve one request.

    Attributes:
        prompt: int32[n].
        num_new_tokens: tokens to generate.
        max_resume: reuse at most so many tokens; None for no limit.
        stop_in_step: stand still in the middle of this step, counted from 0, until killed.
    """

    prompt: Tokens = field(repr=False)
    num_new_tokens: int
    max_resume: int | None = None
    stop_in_step: int | None = None


@dataclass(frozen=True)
class StepBegun:
    """A call of the model began, and with it a step; the step before it is committed."""

    start: int
    num_tokens: int


@dataclass(frozen=True)
class InsideStep:
    """The engine stands still in the middle of the step that began last."""


@dataclass(frozen=True)
class Served:
    """The answer to :class:`Serve`.

    Attributes:
        tokens: the new tokens.
        logits: float32[new tokens, vocabulary], the row each was chosen from.
        resumed_at: position up to which nothing was computed.
        steps: every step of the request.
        first_token_ms: time until the first new token was known.
        ms: time of the whole request.
    """

    tokens: Tokens = field(repr=False)
    logits: npt.NDArray[np.float32] = field(repr=False)
    resumed_at: int
    steps: list[StepBegun] = field(repr=False)
    first_token_ms: float
    ms: float


@dataclass(frozen=True)
class Find:
    """Find a byte that a request would reuse, in a page of the kind."""

    kind: Kind
    prompt: Tokens = field(repr=False)
    max_resume: int | None = None


@dataclass(frozen=True)
class Place:
    """A byte of a sealed page, and where the request that would reuse it would resume."""

    kind: Kind
    group: str
    page: int
    offset: int
    resume_at: int


@dataclass(frozen=True)
class Flip:
    """Flip a byte behind the manager's back; once more restores it."""

    place: Place


@dataclass(frozen=True)
class Match:
    """Ask where a request would resume; nothing is begun."""

    prompt: Tokens = field(repr=False)


@dataclass(frozen=True)
class Matched:
    """The answer to :class:`Match`."""

    resume_at: int
    source: str


@dataclass(frozen=True)
class Settle:
    """Wait until all that was sealed is stored below the device."""


@dataclass(frozen=True)
class Tiered:
    """The answer to :class:`Settle`: objects stored, and those read since the manager opened."""

    stored: int
    read: int


@dataclass(frozen=True)
class Flush:
    """Wait until everything logged is on disk."""


@dataclass(frozen=True)
class Close:
    """Close the manager and end."""


@dataclass(frozen=True)
class Done:
    """A command without an answer of its own was carried out."""


@dataclass(frozen=True)
class Failed:
    """A command was refused, with the error that says why."""

    error: KvstrataError
