"""The planner with lower tiers against brute force: all that is here, stored, or neither."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstrata import Rates, Request
from kvstrata.requests import Load

from .shelf import BLOCK, TIERS, Placed, Point, Shelf, furthest, points
from .stamps import layout_of
from .test_planner import NS, SHAPES

masks = st.integers(0, 7)


@st.composite
def placements(draw: st.DrawFn) -> Placed:
    here = draw(st.integers(0, 8))
    end = draw(st.integers(0, 16))
    blocks = {index: draw(masks) for index in draw(st.sets(st.integers(0, 16), max_size=4))}
    common = draw(st.sampled_from([*TIERS, 7]))
    blocks |= dict.fromkeys(range(min(here, end), end), common)
    if draw(st.booleans()):  # a gap
        blocks[draw(st.integers(0, 16))] = 0
    checkpoints = {end: draw(masks) for end in draw(st.sets(st.integers(1, 16), max_size=4))}
    images = draw(st.sets(st.integers(1, 16), max_size=3))
    return Placed(here, frozenset(images), blocks, checkpoints)


@pytest.mark.parametrize("shape", SHAPES)
@settings(
    max_examples=250, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(
    placed=placements(),
    length=st.integers(1, 70),
    limit=st.none() | st.none() | st.integers(0, 70),
    readable=st.sampled_from([7, 7, 7, 0, *TIERS]),
    tokens_per_s=st.sampled_from([100, 10_000, 10**9]),
    bytes_per_s=st.sampled_from([10**6, 10**10]),
    load_bytes_per_s=st.sampled_from([10_000, 10**5, 10**6, 10**9]),
)
def test_a_plan_loads_what_it_needs_and_no_plan_of_the_rules_is_cheaper(
    shape: str,
    placed: Placed,
    length: int,
    limit: int | None,
    readable: int,
    tokens_per_s: int,
    bytes_per_s: int,
    load_bytes_per_s: int,
) -> None:
    rates = Rates(tokens_per_s, bytes_per_s, load_bytes_per_s)
    shelf = Shelf(shape, rates)
    request = Request(np.arange(70) % 7, "m")
    if not shelf.layout.state_groups:
        placed = Placed(placed.here, frozenset(), placed.blocks, {})
    shelf.put(request, placed)
    shelf.readable = readable
    request = Request(request.tokens[:length], "m", max_resume=limit)
    plan = shelf.cache.match(request)
    most = (length - 1) // BLOCK
    if limit is not None:
        most = min(most, limit // BLOCK)
    possible = points(shelf.layout, placed, length, most, readable, rates)
    best = min(furthest(possible), key=lambda point: point.cost_ns)
    cost = next(way.cost_ns for way in plan.candidates if way.source == plan.source)
    reused = plan.reused_tokens // BLOCK
    assert Point(plan.source, plan.resume_at, reused, plan.load, cost) == best
    assert {way.source for way in plan.candidates} == {one.source for one in furthest(possible)}
    assert plan.computed_tokens >= 1
    assert plan.reused_tokens <= (length if limit is None else limit)
    if not shelf.layout.state_groups:  # costs are linear: an end is best, but for rounding
        assert cost <= min(point.cost_ns for point in possible) + 2
    explained = shelf.cache.explain(request)
    told = explained.source, explained.resume_at, explained.reused_tokens
    assert told == (plan.source, plan.resume_at, plan.reused_tokens)
    if plan.load is not None:
        shelf.bring(plan)
        shelf.readable = 0
        after = shelf.cache.match(request)
        assert after.load is None
        load_ns = plan.load.num_bytes * NS // load_bytes_per_s
        assert after.cost_ns <= cost - load_ns
        assert after.reused_tokens >= plan.resume_at or after.cost_ns < cost - load_ns


FAST = Rates(10_000, 10**10, 10**9)


def planned(
    shelf: Shelf, placed: Placed, length: int, max_resume: int | None = None
) -> tuple[str, int, Load | None]:
    request = Request(np.arange(length) % 7, "m", max_resume=max_resume)
    shelf.put(Request(np.arange(70) % 7, "m"), placed)
    plan = shelf.cache.match(request)
    return plan.source, plan.resume_at, plan.load


def everything(shelf: Shelf, num_blocks: int = 16, tiers: int = 1) -> Placed:
    ends = range(1, num_blocks + 1) if shelf.layout.state_groups else ()
    blocks = dict.fromkeys(range(num_blocks), tiers)
    return Placed(0, frozenset(), blocks, dict.fromkeys(ends, tiers))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", [1, 4, 5, 8, 9, 41, 44, 45])
def test_one_token_is_left_to_compute(shape: str, length: int) -> None:
    shelf = Shelf(shape, FAST)
    source, resume_at, load = planned(shelf, everything(shelf), length)
    num_blocks = (length - 1) // BLOCK
    assert (source, resume_at) == (("stored" if num_blocks else "cold"), num_blocks * BLOCK)
    assert (load is None) == (num_blocks == 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("max_resume", [0, 3, 4, 7, 8, 40, 100])
def test_no_more_is_loaded_than_may_be_reused(shape: str, max_resume: int) -> None:
    shelf = Shelf(shape, FAST)
    placed = everything(shelf)
    placed.here = 1
    _, resume_at, load = planned(shelf, placed, 41, max_resume)
    expected = min(max_resume, 40) // BLOCK
    if expected > 1:
        assert (resume_at, load and load.num_blocks) == (expected * BLOCK, expected - 1)
    elif not shelf.layout.state_groups:
        assert (resume_at, load) == (expected * BLOCK, None)


def test_a_tier_that_cannot_be_read_counts_again_when_it_can() -> None:
    shelf = Shelf("window", FAST)
    placed = everything(shelf, 8, tiers=0b010)
    for readable, expected in ((0b101, "cold"), (0, "cold"), (0b010, "stored"), (7, "stored")):
        shelf.readable = readable
        assert planned(shelf, placed, 41)[0] == expected


def test_blocks_in_one_tier_and_the_checkpoint_in_another_are_loaded_together() -> None:
    shelf = Shelf("window", FAST)
    placed = Placed(2, frozenset(), {2: 1, 3: 2, 4: 4}, {5: 2})
    num_bytes = 3 * shelf.layout.block_bytes + shelf.layout.image_bytes
    assert planned(shelf, placed, 41) == ("stored", 20, Load(2, 3, 20, num_bytes))


def test_of_two_ways_that_cost_the_same_the_one_that_loads_nothing_is_taken() -> None:
    """To compute a block costs what it costs to load it."""
    block_bytes = layout_of(SHAPES["plain"], BLOCK, 2).block_bytes
    shelf = Shelf("plain", Rates(1000 * BLOCK, 10**10, 1000 * block_bytes))
    placed = Placed(2, frozenset(), dict.fromkeys(range(9), 1), {})
    assert planned(shelf, placed, 41) == ("history", 8, None)
    placed.here = 0
    other = Shelf("plain", Rates(1000 * BLOCK, 10**10, 1000 * block_bytes))
    assert planned(other, placed, 41)[:2] == ("stored", 36)  # before cold
