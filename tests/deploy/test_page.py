"""docs/deploy.md names every service, option and file as it is."""

from __future__ import annotations

import re
from typing import Any

from typer.testing import CliRunner

from kvstrata.api.cli import app

from .conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "deploy.md").read_text(encoding="utf-8")


def test_services_and_their_ports_are_those_of_the_file(services: dict[str, Any]) -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| 127\.0\.0\.1:(\d+) \|", PAGE, re.MULTILINE))
    published = {
        name: service["ports"][0].rpartition(":")[2]
        for name, service in services.items()
        if "ports" in service
    }
    assert listed == published
    assert all(f"`{name}`" in PAGE for name in services)


def test_options_are_those_of_the_command() -> None:
    shown = CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "200"}).stdout
    options = set(
        re.findall(r"`(--[a-z-]+)`", "".join(re.findall(r"^\| `--.*", PAGE, re.MULTILINE)))
    )
    assert options == set(re.findall(r"(--[a-z-]+)", shown)) - {
        *("--help", "--seed", "--shared-memory-root", "--no-load", "--no-serve"),
    }


def test_files_it_names_are_there() -> None:
    for name in re.findall(r"`?(deploy/[a-z]+(?:/[a-z-]+\.(?:sh|yml))?)`?[\s,;:]", PAGE):
        assert (REPOSITORY / name).exists() or name == "deploy/secrets", name
    assert (REPOSITORY / "deploy" / "compose" / "make-secrets.sh").stat().st_mode & 0o111


def test_it_says_what_was_not_tried() -> None:
    assert "no image was built and no container was started" in PAGE
    assert "digests were not resolved" in PAGE
