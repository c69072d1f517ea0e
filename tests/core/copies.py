"""Copies of the package in a folder of their own, to edit and to run."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def copy_package(target: Path) -> Path:
    """Copy every folder of the package, as installing would; returns the copy of the core."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    folders: dict[str, str] = project["tool"]["setuptools"]["package-dir"]
    for name, source in sorted(folders.items()):
        shutil.copytree(
            REPOSITORY / source,
            target.joinpath(*name.split(".")),
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
    return target / "kvstrata" / "core"


def edit(path: Path, old: str, new: str) -> None:
    """Replace the only occurrence of a text in a file."""
    text = path.read_text()
    if text.count(old) != 1:
        raise AssertionError(
            f"{path.name}: expected {old!r} once, found it {text.count(old)} times; "
            "the code has changed, so bring the edit up to date"
        )
    path.write_text(text.replace(old, new))


def run_python(
    arguments: Sequence[str], package: Path | None, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run Python at the repository root with the package at ``package`` (None: as installed)."""
    paths = [str(package)] if package else []
    paths += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
