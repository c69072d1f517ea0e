"""The layer table: what it lets through and what it reports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = """
[importlinter]
root_package = {name}
contract_types =
    layer_table: tools.layer_table.LayerTableContract

[importlinter:contract:folders]
name = folders
type = layer_table
root = {name}
rows =
    core:
    store: core
    store.log: core
    face: core store
"""


def lint(
    tmp_path: Path, files: dict[str, str], config: str = CONFIG
) -> subprocess.CompletedProcess[str]:
    name = "strata_sample"
    for folder in ("", "core", "store", "store/log"):
        (tmp_path / name / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / folder / "__init__.py").touch()
    for path, text in files.items():
        (tmp_path / name / path).write_text(text.format(name=name))
    (tmp_path / ".importlinter").write_text(config.format(name=name))
    command = "from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("store/a.py", "import {name}.core", id="row allows it"),
        pytest.param("face_module.py", "from {name}.store import log", id="face reaches down"),
        pytest.param("core/a.py", "from . import b", id="inside a folder"),
        pytest.param("core/a.py", "import os", id="standard library"),
    ],
)
def test_allowed_imports_are_kept(tmp_path: Path, path: str, text: str) -> None:
    allow_log = CONFIG.replace("face: core store", "face: core store store.log")
    found = lint(tmp_path, {"core/b.py": "", path: text}, allow_log)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("core/a.py", "import {name}.store", "core.a:1 imports strata_sample.store"),
        ("core/a.py", "from {name} import face_module", "imports strata_sample.face_module"),
        ("store/log/a.py", "import {name}.store.b", "store.log.a:1 imports strata_sample.store.b"),
        ("store/b.py", "import {name}.store.log", "store imports only core"),
        ("face_module.py", "import {name}.store.log", "face imports only core, store"),
    ],
)
def test_other_imports_break_the_contract(
    tmp_path: Path, path: str, text: str, message: str
) -> None:
    files = {"store/b.py": "", "face_module.py": "", path: text}
    found = lint(tmp_path, files)
    assert found.returncode == 1
    assert message in " ".join(found.stdout.split())


def test_a_row_that_names_no_folder_is_refused(tmp_path: Path) -> None:
    found = lint(tmp_path, {}, CONFIG.replace("store: core\n", "store: kore\n"))
    assert found.returncode != 0
    assert "kore" in found.stdout + found.stderr
