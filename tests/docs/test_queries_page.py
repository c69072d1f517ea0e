"""docs/queries.md is true: it has every query, its commands run, its Python prints what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvstrata.api.cli import app
from kvstrata.eventstore.history.analytics import queries
from tests.api.logs import open_cache, run_prompt
from tools.queries_page import EXAMPLES, PAGE, render

TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the log that the page asks."""
    folder = tmp_path_factory.mktemp("queries")
    (folder / "shared").mkdir()
    with open_cache(folder / "cache-log", folder / "shared") as cache:
        for _ in range(2):
            run_prompt(cache).finish()
    return folder


def test_the_page_is_up_to_date() -> None:
    assert render(TEXT) == TEXT, "run python -m tools.queries_page"


def test_every_query_has_a_section_with_its_parameters_and_columns() -> None:
    assert re.findall(r"^### (\w+)$", TEXT, re.MULTILINE) == [query.name for query in queries()]
    assert sorted(EXAMPLES) == [query.name for query in queries()]
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", TEXT, re.MULTILINE | re.DOTALL))
    for query in queries():
        for thing in (*query.parameters, *query.columns):
            assert f"| `{thing.name}` |" in sections[query.name]
            assert thing.meaning in sections[query.name]


def test_every_command_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    commands = [line for line in blocks("sh").splitlines() if line.strip()]
    assert len(commands) >= len(queries()) + 3
    for command in commands:
        program, *arguments = command.split()
        assert program == "kvstrata"
        found = CliRunner().invoke(app, arguments)
        assert found.exit_code == 0, f"{command}: {found.output}"


def test_the_python_prints_what_it_says(workplace: Path) -> None:
    (workplace / "example.py").write_text(blocks("python"), encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "example.py"],
        cwd=workplace,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert found.returncode == 0, found.stderr
    promised = re.findall(r"print\(.*\)\s+# (.*)$", blocks("python"), re.MULTILINE)
    assert found.stdout.splitlines() == promised
