"""docs/traces.md and the help of kvstrata replay are true: formats, options, keys and commands."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from kvstrata.api.cli import app
from kvstrata.api.commands.replay import EPILOG
from kvstrata.api.traces import Trace, read_trace

from .test_replay import KEYS

if TYPE_CHECKING:
    from .conftest import CommandLine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "traces.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def first_cells(heading: str) -> list[str]:
    """First cells of the table under a heading."""
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#+ |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `([^` ]+)", section, re.MULTILINE)


def example(folder: Path, number: int) -> Trace:
    path = folder / f"{number}.jsonl"
    path.write_text(blocks("json")[number], encoding="utf-8")
    return read_trace(path)


def options_of_command() -> set[str]:
    command: Any = typer.main.get_command(app).commands["replay"]  # type: ignore[attr-defined]
    return {name for option in command.params for name in option.opts if name.startswith("--")}


def test_the_page_names_exactly_the_options() -> None:
    assert set(first_cells("Traces")) == options_of_command() - {"--help"}


def test_help_lists_all_options(kvstrata: CommandLine) -> None:
    found = kvstrata("replay", "--help")
    assert found.code == 0
    assert {"--layout", "--dir", "--json"} < options_of_command()
    for option in options_of_command():
        assert re.search(rf"{option}\b", found.out), option


def test_the_page_names_exactly_the_keys() -> None:
    assert first_cells("What it says") == KEYS


def test_the_example_of_token_ids(tmp_path: Path) -> None:
    trace = example(tmp_path, 0)
    assert trace.kind == "tokens"
    (first, second), (third,) = trace.sessions
    assert first.output().tolist() == [21, 22]
    assert second.prompt()[:6].tolist() == [*first.prompt(), *first.output()]
    assert (second.output_tokens, third.output_tokens) == (40, 1)
    assert first_cells(r"Token ids \(`tokens`\)") == ["tokens", "output", "session"]


def test_the_example_of_block_ids(tmp_path: Path) -> None:
    trace = example(tmp_path, 1)
    ((request,),) = trace.sessions
    assert trace.kind == "mooncake"
    assert (request.prompt_tokens, request.output_tokens) == (6758, 500)


def test_the_example_of_a_conversation(tmp_path: Path) -> None:
    trace = example(tmp_path, 2)
    assert trace.kind == "agentic"
    ids = [one.ids.tolist() for one in trace.requests()]  # type: ignore[attr-defined]
    assert ids == [[1, 2, 3], [1, 2, 4, 5, 9]]
    assert str(ids[0])[1:-1] in TEXT
    assert str(ids[1])[1:-1] in TEXT


COMMANDS = [
    *[line for block in blocks("sh") for line in block.splitlines()],
    *re.findall(r"^(kvstrata replay [^(\n]*)", EPILOG, re.MULTILINE),
]


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 5
    assert len(blocks("json")) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(
    kvstrata: CommandLine,
    tmp_path: Path,
    shared_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    tokens, mooncake, _ = blocks("json")
    (tmp_path / "requests.jsonl").write_text(tokens, encoding="utf-8")
    packed = gzip.compress(mooncake.replace("500", "5").encode())
    (tmp_path / "mooncake_conversation.jsonl.gz").write_bytes(packed)
    monkeypatch.chdir(tmp_path)
    name, *arguments = shlex.split(command)
    assert name == "kvstrata"
    found = kvstrata(*arguments, "--shared-memory-root", shared_root)
    assert (found.code, found.err) == (0, "")
    requests = 1 if "mooncake" in command else 3
    assert re.search(rf'requests"?:? +{requests}\b', found.out)
