from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    """docker-compose.yml as it is written, its anchors resolved."""
    found: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
    return found


@pytest.fixture(scope="session")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The secrets, made by the script in a copy of its folder."""
    folder = tmp_path_factory.mktemp("deploy")
    shutil.copytree(REPOSITORY / "deploy" / "compose", folder / "compose")
    subprocess.run(["sh", folder / "compose" / "make-secrets.sh"], check=True, capture_output=True)
    return folder / "secrets"
