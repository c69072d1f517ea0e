from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .logs import BLOCKS, LAYOUT, closed_log, open_cache, run_prompt

if TYPE_CHECKING:
    from .conftest import CommandLine

GROUPS = {group.name for group in LAYOUT.groups}


@pytest.fixture
def directory(tmp_path: Path, shared_root: Path) -> Path:
    return closed_log(tmp_path / "log", shared_root)


def test_json_is_one_object_a_line_in_order(kvstrata: CommandLine, directory: Path) -> None:
    events = kvstrata("events", directory, "--json").lines
    assert [event["seqno"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "MANAGER_OPENED"
    assert events[-1]["flags"] == ["LAST_OF_CALL"]
    sealed = [event for event in events if event["type"] == "PAGE_SEALED"]
    assert {event["group"] for event in sealed} <= GROUPS
    assert sum(event["group"] == "full" for event in sealed) == BLOCKS
    assert all(len(bytes.fromhex(event["payload"]["key"])) == 16 for event in sealed)


def test_events_are_chosen_by_seqno_type_and_number(kvstrata: CommandLine, directory: Path) -> None:
    chosen = kvstrata("events", directory, "--from", 3, "--to", 5, "--json").lines
    assert [event["seqno"] for event in chosen] == [3, 4, 5]
    chosen = kvstrata("events", directory, "--type", "page_sealed", "--limit", 2, "--json").lines
    assert [event["type"] for event in chosen] == ["PAGE_SEALED"] * 2
    assert kvstrata("events", directory, "--from", 10**6, "--json").out == ""


def test_people_get_a_line_an_event(kvstrata: CommandLine, directory: Path) -> None:
    outcome = kvstrata("events", directory, "--type", "PAGE_SEALED")
    assert outcome.code == 0
    assert all(
        "PAGE_SEALED" in line and "SEALED " in line and "key=" in line
        for line in outcome.out.splitlines()
    )


def test_a_living_log_can_be_read(kvstrata: CommandLine, tmp_path: Path, shared_root: Path) -> None:
    with open_cache(tmp_path / "alive", shared_root) as cache:
        run_prompt(cache).finish()
        cache.flush()
        events = kvstrata("events", tmp_path / "alive", "--json").lines
        assert len(events) == cache.stats().last_seqno


def test_bad_input_is_one_line(kvstrata: CommandLine, directory: Path, tmp_path: Path) -> None:
    assert "expected one of MANAGER" not in kvstrata.refuses("events", tmp_path)
    assert "no format.json" in kvstrata.refuses("events", tmp_path)
    assert "found 'NONSENSE'" in kvstrata.refuses("events", directory, "--type", "NONSENSE")
    assert kvstrata("events", directory, "--from", 0).code == 2


def test_a_log_of_another_version_says_what_to_do(kvstrata: CommandLine, directory: Path) -> None:
    file = directory / "format.json"
    file.write_text(file.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    for command in (("events",), ("fsck",), ("recover", "--dry-run"), ("recover",)):
        refusal = kvstrata.refuses(command[0], directory, *command[1:])
        assert "99" in refusal
        assert "set it aside" in refusal
