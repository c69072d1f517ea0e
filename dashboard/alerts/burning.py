"""Alerts on budgets of errors that burn too fast, over several windows at once.

A long window says that it matters, a short one that it still goes on (The Site Reliability
Workbook, chapter 5: multiwindow, multi-burn-rate alerts).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from .alert import Alert, Runbook, Step
from .recording import LOAD_TARGET_SECONDS, slow_loads, validation_failures

__all__ = ["LOAD_BUDGET", "VALIDATION_BUDGET", "BurnAlerts", "burn_alerts"]

VALIDATION_BUDGET: Final = 0.001
"""One validation may fail in a thousand requests."""
LOAD_BUDGET: Final = 0.01
"""One load in a hundred may be slower than its target."""
_FAST: Final = (("5m", "1h", 14.4), ("30m", "6h", 6.0))
_SLOW: Final = (("2h", "1d", 3.0), ("6h", "3d", 1.0))


class BurnAlerts(NamedTuple):
    """What two burn alerts of one objective share.

    Attributes:
        what: the middle of the alerts' names.
        name_of: a window's recording rule.
        budget: share that may be bad.
        objective: in words.
        runbook: of both.
    """

    what: str
    name_of: Callable[[str], str]
    budget: float
    objective: str
    runbook: Runbook


def burn_alerts(burn: BurnAlerts) -> tuple[Alert, Alert]:
    """The fast and the slow alert of one objective."""
    return (
        Alert(
            f"KVCache{burn.what}BurnFast",
            _expression(burn, _FAST),
            "2m",
            "critical",
            f"{burn.objective} is missed badly on {{{{ $labels.instance }}}}",
            "At this rate the month's budget is gone within days: {{ $value | humanizePercentage }}"
            f" over the short window, {burn.budget:.1%} are allowed.",
            burn.runbook,
        ),
        Alert(
            f"KVCache{burn.what}BurnSlow",
            _expression(burn, _SLOW),
            "15m",
            "warning",
            f"{burn.objective} is missed on {{{{ $labels.instance }}}}",
            "The month's budget will not last: {{ $value | humanizePercentage }} over the short "
            f"window, {burn.budget:.1%} are allowed.",
            burn.runbook,
        ),
    )


def _expression(burn: BurnAlerts, windows: tuple[tuple[str, str, float], ...]) -> str:
    parts = []
    for short, long, factor in windows:
        limit = f"{burn.budget * factor:g}"
        parts.append(
            f"({burn.name_of(short)} > {limit} and {burn.name_of(long)} > {limit})",
        )
    return " or ".join(parts)


VALIDATION_BURN: Final = BurnAlerts(
    "Validation",
    validation_failures,
    VALIDATION_BUDGET,
    "Validation failures per request",
    Runbook(
        "More pages fail validation, per request begun, than the objective of one in a thousand "
        "allows, over a short and a long window.",
        "Every failure costs the request its hit: it computes again what was stored. Answers stay "
        "right, they come later, and the device works more.",
        (
            Step("Which layer, reason and pool it is.", "GET /v1/failures?limit=20"),
            Step(
                "The failures by minute, as the log has them.",
                "kvstrata query DIR failures",
            ),
            Step(
                "kernel_not_ready and mapping_not_ready come from an engine that did not register "
                "its kernels; abi_mismatch from another version of them: compare the layouts.",
                "GET /v1/layout",
            ),
            Step(
                "checksum_mismatch means bytes that changed: follow KVCacheByteDrift.",
                "kvstrata events DIR --type VALIDATION_FAILED --limit 20",
            ),
        ),
        (
            Step("Roll the engine back where a release began it, or register what is missing."),
            Step(
                "Drop a prefix that fails again and again, by the key that the failures name.",
                'POST /v1/commands {"kind": "drop_prefix", "key": "KEY"}',
            ),
        ),
    ),
)

LOAD_BURN: Final = BurnAlerts(
    "RecoveryTime",
    slow_loads,
    LOAD_BUDGET,
    f"Recoveries from lower tiers within {LOAD_TARGET_SECONDS:g} s",
    Runbook(
        f"More than one recovery (a load from a lower tier) in a hundred takes longer than "
        f"{LOAD_TARGET_SECONDS:g} s, over a short and a long window.",
        "Requests wait for their prefix, and hold their admission while they wait. Above the "
        "planner's estimate recomputing would have been quicker.",
        (
            Step("How each tier stands, and what it was asked.", "GET /v1/tiers"),
            Step("What waits, and which limit it waits for.", "GET /v1/admission"),
            Step(
                "Loads and how they ended.",
                "kvstrata events DIR --type LOAD_ENDED --limit 20",
            ),
        ),
        (
            Step("Take the slow tier out of the engine's configuration, or give it bandwidth."),
            Step("Lower max_recoveries, so that fewer loads share the bandwidth."),
        ),
    ),
)
