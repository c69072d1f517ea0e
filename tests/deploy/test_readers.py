"""What Prometheus, Alertmanager and Grafana are given fits together, and they accept it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kvstrata.api.server.access import Access, Role
from tests.services import need

from .conftest import REPOSITORY

COMPOSE = REPOSITORY / "deploy" / "compose"
Services = dict[str, dict[str, Any]]


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """Target by source of what is mounted from the repository."""
    split = [volume.split(":") for volume in service["volumes"] if volume.startswith(".")]
    return {source: target for source, target, *_ in split}


def test_prometheus_accepts_its_configuration_and_rules(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        need("promtool", "prometheus")
    text = (COMPOSE / "prometheus.yml").read_text()
    rules = REPOSITORY / "deploy" / "prometheus"
    (tmp_path / "token").write_text("token")
    text = text.replace("/etc/prometheus/rules", str(rules))
    text = text.replace("/run/secrets/prometheus_token", str(tmp_path / "token"))
    (tmp_path / "prometheus.yml").write_text(text)
    found = subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("rules found") == len(list(rules.glob("*.yml")))


def test_alertmanager_accepts_its_configuration() -> None:
    if shutil.which("amtool") is None:
        need("amtool", "prometheus-alertmanager")
    found = subprocess.run(
        ["amtool", "check-config", COMPOSE / "alertmanager.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_prometheus_asks_those_that_are_there(services: Services) -> None:
    config = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "kvstrata"
    targets = [target for one in job["static_configs"] for target in one["targets"]]
    managers = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    for target in (*targets, *managers):
        host, port = target.split(":")
        assert any(published.endswith(f":{port}") for published in services[host]["ports"])
    assert mounts(services["prometheus"]) == {
        "./deploy/compose/prometheus.yml": "/etc/prometheus/prometheus.yml",
        "./deploy/prometheus": "/etc/prometheus/rules",
    }


def test_grafana_finds_what_is_mounted(services: Services) -> None:
    where = mounts(services["grafana"])
    provisioning = REPOSITORY / "deploy" / "grafana" / "provisioning"
    for file in provisioning.glob("dashboards/*.y*ml"):
        for provider in yaml.safe_load(file.read_text())["providers"]:
            assert provider["options"]["path"] == where["./deploy/grafana/dashboards"]
    sources = [
        source
        for file in provisioning.glob("datasources/*.y*ml")
        for source in yaml.safe_load(file.read_text())["datasources"]
    ]
    assert [source["url"] for source in sources] == ["http://prometheus:9090"]
    assert list((REPOSITORY / "deploy" / "grafana" / "dashboards").glob("*.json"))


def test_the_server_knows_the_tokens_that_are_made(secrets: Path) -> None:
    access = Access.read(secrets / "api_tokens")
    prometheus = access.who(f"Bearer {(secrets / 'prometheus_token').read_text()}")
    assert prometheus is not None
    assert (prometheus.name, prometheus.role) == ("prometheus", Role.VIEWER)
