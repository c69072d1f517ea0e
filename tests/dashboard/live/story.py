"""The play: an engine at work, then fault after fault, each until it was told and was over."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kvstrata.dashboard.alerts import ALERTS, RECORDING_RULES
from kvstrata.dashboard.grafana import dashboards
from tests.dashboard.panels import queries_of
from tests.dashboard.promql import Selector, selectors

from .plant import Plant, plant
from .stack import SCALE

CALM_S: Final = 8.0
SETTLED_S: Final = 60.0
"""Within which everything is well, if it is not at once."""
FIRE_S: Final = 30.0
CLEAR_S: Final = 45.0
VARIABLES: Final = {
    "$instance": ".*",
    "$pool": ".*",
    "$__rate_interval": "5s",
    "$__interval": "1s",
}


@dataclass
class Story:
    """What was seen.

    Attributes:
        at_rest: alerts that went on firing before anything was broken.
        calm: by expression, series it answered with before anything was broken.
        whole: by expression, series it answered with at any time.
        fired_s: by alert, seconds from the fault to the webhook.
        cleared_s: by alert, seconds from the mending to the webhook.
        told: every alert as the webhook got it.
        rules: every rule as Prometheus has it at the end.
        took_s: all of it.
    """

    at_rest: set[str] = field(default_factory=set)
    calm: dict[str, int] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)
    fired_s: dict[str, float] = field(default_factory=dict)
    cleared_s: dict[str, float] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)
    rules: list[dict[str, Any]] = field(default_factory=list)
    took_s: float = 0.0


def panel_expressions() -> dict[str, str]:
    """Every query of every dashboard, by dashboard, panel and number."""
    return {
        f"{name}/{title}/{number}": expression
        for name, board in dashboards().items()
        for title, number, expression in queries_of(board)
    }


def rule_selectors() -> dict[str, str]:
    """Everything that rules select, as expressions by themselves; Prometheus' own left out."""
    texts = [alert.expression for alert in ALERTS.values()]
    texts += [rule.expression for rule in RECORDING_RULES]
    found = {selected for text in texts for selected in selectors(text)}
    return {_text_of(selected): _text_of(selected) for selected in sorted(found, key=str)}


def recorded() -> dict[str, str]:
    """Every recorded series."""
    return {rule.name: rule.name for rule in RECORDING_RULES}


def _text_of(selected: Selector) -> str:
    operators = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    matchers = [f'{name}{operators[how]}"{value}"' for name, how, value in selected.matchers]
    return f"{selected.name}{{{','.join(matchers)}}}"


def expressions() -> dict[str, str]:
    """All that must answer."""
    return {**panel_expressions(), **rule_selectors(), **recorded()}


def asked(expression: str) -> str:
    """An expression as it is asked here: variables filled in, durations on the short scale."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return SCALE.expression(expression)


def _firing(it: Plant) -> set[str]:
    """Alerts that fire now, as the webhook was told."""
    return {name for name, state in it.webhook.states.items() if state == "firing"}


def play() -> Story:
    """The whole play."""
    story = Story()
    began_s = time.monotonic()
    with plant() as it:
        time.sleep(CALM_S)
        # Where the machine is busy otherwise something may lag for a moment; it does not stay so.
        settled_s = time.monotonic() + SETTLED_S
        while (firing := _firing(it)) and time.monotonic() < settled_s:
            time.sleep(0.5)
        story.at_rest = firing
        story.calm = _answers(it)
        _faults_in_the_cache(it, story)
        _a_reader_that_stops(it, story)
        _a_log_that_fails_and_an_engine_that_dies(it, story)
        _an_exporter_that_is_gone(it, story)
        story.whole = _answers(it)
        story.told = it.webhook.told
        story.rules = it.prometheus.rules()
    story.took_s = time.monotonic() - began_s
    return story


def _answers(it: Plant) -> dict[str, int]:
    return {
        name: len(it.prometheus.over(asked(expression), it.began_s))
        for name, expression in expressions().items()
    }


def _faults_in_the_cache(it: Plant, story: Story) -> None:
    faults = {
        "tamper": "KVCacheProjectionDiverged",
        "flip": "KVCacheByteDrift",
        "dirty": "KVCacheIndexLag",
        "drift": "KVCacheNumericDrift",
        "break_tier": "KVCacheTierFailing",
    }
    _break(it, story, faults)
    _mend(it, story, ("untamper", "clean", "mend_tier"), faults.values())
    _break(it, story, {"flood": "KVCacheAdmissionStarved"})
    _mend(it, story, ("ebb",), ["KVCacheAdmissionStarved"])


def _a_reader_that_stops(it: Plant, story: Story) -> None:
    it.stop_follower()
    _await(it, ["KVCacheFollowerLagging"], True, story.fired_s)
    it.start_follower()
    _await(it, ["KVCacheFollowerLagging"], False, story.cleared_s)


def _a_log_that_fails_and_an_engine_that_dies(it: Plant, story: Story) -> None:
    of_the_log = ["KVCacheLogPoisoned", "KVCacheLogUnlogged"]
    it.tell("poison")
    _await(it, of_the_log, True, story.fired_s)
    it.kill_engine()
    _await(it, ["KVCacheEngineAbsent"], True, story.fired_s)
    it.start_engine()
    _await(it, [*of_the_log, "KVCacheEngineAbsent"], False, story.cleared_s)


def _an_exporter_that_is_gone(it: Plant, story: Story) -> None:
    it.stop_exporter()
    _await(it, ["KVCacheExporterAbsent"], True, story.fired_s)
    it.start_exporter()
    _await(it, ["KVCacheExporterAbsent"], False, story.cleared_s)


def _break(it: Plant, story: Story, faults: dict[str, str]) -> None:
    for command in faults:
        it.tell(command)
    _await(it, faults.values(), True, story.fired_s)


def _mend(it: Plant, story: Story, commands: Iterable[str], alerts: Iterable[str]) -> None:
    for command in commands:
        it.tell(command)
    _await(it, alerts, False, story.cleared_s)


def _await(it: Plant, alerts: Iterable[str], firing: bool, took_s: dict[str, float]) -> None:
    """Wait until the webhook was told, and note when; what does not come is missing."""
    left, began_s = set(alerts), time.monotonic()
    limit_s = FIRE_S if firing else CLEAR_S
    while left and time.monotonic() - began_s < limit_s:
        for name in [name for name in left if it.webhook.is_firing(name) == firing]:
            took_s[name] = time.monotonic() - began_s
            left.discard(name)
        time.sleep(0.05)
