"""The dashboards have the types that Grafana's schema package publishes, by the compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.services import need

from .schema_check import PACKAGES, source

WRONG = "export const wrong: Plain<Stat.Options>['colorMode'] = 'rainbow';"
INSTALL_S, COMPILE_S = 180, 120


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the schema and a compiler in it."""
    npm = shutil.which("npm") or need("npm", "npm")
    folder = tmp_path_factory.mktemp("schema")
    (folder / "package.json").write_text('{"private": true}', encoding="utf-8")
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    done = subprocess.run(
        [npm, "install", *options, *PACKAGES],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=INSTALL_S,
    )
    if done.returncode != 0:
        pytest.skip(f"expected npm to install {', '.join(PACKAGES)}, found: {done.stderr[-300:]}")
    return folder


def compiled(folder: Path, text: str) -> str:
    """What the compiler says to a file; empty where all is well."""
    (folder / "check.ts").write_text(text, encoding="utf-8")
    options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"]
    modules = ["--module", "nodenext", "--moduleResolution", "nodenext"]
    done = subprocess.run(
        [folder / "node_modules/.bin/tsc", *options, *modules, "check.ts"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMPILE_S,
    )
    assert (done.returncode == 0) == (done.stdout == "")
    return done.stdout


@pytest.mark.slow
def test_every_dashboard_and_panel_has_its_type(workshop: Path) -> None:
    assert compiled(workshop, source()) == ""


@pytest.mark.slow
def test_a_wrong_option_is_found(workshop: Path) -> None:
    said = compiled(workshop, f"{source()}\n{WRONG}")
    assert said.count("error TS") == 1
    assert "rainbow" in said
