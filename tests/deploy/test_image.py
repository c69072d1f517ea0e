"""The image: its recipe is sound and has every folder; its entry gives passwords to libpq alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from .conftest import REPOSITORY

BIN = Path(sys.executable).parent
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()


def test_the_linter_has_nothing_to_say() -> None:
    found = subprocess.run(
        [BIN / "hadolint", "Dockerfile"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_it_has_every_folder_that_is_installed() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    folders = project["tool"]["setuptools"]["package-dir"].values()
    wanted = {folder.partition("/")[0] for folder in folders}
    copied = re.findall(r"^COPY (\w+) (\w+)$", DOCKERFILE, re.MULTILINE)
    assert {source for source, _ in copied} == wanted
    assert all(source == target for source, target in copied)
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    assert wanted | {"constraints.txt", "pyproject.toml", "README.md", "LICENSE"} <= let_in
    assert "deploy/docker" in let_in
    assert not any("secrets" in line for line in let_in)


def test_it_runs_as_nobody_else_and_names_no_index() -> None:
    users = re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)
    assert users == ["10001:10001"]
    assert 'ARG TORCH_INDEX_URL=""' in DOCKERFILE
    assert "://" not in DOCKERFILE
    assert DOCKERFILE.count("--constraint constraints.txt") == 2


def test_the_extras_it_installs_exist() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    (extras,) = re.findall(r"'\.\[(.*?)\]'", DOCKERFILE)
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])


def test_a_password_reaches_libpq_in_a_file_of_its_own(tmp_path: Path) -> None:
    fake = tmp_path / "kvstrata"
    fake.write_text('#!/bin/sh\nstat -c %a "$PGPASSFILE"; cat "$PGPASSFILE"; echo "$@"\n')
    fake.chmod(0o755)
    (tmp_path / "password").write_text("opensesame")
    found = subprocess.run(
        [REPOSITORY / "deploy" / "docker" / "entrypoint.sh", "demo", "--load"],
        env={
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(tmp_path),
            "KVSTRATA_POSTGRES_PASSWORD_FILE": str(tmp_path / "password"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == ["600", "*:*:*:*:opensesame", "demo --load"]


def test_without_a_password_nothing_is_written(tmp_path: Path) -> None:
    fake = tmp_path / "kvstrata"
    fake.write_text('#!/bin/sh\necho "${PGPASSFILE-none} $*"\n')
    fake.chmod(0o755)
    found = subprocess.run(
        [REPOSITORY / "deploy" / "docker" / "entrypoint.sh", "--version"],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "none --version\n"
    assert [path.name for path in tmp_path.iterdir()] == ["kvstrata"]
