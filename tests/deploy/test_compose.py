"""docker-compose.yml: accepted by its own program, pinned, closed, without secrets, all there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvstrata.api.cli import app

from .conftest import REPOSITORY

BIN = Path(sys.executable).parent
PINNED = re.compile(r"[a-z0-9./_-]+:v?\d+\.\d+[a-zA-Z0-9.-]*(@sha256:[0-9a-f]{64})?")
Services = dict[str, dict[str, Any]]


def test_the_program_itself_accepts_it() -> None:
    found = subprocess.run(
        [BIN / "docker-compose", "config", "--format", "json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert set(json.loads(found.stdout)["services"]) == {
        *("kvstrata", "postgres", "objects", "bucket", "prometheus", "alertmanager", "grafana"),
    }


def test_images_are_pinned(services: Services) -> None:
    for name, service in services.items():
        assert PINNED.fullmatch(service["image"]), name
    bases = re.findall(r"^FROM (\S+)", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    assert len(bases) == 2
    assert all(PINNED.fullmatch(base) for base in bases)


def test_ports_are_the_loopbacks_own(services: Services) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == 6
    assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for port in ports)
    assert len(set(ports)) == len(ports)


def test_nobody_is_root_and_nobody_may_become_it(services: Services) -> None:
    for name, service in services.items():
        user, _, _ = service["user"].partition(":")
        assert int(user) > 0, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "network_mode", "pid"} & set(service), name


def test_all_that_stay_say_how_they_are(services: Services) -> None:
    for name, service in services.items():
        stays = service["restart"] != "no"
        assert ("healthcheck" in service) == stays, name
        for other, wanted in service.get("depends_on", {}).items():
            healthy = wanted["condition"] == "service_healthy"
            assert not healthy or "healthcheck" in services[other]
    assert services["kvstrata"]["shm_size"] == "512m"


def test_every_file_that_is_mounted_is_there(services: Services, compose: dict[str, Any]) -> None:
    mounted = 0
    for service in services.values():
        for volume in service.get("volumes", ()):
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                assert volume.endswith(":ro")
                assert (REPOSITORY / source).exists(), source
                mounted += 1
            else:
                assert source in compose["volumes"]
                assert target.startswith("/")
    assert mounted == 5


def test_secrets_are_files_that_the_script_makes(
    services: Services, compose: dict[str, Any], secrets: Path
) -> None:
    made = {path.name for path in secrets.iterdir()}
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"./deploy/secrets/{name}"}
        assert name in made
    used = {name for service in services.values() for name in service.get("secrets", ())}
    assert used == set(compose["secrets"])
    assert (secrets.stat().st_mode & 0o777) == 0o700
    assert "deploy/secrets/" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_no_secret_stands_in_the_file(services: Services) -> None:
    text = (REPOSITORY / "docker-compose.yml").read_text()
    for name, service in services.items():
        for key, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN|KEY|CREDENTIALS", key):
                assert str(value).startswith("/run/secrets/"), f"{name}: {key}"
                assert str(value).removeprefix("/run/secrets/") in service["secrets"]
        for secret in re.findall(r"/run/secrets/(\w+)", json.dumps(service)):
            assert secret in service["secrets"], f"{name} reads {secret}"
    assert not re.search(r"://[^\s/]+:[^\s/]+@", text), "a URL with a password"
    assert not re.search(r"\b[0-9a-f]{24,}\b", re.sub(r"sha256:[0-9a-f]+", "", text))


def test_a_second_run_of_the_script_changes_nothing(secrets: Path) -> None:
    before = {path.name: path.read_bytes() for path in secrets.iterdir()}
    script = secrets.parent / "compose" / "make-secrets.sh"
    found = subprocess.run(["sh", script], check=True, capture_output=True, text=True)
    assert found.stdout == ""
    assert {path.name: path.read_bytes() for path in secrets.iterdir()} == before
    values = [path.read_text() for path in secrets.iterdir()]
    assert len(set(values)) == len(values)


def test_the_engine_is_called_as_the_command_line_is(services: Services) -> None:
    command, *options = services["kvstrata"]["command"]
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    for option in options:
        assert re.search(rf"{option.partition('=')[0]}\b", shown), option
    assert {"--load", "--serve", "--host=0.0.0.0"} <= set(options)


@pytest.mark.parametrize("name", ["objects", "bucket"])
def test_the_store_and_its_bucket_are_of_one_version(services: Services, name: str) -> None:
    assert services[name]["image"] == services["objects"]["image"]
    url = next(word for word in services["kvstrata"]["command"] if "s3://" in word)
    bucket = url.removeprefix("--tier=s3://").partition("/")[0]
    script = services["bucket"]["entrypoint"][-1]
    assert f"-name {bucket}" in shlex.split(script.partition("|")[0])[1]
