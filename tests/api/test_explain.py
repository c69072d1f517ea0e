from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from .logs import LAYOUT, PROMPT, closed_log, crashed_log, open_cache, run_prompt

if TYPE_CHECKING:
    from .conftest import CommandLine, Outcome

BRANCH = np.concatenate([np.arange(90), np.arange(500, 540)])
"""A prompt that shares 90 tokens with the sample's."""


def explain(
    kvstrata: CommandLine, directory: Path, root: Path, tokens: Path, *options: str
) -> Outcome:
    root_option = ("--shared-memory-root", root)
    return kvstrata("explain", directory, "--tokens", tokens, *root_option, *options)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps(PROMPT.tokens.tolist()), encoding="utf-8")
    return file


def test_it_says_what_a_manager_says(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, tokens: Path
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    found = explain(kvstrata, directory, shared_root, tokens, "--json")
    assert found.code == 0
    with open_cache(directory, shared_root) as cache:
        expected = json.loads(json.dumps(cache.explain(PROMPT).to_json()))
        assert run_prompt(cache).resumed_at == found.json["resume_at"] == 96
    assert {**found.json, "directory": ""} == {**expected, "directory": ""}
    assert next(way["source"] for way in found.json["ways"]) == "checkpoint"
    assert {g["group"]: g["tokens"] for g in found.json["groups"]} == {"full": 96, "swa": 96}


def test_people_get_tables(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, tokens: Path
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    found = explain(kvstrata, directory, shared_root, tokens)
    assert found.code == 0
    for word in ("Ways to resume", "checkpoint", "chosen", "cold", "dearer", "resumes at 96"):
        assert word in found.out
    assert found.err == ""


def test_a_prompt_that_parts_is_limited_by_its_window(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    file = tmp_path / "branch.npy"
    np.save(file, BRANCH.astype(np.int32))
    model = ("--model", "sample")
    found = explain(kvstrata, directory, shared_root, file, "--json", *model).json
    whole = 90 // LAYOUT.block_tokens * LAYOUT.block_tokens
    reach = {g["group"]: g["tokens"] for g in found["groups"]}
    assert reach["full"] == whole
    assert (found["source"], found["reused_tokens"]) == ("replay", whole)
    other = explain(kvstrata, directory, shared_root, file, "--json", "--model", "another").json
    assert (other["source"], other["resume_at"]) == ("cold", 0)


def test_beside_a_dead_engine_nothing_is_changed(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, tokens: Path
) -> None:
    directory = crashed_log(tmp_path / "log", shared_root)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    found = explain(kvstrata, directory, shared_root, tokens, "--json")
    assert found.json["resume_at"] == 96
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected token ids, found none"),
        ("one two", "expected token ids, found invalid literal"),
        ('["a"]', "expected token ids"),
        ("99999999999", "expected ids from 0 to 2**31 - 1, found 99999999999"),
        ("-5 3", "expected ids from 0 to 2**31 - 1, found -5"),
        ("[1.5, 2]", "expected token ids, found 1.5"),
        ("[true]", "expected token ids, found True"),
        ("[[1], [2]]", "expected token ids, found [1]"),
    ],
)
def test_what_is_no_prompt(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, text: str, complaint: str
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    file = tmp_path / "bad.txt"
    file.write_text(text, encoding="utf-8")
    found = explain(kvstrata, directory, shared_root, file)
    assert found.code == 2
    assert complaint in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("name", ["bytes.txt", "bytes.npy"])
def test_a_file_of_other_bytes(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, name: str
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    file = tmp_path / name
    file.write_bytes(bytes(range(128, 256)))
    found = explain(kvstrata, directory, shared_root, file)
    assert found.code == 2
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("text", ["1 2 3", "1,2,3", "[1, 2, 3]", "1\n2\n3\n"])
def test_ways_to_write_tokens(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, text: str
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    file = tmp_path / "tokens.txt"
    file.write_text(text, encoding="utf-8")
    found: dict[str, Any] = explain(kvstrata, directory, shared_root, file, "--json").json
    assert found["prompt_tokens"] == 3


def test_no_such_files(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, tokens: Path
) -> None:
    assert explain(kvstrata, tmp_path / "nowhere", shared_root, tokens).code == 2
    directory = closed_log(tmp_path / "log", shared_root)
    assert explain(kvstrata, directory, shared_root, tmp_path / "nothing.json").code == 2
