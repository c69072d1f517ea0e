"""A manager of metadata alone, a prompt's pieces where a test wants them, and what may be."""

from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from kvstrata import CacheManager, LogConfig, Rates, Request
from kvstrata.asking import ask_of
from kvstrata.config import CacheConfig
from kvstrata.core.arena import new_arena
from kvstrata.core.ask import ASK_WORDS
from kvstrata.core.events import NO_CHECKSUM, EventType
from kvstrata.core.finish import end_sequence
from kvstrata.core.layout import CacheLayout
from kvstrata.core.loading import (
    LOAD_BLOCKS,
    LOAD_GOOD_BLOCKS,
    LOAD_GOOD_IMAGE,
    LOAD_POSITION,
    LOAD_WORDS,
    begin_load,
    end_load,
    take_load,
)
from kvstrata.core.spilling import note_objects
from kvstrata.core.steps import WORK_KEY_0, WORK_KEY_1, WORK_SUMS
from kvstrata.core.words import HOLDER_ID, Arena
from kvstrata.requests import Load, Plan

from .stamps import layout_of
from .test_planner import NS, SHAPES

BLOCK = 4
TIERS = (0b001, 0b010, 0b100)


@dataclass(frozen=True)
class Point:
    """A place to resume: what it needs loaded, and what it costs."""

    source: str
    resume_at: int
    num_blocks: int
    load: Load | None
    cost_ns: int


@dataclass
class Placed:
    """Where a prompt's blocks, and the checkpoints behind so many of them, are."""

    here: int = 0
    images: frozenset[int] = frozenset()
    blocks: dict[int, int] = field(default_factory=dict)
    checkpoints: dict[int, int] = field(default_factory=dict)


def points(
    layout: CacheLayout, placed: Placed, length: int, most: int, readable: int, rates: Rates
) -> list[Point]:
    """Every legal place to resume, whether or not a planner would think of it."""
    here = min(placed.here, most)

    def point(source: str, resume_at: int, end: int, at: int = 0, copied: int = 0) -> Point:
        num_bytes = max(end - here, 0) * layout.block_bytes + (layout.image_bytes if at else 0)
        cost = (length - resume_at) * NS // rates.tokens_per_s
        cost += copied * NS // rates.bytes_per_s + num_bytes * NS // rates.load_bytes_per_s
        load = Load(here, max(end - here, 0), at, num_bytes) if num_bytes else None
        return Point(source, resume_at, end, load, cost)

    found = [point("cold", 0, 0)]
    for end in range(1, most + 1):
        if end > here and not placed.blocks.get(end - 1, 0) & readable:
            break
        is_here = end <= here
        if not layout.state_groups:
            found.append(point("history" if is_here else "stored", end * BLOCK, end))
            continue
        if end in placed.images:
            source = "checkpoint" if is_here else "stored"
            found.append(point(source, end * BLOCK, end, 0, layout.image_bytes))
        elif placed.checkpoints.get(end, 0) & readable:
            found.append(point("stored", end * BLOCK, end, end * BLOCK, layout.image_bytes))
        for start in range(BLOCK, end * BLOCK, BLOCK):
            if end * BLOCK - start >= layout.replay_tokens:
                found.append(point("replay" if is_here else "stored replay", start, end))
    return found


def furthest(possible: list[Point]) -> list[Point]:
    """Of each source the furthest one alone, in order of preference at equal cost.

    A checkpoint that is stored counts only where it is further than all that are here.
    """
    order = ("history", "checkpoint", "replay", "stored", "stored replay", "cold")
    best = {}
    for point in possible:
        known = best.get(point.source)
        if known is None or (point.num_blocks, point.resume_at) > (
            known.num_blocks,
            known.resume_at,
        ):
            best[point.source] = point
    checkpoint, stored = best.get("checkpoint"), best.get("stored")
    if checkpoint and stored and stored.num_blocks <= checkpoint.num_blocks:
        del best["stored"]
    return [best[source] for source in order if source in best]


