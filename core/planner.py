"""The resume planner: where a request can resume, what each way costs, and the cheapest.

Pure. What it decides by stands in the arena (index, replay tokens, observed rates), so that a
request can be explained from the log alone, by the same function.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from .compile import compiled, helper
from .events import ResumeSource
from .index import find_unit
from .matching import find_checkpoint, walk_blocks
from .views import words_at
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

__all__ = [
    "PLAN_WORDS",
    "SOURCES",
    "Candidate",
    "Rates",
    "Stored",
    "cost_ns",
    "list_captures",
    "plan_prefix",
    "rates_of",
    "stored_candidates",
    "ways_of",
    "weigh_ways",
    "write_ways",
]

NEVER_NS: Final = 1 << 62
"""A wait that has no end."""
_NS: Final = 1_000_000_000
_LONGEST_NS: Final = 1 << 60
"""Some 36 years: two of them and a wait without end are a number of 63 bits."""
_EXACT: Final = (1 << 63) // _NS
"""What times _NS is one."""

# a plan: how far the prefix is here; what resumes on; where a checkpoint is wanted; the ways
(
    PLAN_HISTORY,
    PLAN_HERE,
    PLAN_LIMIT,
    PLAN_REACH,
    PLAN_CHECKPOINT,
    PLAN_IMAGE,
    PLAN_IMAGE_GENERATION,
    PLAN_PARTIAL,
    PLAN_PARTIAL_GENERATION,
    PLAN_PARTIAL_KEY_0,
    PLAN_PARTIAL_KEY_1,
    PLAN_NUM_CAPTURES,
    PLAN_CAPTURES,
) = range(13)
PLAN_NUM_WAYS, PLAN_CHOSEN, PLAN_WAYS = range(PLAN_CAPTURES + 3, PLAN_CAPTURES + 6)
WAY_SOURCE, WAY_RESUME, WAY_BLOCKS, WAY_LOAD, WAY_COST = range(5)
WAY_WORDS: Final = 5
MAX_WAYS: Final = 5
PLAN_WORDS: Final = PLAN_WAYS + MAX_WAYS * WAY_WORDS
"""In blocks: HISTORY, all that are here; HERE, those that may be reused; LIMIT, those that every
rank may; REACH, those that are here or stored; CHECKPOINT, those before the furthest one within
LIMIT, whose image is IMAGE. PARTIAL: the block that a suspended request continues inside."""

SOURCES: Final = (
    *(source.name.lower() for source in ResumeSource),
    "stored",
    "stored replay",
)
"""Names of the ways, by WAY_SOURCE: those of what a request resumes on, and those that load."""
_HISTORY: Final = int(ResumeSource.HISTORY)
_CHECKPOINT: Final = int(ResumeSource.CHECKPOINT)
_REPLAY: Final = int(ResumeSource.REPLAY)
_COLD: Final = int(ResumeSource.COLD)


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


@helper
def _spent_ns(amount: int, per_s: int) -> int:
    """Time for so much, in whole ns; no more than _LONGEST_NS."""
    seconds, rest = amount // per_s, amount % per_s
    if seconds >= _LONGEST_NS // _NS:
        return _LONGEST_NS
    if rest <= _EXACT:
        return seconds * _NS + rest * _NS // per_s
    return seconds * _NS + int(rest / per_s * _NS)


@compiled
def _cost_ns(tokens: int, tokens_per_s: int, load_bytes: int, bytes_per_s: int) -> int:
    return _spent_ns(tokens, tokens_per_s) + _spent_ns(load_bytes, bytes_per_s)


def cost_ns(rates: Rates, tokens: int, load_bytes: int) -> int:
    """Time to load so many bytes and to compute so many tokens, in whole ns."""
    return int(_cost_ns(tokens, rates.tokens_per_s, load_bytes, rates.bytes_per_s))


@compiled
def plan_prefix(
    arena: Arena,
    keys: Arena,
    num_tokens: int,
    max_resume: int,
    wait_ns: int,
    blocks: Arena,
    found: Arena,
) -> None:
    """How far a prompt's prefix is here, every way to use it, and the cheapest.

    Args:
        arena: the arena; read only.
        keys: int64[n, 2], keys of the prompt's whole blocks.
        num_tokens: length of the prompt.
        max_resume: tokens that may be reused at most.
        wait_ns: how long a checkpoint's copy would have to wait to be admitted.
        blocks: int64[n, 2], filled with block ids and generations.
        found: int64[PLAN_WORDS], filled.

    Mutates:
        blocks, found.
    """
    found[:PLAN_WAYS] = 0
    history = walk_blocks(arena, keys, blocks)
    tokens = arena[META_BLOCK_TOKENS]
    limit = min(history, (num_tokens - 1) // tokens, max_resume // tokens)
    found[PLAN_HISTORY] = history
    found[PLAN_HERE] = found[PLAN_LIMIT] = found[PLAN_REACH] = limit
    if arena[META_NUM_GROUPS] != arena[META_NUM_HISTORY]:
        image = words_at(found, PLAN_IMAGE, 2)
        found[PLAN_CHECKPOINT] = find_checkpoint(arena, keys, limit, image)
    tokens_per_s, bytes_per_s = arena[META_TOKENS_PER_S], arena[META_BYTES_PER_S]
    weigh_ways(arena, num_tokens, tokens_per_s, bytes_per_s, wait_ns, found)
    list_captures(arena, keys, num_tokens, history, True, found)


@compiled
def weigh_ways(
    arena: Arena,
    num_tokens: int,
    tokens_per_s: int,
    bytes_per_s: int,
    wait_ns: int,
    found: Arena,
) -> None:
    """Every way worth a look, in order of preference where two cost the same; the last is cold.

    Args:
        arena: the arena; read only.
        num_tokens: length of the prompt.
        tokens_per_s: to reckon by.
        bytes_per_s: to reckon by.
        wait_ns: how long a checkpoint's copy would have to wait to be admitted.
        found: int64[PLAN_WORDS]: the LIMIT, blocks of history that are here and may be reused,
            below the prompt's end; and the CHECKPOINT, blocks before the furthest one within them,
            0 for none.

    Mutates:
        found: its ways and which is CHOSEN.
    """
    tokens, limit, checkpoint = (
        arena[META_BLOCK_TOKENS],
        found[PLAN_LIMIT],
        found[PLAN_CHECKPOINT],
    )
    count = 0
    if arena[META_NUM_GROUPS] == arena[META_NUM_HISTORY]:
        if limit > 0:
            cost = _cost_ns(num_tokens - limit * tokens, tokens_per_s, 0, bytes_per_s)
            count = _add_way(found, count, _HISTORY, limit * tokens, limit, 0, cost)
    else:
        if checkpoint > 0:
            resume_at, load = checkpoint * tokens, arena[META_IMAGE_BYTES]
            cost = _cost_ns(num_tokens - resume_at, tokens_per_s, load, bytes_per_s) + wait_ns
            count = _add_way(found, count, _CHECKPOINT, resume_at, checkpoint, load, cost)
        restart = _restart(arena, limit)
        if restart > 0:
            cost = _cost_ns(num_tokens - restart, tokens_per_s, 0, bytes_per_s)
            count = _add_way(found, count, _REPLAY, restart, limit, 0, cost)
    cost = _cost_ns(num_tokens, tokens_per_s, 0, bytes_per_s)
    found[PLAN_NUM_WAYS] = _add_way(found, count, _COLD, 0, 0, 0, cost)


@helper
def _add_way(
    found: Arena,
    number: int,
    source: int,
    resume_at: int,
    num_blocks: int,
    load_bytes: int,
    cost: int,
) -> int:
    """Write down a way, and that it is chosen where it is cheaper than those before it."""
    at = PLAN_WAYS + number * WAY_WORDS
    found[at + WAY_SOURCE] = source
    found[at + WAY_RESUME] = resume_at
    found[at + WAY_BLOCKS] = num_blocks
    found[at + WAY_LOAD] = load_bytes
    found[at + WAY_COST] = cost
    if number == 0 or cost < found[PLAN_WAYS + found[PLAN_CHOSEN] * WAY_WORDS + WAY_COST]:
        found[PLAN_CHOSEN] = number
    return number + 1


def ways_of(words: list[int]) -> list[Candidate]:
    """The ways of a plan, int[PLAN_WORDS], in order of preference."""
    end = PLAN_WAYS + words[PLAN_NUM_WAYS] * WAY_WORDS
    return [
        Candidate(SOURCES[words[at]], *words[at + 1 : at + WAY_WORDS])
        for at in range(PLAN_WAYS, end, WAY_WORDS)
    ]


def write_ways(found: Arena, ways: Sequence[Candidate]) -> Candidate:
    """Make these the ways of a plan; the cheapest, or the first of several, is chosen.

    Args:
        found: int64[PLAN_WORDS].
        ways: at least one, at most MAX_WAYS.

    Returns:
        The chosen one.

    Mutates:
        found.
    """
    for number, way in enumerate(ways):
        at = PLAN_WAYS + number * WAY_WORDS
        found[at] = SOURCES.index(way.source)
        found[at + 1 : at + WAY_COST] = way[1:-1]
        found[at + WAY_COST] = min(way.cost_ns, NEVER_NS)
    found[PLAN_NUM_WAYS] = len(ways)
    chosen = min(ways, key=lambda way: way.cost_ns)
    found[PLAN_CHOSEN] = ways.index(chosen)
    return chosen


@compiled
def list_captures(
    arena: Arena,
    keys: Arena,
    num_tokens: int,
    shared: int,
    is_alone: bool,
    found: Arena,
) -> None:
    """Where a checkpoint is wanted, in tokens, ascending.

    At the end of the prompt's last block; for an aligned prompt also one block before, since a
    resend must leave a token to compute; and where this prompt parts from those before it. Steps of
    several ranks end together, so there it depends on what all have agreed on alone.

    Args:
        arena: the arena; read only.
        keys: int64[n, 2], keys of the prompt's whole blocks.
        num_tokens: length of the prompt.
        shared: blocks that it shares with those before it.
        is_alone: whether there is one rank: then none is wanted where there is one.
        found: int64[PLAN_WORDS], the plan; none is wanted at or before where it resumes.

    Mutates:
        found: its CAPTURES.
    """
    tokens = arena[META_BLOCK_TOKENS]
    last = num_tokens // tokens
    resume_at = found[PLAN_WAYS + found[PLAN_CHOSEN] * WAY_WORDS + WAY_RESUME]
    before, count = -1, 0
    if arena[META_NUM_GROUPS] != arena[META_NUM_HISTORY]:
        for place in range(3):
            wanted = last
            if place == 0:
                wanted = min(shared, (num_tokens - 1) // tokens)
            elif place == 1 and num_tokens % tokens == 0:
                wanted = last - 1
            if wanted == before or wanted * tokens <= resume_at:
                continue
            before = wanted
            key = keys[wanted - 1]
            if not is_alone or find_unit(arena, False, key[0], key[1]) == 0:
                found[PLAN_CAPTURES + count] = wanted * tokens
                count += 1
    found[PLAN_NUM_CAPTURES] = count


@helper
def _restart(arena: Arena, limit: int) -> int:
    """Where computing must begin again so that the state is exact at the end of the history."""
    tokens = arena[META_BLOCK_TOKENS]
    return (limit * tokens - arena[META_REPLAY_TOKENS]) // tokens * tokens


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
    add("stored replay", found.limit, int(_restart(arena, found.limit)), 0, 0)
    return ways
