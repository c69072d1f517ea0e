"""``kvstrata query``: lists, answers for people and machines, refusals."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kvstrata.eventstore.history.analytics import queries

from ..eventstore.support import edit, segments_of
from .conftest import CommandLine
from .logs import KEPT_PAGES, closed_log, crashed_log


@pytest.fixture
def log(tmp_path: Path, shared_root: Path) -> Path:
    return closed_log(tmp_path / "log", shared_root)


def test_without_a_name_it_lists_them(kvstrata: CommandLine, log: Path) -> None:
    outcome = kvstrata("query", log)
    assert outcome.code == 0
    for query in queries():
        assert query.name in outcome.out
    listed = kvstrata("query", log, "--json").json
    assert [query["name"] for query in listed] == [query.name for query in queries()]
    (pages,) = [query for query in listed if query["name"] == "pages"]
    assert [one["name"] for one in pages["parameters"]] == ["group", "state"]
    assert pages["columns"][0]["name"] == "group"


def test_sealed_pages_as_a_table_and_as_json(
    kvstrata: CommandLine, log: Path, shared_root: Path
) -> None:
    memory = ("--shared-memory-root", shared_root)
    answer = kvstrata("query", log, "pages", "--param", "state=SEALED", "--json", *memory).json
    assert (answer["query"], answer["is_cut"]) == ("pages", False)
    assert len(answer["rows"]) == KEPT_PAGES
    assert {row["state"] for row in answer["rows"]} == {"SEALED"}
    shown = kvstrata("query", log, "pages", "--param", "state=SEALED", *memory)
    assert shown.code == 0
    assert shown.out.count("SEALED") == KEPT_PAGES


def test_an_answer_that_is_cut_or_empty_says_so(kvstrata: CommandLine, log: Path) -> None:
    cut = kvstrata("query", log, "pages", "--limit", 2)
    assert (cut.code, cut.err) == (
        0,
        "kvstrata: only the first 2 rows; a higher --limit gives more\n",
    )
    assert kvstrata("query", log, "pages", "--limit", 2, "--json").json["is_cut"]
    empty = kvstrata("query", log, "failures")
    assert (empty.code, empty.out.split()) == (
        0,
        ["Failed", "validations", "by", "layer,", "reason", "and", "kind", "nothing"],
    )


def test_a_crash_and_its_recovery_are_seen(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    log = crashed_log(tmp_path / "log", shared_root)
    before = kvstrata("query", log, "pages", "--param", "state=open", "--json").json["rows"]
    closed_log(log, shared_root)
    (recovery,) = kvstrata("query", log, "recoveries", "--json").json["rows"]
    assert (recovery["bytes_trusted"], recovery["kept"]) == (True, KEPT_PAGES)
    assert recovery["lost"] >= len(before)
    assert kvstrata("query", log, "pages", "--param", "state=open", "--json").json["rows"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "expected one of activity"),
        (("hits", "--param", "bucket_s"), "expected NAME=VALUE, found 'bucket_s'"),
        (("hits", "--param", "=3"), "expected NAME=VALUE"),
        (("hits", "--param", "bucket_s=x"), "bucket_s: expected a whole number, found 'x'"),
        (("hits", "--param", "bucket_s=2", "--param", "bucket_s=2"), "bucket_s twice"),
        (("hits", "--param", "x=2"), "expected parameters among bucket_s, last_s; found 'x'"),
    ],
)
def test_what_does_not_fit_is_refused(
    kvstrata: CommandLine, log: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert words in kvstrata.refuses("query", log, *arguments)


def test_no_log_a_damaged_one_and_no_extra(
    kvstrata: CommandLine, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "expected a kvstrata log directory" in kvstrata.refuses("query", tmp_path, "hits")
    edit(segments_of(log)[0], 5000, b"\xff\xff")
    assert kvstrata("query", log, "hits").code == 1
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "expected the extra 'history'" in kvstrata.refuses("query", log, "hits")
