"""Numeric drift: pages whose bytes are those sealed, and wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DeepseekV4ForCausalLM

from kvstrata import CacheManager, Comparison, ConfigError
from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import PAGE_CHECKSUM, PAGE_GENERATION, POOL_FIRST
from kvstrata.engines.transformers.comparing import PageComparer, relative_tolerance
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.eventstore.history.follower import Follower

from .helpers import open_engine, request, tiny_model, tokens

PROMPT = tokens(200)
LAST = len(PROMPT) // 16 - 1


def served(model: DeepseekV4ForCausalLM, directory: Path | None = None) -> Engine:
    engine = open_engine(model, directory=directory)
    engine.generate(request(PROMPT), max_new_tokens=4, chunk=13)
    return engine


def scale(manager: CacheManager, group: str, slot: int, factor: float) -> None:
    """Scale what a page holds, and make its checksum again."""
    assert manager.pools is not None
    for component in manager.layout.group(group).components:
        manager.pools.view(group, component.name)[slot] *= factor
    (found,) = manager.pools.checksums(group, np.array([slot])).tolist()
    page_of(manager, group, slot)[PAGE_CHECKSUM] = found


def page_of(manager: CacheManager, group: str, slot: int) -> np.ndarray:
    number = manager.layout.group_id(group)
    row: np.ndarray = manager.tables.pages[int(manager.tables.pools[number, POOL_FIRST]) + slot]
    return row


def test_what_was_computed_right_is_no_drift(model: DeepseekV4ForCausalLM) -> None:
    engine = served(model)
    found = engine.comparer.compare(request(PROMPT), LAST)
    groups = {group.name: group for group in engine.manager.layout.groups}
    expected = {
        (name, layer)
        for name, group in groups.items()
        for layer in group.layers
        if name != "c16.tail"  # nothing is open at its end, and its windows do not overlap
    }
    assert {(one.group, one.layer) for one in found} == expected
    for one in found:
        assert not one.drifted, one
        assert one.max_abs < one.tolerance / 16
        assert one.cosine > 0.9999
        assert one.entries > 0
    assert engine.comparer.compare(request(PROMPT), 2)
    before = {one.group for one in engine.comparer.compare(request(PROMPT), 2)}
    assert before == {"c4", "c16", "c4.index"}


@pytest.mark.parametrize("group", ["c4", "c16", "c4.index", "swa", "c4.tail"])
def test_a_scaled_page_of_a_right_checksum_is_found(
    model: DeepseekV4ForCausalLM, group: str
) -> None:
    engine = served(model)
    manager = engine.manager
    slot = manager.sealed_pages(request(PROMPT), LAST)[group]
    generation = int(page_of(manager, group, slot)[PAGE_GENERATION])
    scale(manager, group, slot, 1.5)
    assert manager.scrub(1 << 30).bad == 0
    assert manager.match(request(PROMPT)).resume_at == 192
    found = engine.comparer.compare(request(PROMPT), LAST)
    bad = [one for one in found if one.drifted]
    assert {one.group for one in bad} == {group}
    assert {one.layer for one in bad} == set(manager.layout.group(group).layers)
    for one in bad:
        assert one.slot == slot
        assert one.cosine > 0.99  # it points the same way: only its size is wrong
    counts = manager.arena[64:128]
    assert counts[EventType.NUMERIC_DRIFT] == len(found)
    assert manager.match(request(PROMPT)).resume_at < 192
    row = page_of(manager, group, slot)
    assert row[PAGE_GENERATION] != generation or row[0] != 4
    again = engine.generate(request(PROMPT), max_new_tokens=4, chunk=13)
    assert again.resumed_at < 192
    assert not any(one.drifted for one in engine.comparer.compare(request(PROMPT), LAST))


def test_values_that_are_no_numbers_drift(model: DeepseekV4ForCausalLM) -> None:
    engine = served(model)
    slot = engine.manager.sealed_pages(request(PROMPT), 1)["c4"]
    scale(engine.manager, "c4", slot, float("nan"))
    assert any(one.drifted for one in engine.comparer.compare(request(PROMPT), 1))


def test_requests_are_sampled_and_a_follower_is_told(tmp_path: Path) -> None:
    model = tiny_model(torch.float32)
    layout = layout_for_model(model)
    engine = open_engine(model, directory=tmp_path)
    every = Engine(model, engine.manager, compare_every=2)
    for number in range(5):
        every.generate(request(tokens(60, seed=number)), max_new_tokens=2)
    manager = engine.manager
    slot = manager.sealed_pages(request(tokens(60, seed=4)), 0)["c16"]
    scale(manager, "c16", slot, 3.0)
    every.comparer.compare(request(tokens(60, seed=4)), 0)
    manager.flush()
    with Follower(tmp_path / "log", shared_memory_root=tmp_path) as follower:
        while follower.step():
            pass
        tally = follower.tally
        assert tally.totals["numeric_samples"] > 10
        assert tally.totals["numeric_drifts"] == len(layout.group("c16").layers)
        number = layout.group_id("c16")
        for layer in layout.group("c16").layers:
            sample = tally.numeric[number, layer]
            assert sample.drifted == 1
            assert sample.max_abs > sample.tolerance > 0
        drifted = int(Reason.DRIFTED)
        assert tally.counts[EventType.NUMERIC_DRIFT, number, drifted] == len(
            layout.group("c16").layers
        )
        assert tally.counts[EventType.PAGE_QUARANTINED, number, drifted] == 1
        assert np.array_equal(follower.arena, manager.arena)
    manager.close()


def test_bad_settings(model: DeepseekV4ForCausalLM) -> None:
    engine = open_engine(model)
    assert engine.comparer.compare(request(PROMPT)) == []
    assert engine.comparer.compare(request(PROMPT), 3) == []
    with pytest.raises(ConfigError, match="tolerance"):
        PageComparer(model, engine._rows, -1.0)
    with pytest.raises(ConfigError, match="compare_every"):
        Engine(model, engine.manager, compare_every=-1)
    with pytest.raises(ConfigError, match="at least 0"):
        Comparison("c4", 1, -1, 4, 0.0, 1.0, 0.0)
    with pytest.raises(ConfigError, match="slot"):
        engine.manager.report_comparison(Comparison("c4", 10_000, 1, 4, 0.0, 1.0, 0.0))
    assert relative_tolerance(torch.float32) < relative_tolerance(torch.bfloat16) < 0.5
