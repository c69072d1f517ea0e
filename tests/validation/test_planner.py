"""The planner against brute force: all resume points there are, from plain sets of what is here."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstrata import CacheManager, LogConfig, Rates, Request
from kvstrata.config import CacheConfig
from kvstrata.core.layout import CacheLayout

from .stamps import layout_of

NS = 10**9


@dataclass(frozen=True)
class Point:
    """A place to resume: its tokens, the blocks it needs, and what it costs."""

    source: str
    resume_at: int
    reused_tokens: int
    cost_ns: int


@dataclass
class Here:
    """What is indexed, as prefixes of tokens."""

    blocks: set[tuple[int, ...]]
    checkpoints: set[tuple[int, ...]]


def points(
    layout: CacheLayout, here: Here, prompt: tuple[int, ...], limit: int | None, rates: Rates
) -> list[Point]:
    """Every legal resume point, whether or not a planner would think of it."""
    size, last = layout.block_tokens, len(prompt) - 1
    reach = 0
    while (reach + 1) * size <= len(prompt) and prompt[: (reach + 1) * size] in here.blocks:
        reach += 1
    most = min(reach * size, last // size * size)
    if limit is not None:
        most = min(most, limit // size * size)

    def point(source: str, at: int, reused: int, load_bytes: int) -> Point:
        cost = (len(prompt) - at) * NS // rates.tokens_per_s + load_bytes * NS // rates.bytes_per_s
        return Point(source, at, reused, cost)

    found = [point("cold", 0, 0, 0)]
    for end in range(size, most + 1, size):
        if not layout.state_groups:
            found.append(point("history", end, end, 0))
            continue
        if prompt[:end] in here.checkpoints:
            found.append(point("checkpoint", end, end, layout.image_bytes))
        # from a block's start on a window is computed again, into nothing but the state; exact at
        # the end of the history once it has passed through every layer
        for start in range(size, end, size):
            if end - start >= layout.replay_tokens:
                found.append(point("replay", start, end, 0))
    return found


SHAPES = {
    "plain": ("c1",),
    "window": ("c1", "swa"),
    "tails": ("c2", "swa", "c2.tail"),
}


def open_cache(shape: str, rates: Rates) -> CacheManager:
    layout = layout_of(SHAPES[shape], 4, 2)
    slots = {group.name: 60 for group in layout.groups}
    config = CacheConfig(
        slots=slots,
        max_sequences=2,
        max_tokens_per_sequence=80,
        rates=rates,
        admission=None,
        log=LogConfig(ring_events=1024),
    )
    return CacheManager.open(layout, config)


def compute(cache: CacheManager, here: Here, prompt: tuple[int, ...], keeps: bool) -> None:
    """Compute a prompt, in steps that end where checkpoints are wanted, or all at once."""
    sequence = cache.begin(cache.match(Request(np.array(prompt), "m")))
    size = cache.layout.block_tokens
    captures = sequence.captures
    for end in [*(captures if keeps else ()), len(prompt)]:
        start = sequence.position
        if end > start:
            cache.reserve([sequence.id], [end - start]).commit()
            # the ring's slack keeps the rows of a little before the end of a step
            reach = range(max(start + 1, end - cache.layout.rollback_tokens), end + 1)
            here.checkpoints |= {prompt[:taken] for taken in captures if taken in reach}
    here.blocks |= {prompt[:end] for end in range(size, len(prompt) + 1, size)}
    sequence.cancel()


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=40).map(tuple)


@pytest.mark.parametrize("shape", SHAPES)
@settings(
    max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(
    history=st.lists(st.tuples(prompts, st.integers(0, 40), st.booleans()), max_size=4),
    prompt=prompts,
    keep=st.integers(0, 40),
    which=st.integers(0, 3),
    limit=st.none() | st.integers(0, 40) | st.just(1 << 70),
    tokens_per_s=st.sampled_from([1, 100, 10_000, 10**9]),
    bytes_per_s=st.sampled_from([1_000, 10**6, 10**10]),
)
def test_no_resume_point_is_cheaper(
    shape: str,
    history: list[tuple[tuple[int, ...], int, bool]],
    prompt: tuple[int, ...],
    keep: int,
    which: int,
    limit: int | None,
    tokens_per_s: int,
    bytes_per_s: int,
) -> None:
    rates = Rates(tokens_per_s, bytes_per_s)
    cache, here = open_cache(shape, rates), Here(set(), set())
    text: tuple[int, ...] = ()
    for tail, kept, keeps in history:
        text = (text[:kept] + tail)[:60]
        compute(cache, here, text, keeps)
    wanted = (text[:keep] + prompt)[:70] if which else text or prompt
    plan = cache.match(Request(np.array(wanted), "m", max_resume=limit))
    possible = points(cache.layout, here, wanted, limit, rates)
    cost = next(way.cost_ns for way in plan.candidates if way.source == plan.source)
    assert cost == min(point.cost_ns for point in possible)
    chosen = Point(plan.source, plan.resume_at, plan.reused_tokens, cost)
    assert chosen in possible
    (cold,) = [point for point in possible if point.source == "cold"]
    assert cost <= cold.cost_ns
    assert plan.resume_at < plan.prompt_tokens
    assert plan.computed_tokens >= 1
    if limit is not None:
        assert plan.reused_tokens <= limit
    # at equal cost the checkpoint comes first, and cold last
    equal = {point.source for point in possible if point.cost_ns == cost}
    for source in ("history", "checkpoint", "replay", "cold"):
        if source in equal:
            assert plan.source == source
            break
    explained = cache.explain(plan.request)
    told = explained.source, explained.resume_at, explained.reused_tokens
    assert told == (plan.source, plan.resume_at, plan.reused_tokens)
