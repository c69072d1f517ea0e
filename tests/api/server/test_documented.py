"""docs/api.md is true and whole: every route, role, setting and command, its examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from kvstrata.api.server.access import Role
from kvstrata.api.server.gate import OPEN_PATHS
from kvstrata.api.server.settings import ServerSettings
from kvstrata.eventstore.commands import CommandKind
from tests.api.server.support import Served
from tests.api.server.test_access import OPERATORS_ONLY

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """Rows of the first table of a section, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [[re.sub(r"^`([^`]*)`$", r"\1", cell) for cell in row] for row in cells]


def test_every_route_is_documented_with_its_role(quiet: Served) -> None:
    documented = {(method, path): role for method, path, role, _ in rows("Routes")}
    for path, operations in quiet.app.openapi()["paths"].items():
        for method in (name.upper() for name in operations):
            expected = Role.OPERATOR if (method, path) in OPERATORS_ONLY else Role.VIEWER
            role = "anybody" if path in OPEN_PATHS else str(expected)
            assert documented.pop((method, path), "undocumented") == role, (method, path)
    assert documented == {}


def test_every_filter_is_documented(quiet: Served) -> None:
    said = {path: text for method, path, _, text in rows("Routes") if method == "GET"}
    for path, operations in quiet.app.openapi()["paths"].items():
        for one in operations.get("get", {}).get("parameters", ()):
            if one["in"] == "query" and one["name"] not in ("limit", "cursor"):
                assert f"`{one['name']}`" in said[path], (path, one["name"])


def test_every_role_is_documented() -> None:
    assert [row[0] for row in rows("Who may do what")] == [str(role) for role in Role]


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {name: default for name, default, _ in rows("Settings")}
    for field in fields(ServerSettings):
        assert documented.pop(field.name, "undocumented") == str(field.default), field.name
    assert documented == {}


def test_every_command_is_documented_with_its_arguments(quiet: Served) -> None:
    schemas = quiet.app.openapi()["components"]["schemas"]
    documented = {kind: arguments for kind, arguments, _ in rows("Commands")}
    for kind in CommandKind:
        name = kind.name.lower()
        model = schemas["".join(part.title() for part in name.split("_"))]
        known = [argument for argument in model["properties"] if argument != "kind"]
        found = [argument.strip("` ") for argument in documented.pop(name).split(",")]
        assert [argument for argument in found if argument] == known, name
    assert documented == {}


def test_the_examples_run(api: Served, tmp_path: Path) -> None:
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "example.py").write_text(first, encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)$", first, re.MULTILINE)
    exec(second, {"directory": api.place.directory, "cache": api.cache})
    assert api.cache.commands_status() is not None


def test_the_commands_are_those_of_the_command_line(tmp_path: Path) -> None:
    text = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in text.splitlines():
        # Each is asked with a directory that is no log: what is wrong is said of that alone.
        words = [
            str(tmp_path / "none" / "log") if word == "DIR" else word for word in command.split()
        ]
        words += ["--help"]
        done = subprocess.run(
            words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
