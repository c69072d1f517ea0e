"""The same alerts as Grafana manages them: provisioning YAML.

A series of the alert's expression fires by being there, whatever its value; no data means that
nothing is wrong.
"""

import re
from typing import Any, Final

from .alert import Alert
from .prometheus import as_yaml
from .runbooks import DEFAULT_RUNBOOKS_URL, runbook_url
from .table import GROUPS

__all__ = ["FOLDER", "managed_alerts", "uid_of"]

FOLDER: Final = "kvstrata"
_EXPRESSION_SOURCE: Final = "__expr__"
_LOOK_BACK_S: Final = 600
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def uid_of(name: str) -> str:
    """The uid of an alert's rule in Grafana: its name in lower case, words parted by hyphens."""
    return "kvcache-" + _WORDS.sub("-", name.removeprefix("KVCache")).lower()


def managed_alerts(
    datasource_uid: str,
    runbooks_url: str = DEFAULT_RUNBOOKS_URL,
) -> str:
    """The provisioning file of all alerts.

    Args:
        datasource_uid: of the Prometheus that has the recording rules.
        runbooks_url: where runbooks are served.
    """
    groups = [
        {
            "orgId": 1,
            "name": f"kvcache-{name}",
            "folder": FOLDER,
            "interval": "1m",
            "rules": [_rule(alert, datasource_uid, runbooks_url) for alert in alerts],
        }
        for name, alerts in GROUPS.items()
    ]
    return as_yaml({"apiVersion": 1, "groups": groups})


def _rule(alert: Alert, datasource_uid: str, runbooks_url: str) -> dict[str, Any]:
    return {
        "uid": uid_of(alert.name),
        "title": alert.name,
        "condition": "B",
        "data": [
            _query(alert.expression, datasource_uid),
            _is_there(),
        ],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": alert.hold,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": _in_grafana(alert.summary),
            "description": _in_grafana(alert.description),
            "runbook_url": runbook_url(alert.name, runbooks_url),
        },
        "isPaused": False,
    }


def _query(expression: str, datasource_uid: str) -> dict[str, Any]:
    return {
        "refId": "A",
        "relativeTimeRange": {"from": _LOOK_BACK_S, "to": 0},
        "datasourceUid": datasource_uid,
        "model": {
            "refId": "A",
            "datasource": {"type": "prometheus", "uid": datasource_uid},
            "expr": expression,
            "instant": True,
            "range": False,
            "intervalMs": 1000,
            "maxDataPoints": 100,
        },
    }


def _is_there() -> dict[str, Any]:
    return {
        "refId": "B",
        "relativeTimeRange": {"from": _LOOK_BACK_S, "to": 0},
        "datasourceUid": _EXPRESSION_SOURCE,
        "model": {
            "refId": "B",
            "datasource": {"type": _EXPRESSION_SOURCE, "uid": _EXPRESSION_SOURCE},
            "type": "math",
            "expression": "is_number($A) || is_inf($A)",
        },
    }


def _in_grafana(text: str) -> str:
    """An annotation in Grafana's template words: the value there is that of query A."""
    return text.replace("$value ", "$values.A.Value ")
