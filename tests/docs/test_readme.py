"""The README is true: its Python runs, its commands run, its table names every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvstrata.api.cli import app

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted(
    path
    for path in [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    if path.is_file()
)
TARGETS = re.compile(r"^([a-z]+):", re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the README's Python has run, as its commands expect."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "example.py").write_text("\n".join(blocks("python")), encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    (folder / "printed").write_text(found.stdout, encoding="utf-8")
    return folder


def test_the_python_example_prints_what_its_comments_say(workplace: Path) -> None:
    promised = re.findall(r"print\(.*\)\s+# (.*)$", "\n".join(blocks("python")), re.MULTILINE)
    assert promised
    assert (workplace / "printed").read_text().splitlines() == promised


def test_the_commands_run(workplace: Path) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]
    ours = [command for command in commands if command.startswith("kvstrata ")]
    assert len(ours) >= 4
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    for command in ours:
        found = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=workplace,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, f"{command}: {found.stdout}{found.stderr}"


def test_every_make_target_it_names_exists() -> None:
    targets = set(TARGETS.findall((REPOSITORY / "Makefile").read_text(encoding="utf-8")))
    named = set(re.findall(r"\bmake ([a-z]+)", README))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_the_table_names_exactly_the_commands() -> None:
    named = set(re.findall(r"^\| `kvstrata ([a-z]+)", README, re.MULTILINE))
    commands = (*app.registered_commands, *app.registered_groups)
    assert named == {str(command.name) for command in commands}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target
