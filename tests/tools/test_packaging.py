"""What is installed is what stands in the folders."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
NOT_INSTALLED = {"bench", "build", "docs", "src", "tests", "tools"}


def test_every_package_is_listed() -> None:
    folders = [
        file.parent.relative_to(REPOSITORY)
        for root in REPOSITORY.iterdir()
        if root.is_dir() and root.name[0] != "." and root.name not in NOT_INSTALLED
        for file in root.rglob("__init__.py")
    ]
    found = {".".join(("kvstrata", *folder.parts)) for folder in folders}
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == listed
    assert set(listed) == found | {"kvstrata"}


def test_constraints_pin_every_direct_dependency() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(item for extra in extras for item in extra)]
    names = {re.split(r"[^A-Za-z0-9_-]", item)[0] for item in wanted} - {"kvstrata"}
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0] for line in lines if "==" in line}
    assert names <= pinned
