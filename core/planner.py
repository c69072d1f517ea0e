"""The resume planner: where a request can resume, what each way costs, and the cheapest.

Pure. What it decides by stands in the arena (index, replay tokens, observed rates), so that a
request can be explained from the log alone, by the same function.
"""

from typing import Final, NamedTuple

from .words import (
    DEFAULT_LOAD_BYTES_PER_S,
    META_BLOCK_BYTES,
    META_BLOCK_TOKENS,
    META_BYTES_PER_S,
    META_IMAGE_BYTES,
    META_LOAD_BYTES_PER_S,
    META_NUM_GROUPS,
    META_NUM_HISTORY,
    META_REPLAY_TOKENS,
    META_TOKENS_PER_S,
    Arena,
)

__all__ = ["Candidate", "Rates", "Stored", "candidates", "cost_ns", "rates_of", "stored_candidates"]

NEVER_NS: Final = 1 << 62
"""A wait that has no end."""
_NS: Final = 1_000_000_000


class Rates(NamedTuple):
    """What the planner believes about the machine.

    Attributes:
        tokens_per_s: tokens of a prompt computed in a second.
        bytes_per_s: bytes of pages copied in a second.
        load_bytes_per_s: bytes of objects loaded from a tier in a second.
    """

    tokens_per_s: int
    bytes_per_s: int
    load_bytes_per_s: int = DEFAULT_LOAD_BYTES_PER_S


class Stored(NamedTuple):
    """How far a prompt's prefix is here or in a tier that can be read.

    Attributes:
        history: blocks that are here, and may be reused.
        limit: blocks that are here or stored; at least ``history``.
        checkpoint: blocks before the furthest checkpoint within them, 0 for none.
        image_here: whether that checkpoint is here.
    """

    history: int
    limit: int
    checkpoint: int
    image_here: bool


class Candidate(NamedTuple):
    """One way to serve a request.

    Attributes:
        source: ``history`` (no state is needed), ``checkpoint``, ``replay`` (the window before the
            point is computed again from nothing), ``suspended`` (the exact state that was kept),
            ``stored`` or ``stored replay`` (as ``checkpoint``, ``history`` or ``replay``, with
            pages that a lower tier holds) or ``cold``.
        resume_at: position in tokens from which on tokens are computed.
        num_blocks: whole blocks that are pinned.
        load_bytes: bytes to copy before computing.
        cost_ns: what it costs until the prompt is computed, the wait for its load included.
    """

    source: str
    resume_at: int
    num_blocks: int
    load_bytes: int
    cost_ns: int


def rates_of(arena: Arena) -> Rates:
    """The rates that are configured or were observed last."""
    return Rates(
        arena.item(META_TOKENS_PER_S),
        arena.item(META_BYTES_PER_S),
        arena.item(META_LOAD_BYTES_PER_S),
    )


def cost_ns(rates: Rates, tokens: int, load_bytes: int) -> int:
    """Time to load so many bytes and to compute so many tokens, in whole ns."""
    return tokens * _NS // rates.tokens_per_s + load_bytes * _NS // rates.bytes_per_s


def candidates(
    arena: Arena,
    num_tokens: int,
    limit: int,
    checkpoint: int,
    rates: Rates,
    wait_ns: int = 0,
) -> list[Candidate]:
    """Every way worth a look, in order of preference where two cost the same.

    Args:
        arena: the arena; read only.
        num_tokens: length of the prompt.
        limit: blocks of history that are here and may be reused; below the prompt's end.
        checkpoint: blocks before the furthest checkpoint within them, 0 for none.
        rates: to reckon by.
        wait_ns: how long a load would have to wait to be admitted.

    Returns:
        At least one; the last one computes everything.
    """
    tokens = arena.item(META_BLOCK_TOKENS)
    cold_ns = cost_ns(rates, num_tokens, 0)
    ways = []
    if arena.item(META_NUM_GROUPS) == arena.item(META_NUM_HISTORY):
        if limit:
            left = num_tokens - limit * tokens
            ways.append(Candidate("history", limit * tokens, limit, 0, cost_ns(rates, left, 0)))
    else:
        if checkpoint:
            resume_at, load = checkpoint * tokens, arena.item(META_IMAGE_BYTES)
            cost = cost_ns(rates, num_tokens - resume_at, load) + wait_ns
            ways.append(Candidate("checkpoint", resume_at, checkpoint, load, cost))
        restart = _restart(arena, limit)
        if restart > 0:
            cost = cost_ns(rates, num_tokens - restart, 0)
            ways.append(Candidate("replay", restart, limit, 0, cost))
    ways.append(Candidate("cold", 0, 0, 0, cold_ns))
    return ways


def _restart(arena: Arena, limit: int) -> int:
    """Where computing must begin again so that the state is exact at the end of the history."""
    tokens = arena.item(META_BLOCK_TOKENS)
    restart: int = (limit * tokens - arena.item(META_REPLAY_TOKENS)) // tokens * tokens
    return restart


def stored_candidates(
    arena: Arena, num_tokens: int, found: Stored, rates: Rates
) -> list[tuple[Candidate, int]]:
    """The ways that load from a tier, each with the bytes it loads.

    Args:
        arena: the arena; read only.
        num_tokens: length of the prompt.
        found: how far the prefix reaches.
        rates: to reckon by.

    Returns:
        None, one or two; what they load are the blocks behind those that are here, and the
        checkpoint where it is not.
    """
    tokens, block_bytes = arena.item(META_BLOCK_TOKENS), arena.item(META_BLOCK_BYTES)
    ways: list[tuple[Candidate, int]] = []

    def add(source: str, num_blocks: int, resume_at: int, image_bytes: int, copied: int) -> None:
        load = max(num_blocks - found.history, 0) * block_bytes + image_bytes
        if not load or resume_at <= 0:
            return
        cost = cost_ns(rates, num_tokens - resume_at, copied)
        cost += load * _NS // rates.load_bytes_per_s
        ways.append((Candidate(source, resume_at, num_blocks, load + copied, cost), load))

    if arena.item(META_NUM_GROUPS) == arena.item(META_NUM_HISTORY):
        add("stored", found.limit, found.limit * tokens, 0, 0)
        return ways
    if found.checkpoint:
        image_bytes = arena.item(META_IMAGE_BYTES)
        loaded = 0 if found.image_here else image_bytes
        add("stored", found.checkpoint, found.checkpoint * tokens, loaded, image_bytes)
    add("stored replay", found.limit, _restart(arena, found.limit), 0, 0)
    return ways
