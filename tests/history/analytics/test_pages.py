"""What SQL makes of the segments and what apply makes of the events are the same pages."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstrata.core.events import EVENT_DTYPE, EventType, Reason
from kvstrata.core.words import META_LAST_SEQNO, Arena
from kvstrata.eventstore.history.analytics import run_query
from kvstrata.eventstore.log.directory import LogPaths
from tests.core.actions import walk
from tests.core.cases import CASES, Case
from tests.core.live import Live
from tests.core.pair import Pair
from tests.eventstore.support import shared_corner

from .support import pages_by_apply, write_log

NUM_ACTIONS = 120
NUM_HISTORIES = int(os.environ.get("KVSTRATA_ANALYTICS_HISTORIES", "8"))


def history(name: str, seed: int, num_actions: int = NUM_ACTIONS) -> Pair:
    """A random history of the real manager, checked against the reference at every step."""
    pair = Pair(CASES[name], Live(CASES[name]))
    walk(pair, seed, num_actions)
    return pair


def check_pages(directory: Path, shared: Path, case: Case, arena: Arena) -> None:
    expected = pages_by_apply(arena, case.layout, case.params)
    answer = run_query(directory, "pages", shared_memory_root=shared)
    found = [
        (row["group"], row["page"], row["state"], row["generation"], row["seqno"])
        for row in answer.records()
    ]
    assert found == expected
    counted = Counter((group, state) for group, _, state, _, _ in expected)
    over_time = run_query(directory, "page_states", {"bucket_s": 1}, shared_memory_root=shared)
    last = [row for row in over_time.records() if row["time"] == over_time.rows[-1][0]]
    assert {(row["group"], row["state"]): row["pages"] for row in last} == counted
    per_moment: Counter[tuple[str, str]] = Counter()
    for row in over_time.records():
        per_moment[row["time"], row["group"]] += row["pages"]
    slots = case.params.slots
    assert all(pages == slots[group] - 1 for (_, group), pages in per_moment.items())


def check_evictions(directory: Path, shared: Path, events: Any) -> None:
    """Pages evicted and the oldest one's age, against a walk over the events."""
    sealed: dict[tuple[int, int], int] = {}
    ages: list[float] = []
    for event in events:
        place = int(event["group"]), int(event["page"])
        if event["type"] == EventType.PAGE_SEALED:
            sealed[place] = int(event["time_ns"])
        elif event["type"] == EventType.PAGE_FREED and event["reason"] == Reason.EVICTED:
            ages.append((int(event["time_ns"]) - sealed[place]) / 1e9)
    answer = run_query(directory, "evictions", {"bucket_s": 10_000_000}, shared_memory_root=shared)
    assert sum(row["pages"] for row in answer.records()) == len(ages)
    found = max((row["age_max"] for row in answer.records()), default=0.0)
    # Each segment has an anchor of its own, so wall time between two of them is as exact as those.
    assert found == pytest.approx(max(ages, default=0.0), abs=1e-3)


@given(name=st.sampled_from(sorted(CASES)), seed=st.integers(0, 2**32))
@settings(max_examples=NUM_HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
def test_final_pages_by_sql_are_those_of_apply(name: str, seed: int) -> None:
    pair = history(name, seed)
    case = CASES[name]
    with shared_corner() as corner:
        shared, directory = corner / "shared", corner / "log"
        shared.mkdir()
        arena = write_log(directory, shared, case.layout, case.params, pair.log)
        assert np.array_equal(arena, pair.subject.arena)
        check_pages(directory, shared, case, arena)
        check_evictions(directory, shared, np.concatenate(pair.log).view(EVENT_DTYPE)[:, 0])


@pytest.mark.parametrize("name", ["all", "loads"])
def test_a_log_whose_beginning_is_gone_gives_the_same_pages(name: str, tmp_path: Path) -> None:
    """Retention has deleted segments: what was before is known from a snapshot."""
    pair = history(name, 7, 400)
    case = CASES[name]
    with shared_corner() as shared:
        arena = write_log(
            tmp_path / "log",
            shared,
            case.layout,
            case.params,
            pair.log,
            segments_per_snapshot=1,
            snapshots_kept=1,
            retention_bytes=0,
        )
        first = LogPaths(tmp_path / "log").segment_files()[0]
        assert int(first.stem) > 1, "retention has deleted nothing"
        check_pages(tmp_path / "log", shared, case, arena)
    assert int(arena[META_LAST_SEQNO]) == pair.num_events


def test_pages_are_chosen_by_group_and_state(tmp_path: Path) -> None:
    pair = history("window", 3)
    case = CASES["window"]
    with shared_corner() as shared:
        arena = write_log(tmp_path / "log", shared, case.layout, case.params, pair.log)
        answer = run_query(
            tmp_path / "log",
            "pages",
            {"group": "swa", "state": "sealed"},
            shared_memory_root=shared,
        )
    expected = [
        page
        for group, page, state, _, _ in pages_by_apply(arena, case.layout, case.params)
        if (group, state) == ("swa", "SEALED")
    ]
    assert expected
    assert [row["page"] for row in answer.records()] == expected
