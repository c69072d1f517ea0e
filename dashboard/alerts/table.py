"""The one table of alerts; rules, runbooks, dashboards and docs are made from it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kvstrata.core.errors import ConfigError

from .alert import Alert
from .burning import LOAD_BURN, VALIDATION_BURN, burn_alerts
from .capacity import CAPACITY_ALERTS
from .drift import DRIFT_ALERTS
from .lives import LIFE_ALERTS
from .log import LOG_ALERTS

__all__ = ["ALERTS", "GROUPS"]

GROUPS: Final[Mapping[str, tuple[Alert, ...]]] = MappingProxyType(
    {
        "objectives": (*burn_alerts(VALIDATION_BURN), *burn_alerts(LOAD_BURN)),
        "drift": DRIFT_ALERTS,
        "log": LOG_ALERTS,
        "capacity": CAPACITY_ALERTS,
        "lives": LIFE_ALERTS,
    }
)
"""Alerts by what they are about."""


def _by_name() -> Mapping[str, Alert]:
    alerts = [alert for group in GROUPS.values() for alert in group]
    names = [alert.name for alert in alerts]
    if len(set(names)) != len(names):
        raise ConfigError(f"alerts: expected names of their own, found {sorted(names)}")
    return MappingProxyType({alert.name: alert for alert in alerts})


ALERTS: Final = _by_name()
"""Every alert by its name."""
