"""Everything that Grafana and Prometheus read, as files by name."""

import json
from typing import Any, Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from ..alerts import (
    DEFAULT_RUNBOOKS_URL,
    alerting_rules,
    managed_alerts,
    recording_rules,
)
from ..alerts.grafana import FOLDER
from ..alerts.prometheus import as_yaml
from .overview import overview
from .pools import pools
from .recovery import recovery
from .tiers import tiers
from .validation import validation

__all__ = ["DATASOURCE_UID", "DEFAULT_PROMETHEUS_URL", "as_json", "build_files", "dashboards"]

DATASOURCE_UID: Final = "kvstrata-prometheus"
DEFAULT_PROMETHEUS_URL: Final = "http://prometheus:9090"
_DASHBOARDS_AT: Final = "/var/lib/grafana/dashboards"


def dashboards() -> dict[str, Dashboard]:
    """Every dashboard by the name of its file."""
    return {
        "overview": overview(),
        "validation": validation(),
        "pools": pools(),
        "recovery": recovery(),
        "tiers": tiers(),
    }


def as_json(board: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana reads it, without what the builders add and its schema has not."""
    plain: dict[str, Any] = json.loads(json.dumps(board, cls=JSONEncoder))
    for variable in plain["templating"]["list"]:
        for name in [name for name in variable if name == "auto" or name.startswith("auto_")]:
            del variable[name]
    for panel in plain["panels"]:
        if panel["type"] == "table":
            panel["options"].pop("footer", None)
    return plain


def build_files(
    runbooks_url: str = DEFAULT_RUNBOOKS_URL,
    prometheus_url: str = DEFAULT_PROMETHEUS_URL,
) -> dict[str, str]:
    """All files, by their path below the output folder; the same every time.

    Args:
        runbooks_url: where runbooks are served.
        prometheus_url: where Grafana asks Prometheus.
    """
    files = {
        "prometheus/recording.yml": recording_rules(),
        "prometheus/alerting.yml": alerting_rules(runbooks_url=runbooks_url),
        "grafana/provisioning/datasources/kvstrata.yaml": as_yaml(_datasources(prometheus_url)),
        "grafana/provisioning/dashboards/kvstrata.yaml": as_yaml(_providers()),
        "grafana/provisioning/alerting/kvstrata.yaml": managed_alerts(DATASOURCE_UID, runbooks_url),
    }
    for name, board in dashboards().items():
        text = json.dumps(as_json(board), indent=2, sort_keys=True, ensure_ascii=False)
        text = text.replace(DEFAULT_RUNBOOKS_URL, runbooks_url.rstrip("/"))
        files[f"grafana/dashboards/{name}.json"] = text + "\n"
    return dict(sorted(files.items()))


def _datasources(prometheus_url: str) -> dict[str, Any]:
    source = {
        "name": "kvstrata",
        "uid": DATASOURCE_UID,
        "type": "prometheus",
        "access": "proxy",
        "url": prometheus_url,
        "isDefault": True,
        "editable": False,
        "jsonData": {"timeInterval": "15s", "httpMethod": "POST"},
    }
    return {"apiVersion": 1, "datasources": [source]}


def _providers() -> dict[str, Any]:
    provider = {
        "name": "kvstrata",
        "orgId": 1,
        "folder": FOLDER,
        "type": "file",
        "disableDeletion": True,
        "allowUiUpdates": False,
        "options": {"path": _DASHBOARDS_AT},
    }
    return {"apiVersion": 1, "providers": [provider]}