class Shelf:
    """A manager of metadata alone, and a prompt's pieces put where a test wants them.

    Args:
        shape: a name of :data:`.test_planner.SHAPES`.
        rates: to plan by.
    """

    def __init__(self, shape: str, rates: Rates) -> None:
        layout = layout_of(SHAPES[shape], BLOCK, 2)
        config = CacheConfig(
            slots={group.name: 60 for group in layout.groups},
            max_sequences=3,
            max_tokens_per_sequence=80,
            rates=rates,
            admission=None,
            log=LogConfig(ring_events=2048),
        )
        ring = CacheManager.open(layout, config)._call.ring
        arena = new_arena(layout, replace(config.arena_params(layout), stored_keys=100))
        ring[:] = np.where(np.arange(len(ring)) < 512, ring, 0)
        self.cache = CacheManager(layout, config, arena, ring, None)
        self.cache._come_up()
        self.readable = 0b111
        self.cache._planner.tiers = lambda: self.readable
        self.layout = layout

    def put(self, request: Request, placed: Placed) -> None:
        """Blocks from the root on and single checkpoints are here; others are told of."""
        keys = request.keys(BLOCK)
        none = np.zeros((0, 4), dtype=np.int64)
        ask = np.zeros(ASK_WORDS, dtype=np.int64)
        for end in sorted(placed.images):
            self.load((none, ask), keys[:0], end * BLOCK, keys[end - 1])
        if placed.here:
            self.load((none, ask), keys[: placed.here], 0, keys[0])
        rows = [
            (*keys[index].tolist(), 0, (index + 1) * BLOCK | mask << 32 | image << 48, 0, 0)
            for image, index, mask in chain(
                ((0, index, mask) for index, mask in placed.blocks.items()),
                ((1, end - 1, mask) for end, mask in placed.checkpoints.items()),
            )
            if mask
        ]
        call = self.cache._call
        for at in range(0, len(rows), 40):
            part = np.array(rows[at : at + 40], dtype=np.int64)
            call.run(note_objects, call.arena, call.ring, int(EventType.OBJECT_STORED), part)

    def load(self, ask: tuple[Arena, Arena], keys: Arena, at: int, checkpoint_key: Arena) -> None:
        """A load of which all comes at once, released."""
        call, words = self.cache._call, np.zeros(LOAD_WORDS, dtype=np.int64)
        words[[LOAD_BLOCKS, LOAD_POSITION]] = len(keys), at
        row = call.run(begin_load, call.arena, call.ring, *ask, words)
        assert row > 0
        assert call.run(take_load, call.arena, call.ring, row, len(ask[0]), words) == 0
        words[[LOAD_GOOD_BLOCKS, LOAD_GOOD_IMAGE]] = len(keys), 1
        history = len(self.layout.history_groups)
        work = np.zeros((len(keys), WORK_SUMS + history), dtype=np.int64)
        work[:, WORK_KEY_0 : WORK_KEY_1 + 1] = keys
        sums = np.zeros(8, dtype=np.int64)
        sums[:2] = checkpoint_key
        arguments = (row, work, sums, words, NO_CHECKSUM)
        assert call.run(end_load, call.arena, call.ring, *arguments) == 0
        identity = int(self.cache.tables.holders[row, HOLDER_ID])
        how = np.array([1, 0, 0], dtype=np.int64)
        steps = self.cache._steps
        assert call.run(end_sequence, call.arena, steps, call.ring, identity, sums, how) == 0
        self.cache.check_integrity()

    def bring(self, plan: Plan) -> None:
        """Load what a plan wants, as it says it."""
        wanted = plan.load
        assert wanted is not None
        keys = plan.keys[wanted.first : wanted.first + wanted.num_blocks]
        ask = ask_of(self.layout, plan, load=wanted)
        at = wanted.checkpoint_at
        self.load(ask, keys, at, plan.keys[max(at // BLOCK - 1, 0)])
