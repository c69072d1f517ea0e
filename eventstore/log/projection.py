"""What the log replays into: an arena, and the one apply.

The log treats the arena as opaque int64 words; this is all it knows of the core. Tests of the
log pass a projection of their own.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import ArenaParams, new_arena
from kvstrata.core.errors import InvariantViolation
from kvstrata.core.layout import CacheLayout
from kvstrata.core.replay import apply_events
from kvstrata.core.words import (
    ARENA_VERSION,
    META_LAST_SEQNO,
    META_REFUSAL,
)

from .blobs import canonical_json

__all__ = ["Projection", "Words", "core_projection", "replay_words"]

Words = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Projection:
    """How a log's events become state.

    Attributes:
        fresh: makes the arena in which nothing has happened.
        apply: applies int64[n, 8] events to an arena in order; returns n, or the index of the
            first one refused.
        last_seqno: the last seqno applied to an arena.
        refusal: the code of an arena's last refusal.
        layout_digest: digest of the cache layout.
        digest: digest of the arena's shape; a snapshot of another shape is not used.
        layout: the layout, as JSON.
        params: the arena's sizes, as JSON.
    """

    fresh: Callable[[], Words]
    apply: Callable[[Words, Words], int]
    last_seqno: Callable[[Words], int]
    refusal: Callable[[Words], int]
    layout_digest: bytes
    digest: bytes
    layout: dict[str, Any]
    params: dict[str, Any]


def core_projection(layout: CacheLayout, params: ArenaParams) -> Projection:
    """The projection of the core's own tables."""
    sizes = asdict(params)
    shape = canonical_json({"arena": ARENA_VERSION, "params": sizes})
    return Projection(
        fresh=lambda: new_arena(layout, params),
        apply=apply_events,
        last_seqno=lambda arena: int(arena[META_LAST_SEQNO]),
        refusal=lambda arena: int(arena[META_REFUSAL]),
        layout_digest=layout.digest(),
        digest=hashlib.sha256(layout.digest() + shape).digest()[:16],
        layout=layout.to_json(),
        params=sizes,
    )


def replay_words(projection: Projection, arena: Words, words: Words) -> None:
    """Apply events that were read back.

    Args:
        projection: how.
        arena: mutated.
        words: int64[n, 8].

    Raises:
        InvariantViolation: apply refused one; the log and this code disagree.
    """
    done = projection.apply(arena, words)
    if done != len(words):
        raise InvariantViolation(
            f"expected event {int(words[done, 0])} to apply after event "
            f"{projection.last_seqno(arena)}, found it refused (code "
            f"{projection.refusal(arena)}); keep the directory and report it"
        )
