"""The rules for Prometheus: recording rules and alerting rules, as YAML."""

from typing import Any, Final

import yaml

from .alert import Alert
from .durations import REAL_TIME, TimeScale
from .recording import RECORDING_RULES
from .runbooks import DEFAULT_RUNBOOKS_URL, runbook_url
from .table import GROUPS

__all__ = ["alerting_rules", "as_yaml", "recording_rules"]

_HEADER: Final = "# Made by `kvstrata dashboards build`. Change the table in dashboard/alerts.\n"


def as_yaml(document: dict[str, Any]) -> str:
    """A document as the files of this folder look: keys in order, one line a scalar."""
    return _HEADER + yaml.safe_dump(document, sort_keys=False, width=1_000_000, allow_unicode=True)


def recording_rules(scale: TimeScale = REAL_TIME) -> str:
    """The file of recording rules."""
    rules = [
        {"record": rule.name, "expr": scale.expression(rule.expression)} for rule in RECORDING_RULES
    ]
    group = {"name": "kvcache-recording", "interval": scale.evaluation, "rules": rules}
    return as_yaml({"groups": [group]})


def alerting_rules(scale: TimeScale = REAL_TIME, runbooks_url: str = DEFAULT_RUNBOOKS_URL) -> str:
    """The file of alerting rules.

    Args:
        scale: of durations.
        runbooks_url: where runbooks are served.
    """
    groups = [
        {
            "name": f"kvcache-{name}",
            "interval": scale.evaluation,
            "rules": [_rule(alert, scale, runbooks_url) for alert in alerts],
        }
        for name, alerts in GROUPS.items()
    ]
    return as_yaml({"groups": groups})


def _rule(alert: Alert, scale: TimeScale, runbooks_url: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": scale.expression(alert.expression),
        "for": scale.duration(alert.hold),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": runbook_url(alert.name, runbooks_url),
        },
    }
