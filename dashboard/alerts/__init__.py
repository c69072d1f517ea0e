"""Alerts: one table; rules for Prometheus, rules for Grafana and runbooks made from it."""

from .alert import Alert, Runbook, Severity, Step
from .durations import REAL_TIME, TimeScale
from .grafana import managed_alerts, uid_of
from .lives import JOB
from .prometheus import alerting_rules, recording_rules
from .recording import RECORDING_RULES, Recording
from .runbooks import DEFAULT_RUNBOOKS_URL, HEADINGS, runbook, runbook_url
from .table import ALERTS, GROUPS

__all__ = [
    "ALERTS",
    "DEFAULT_RUNBOOKS_URL",
    "GROUPS",
    "HEADINGS",
    "JOB",
    "REAL_TIME",
    "RECORDING_RULES",
    "Alert",
    "Recording",
    "Runbook",
    "Severity",
    "Step",
    "TimeScale",
    "alerting_rules",
    "managed_alerts",
    "recording_rules",
    "runbook",
    "runbook_url",
    "uid_of",
]
