"""Against a real engine, Prometheus and Alertmanager: all answers, and every fault is told."""

from __future__ import annotations

import re

import pytest

from kvstrata.dashboard.alerts import ALERTS
from tools import dashboard_pages

from .story import Story, expressions

pytestmark = pytest.mark.slow

INJECTED = {
    "KVCacheAdmissionStarved": "more requests than can begin, and sequences that stay",
    "KVCacheByteDrift": "a bit of a sealed page",
    "KVCacheEngineAbsent": "SIGKILL",
    "KVCacheExporterAbsent": "no server at the target",
    "KVCacheFollowerLagging": "a follower that stands still",
    "KVCacheIndexLag": "an index page written behind its seal",
    "KVCacheLogPoisoned": "fdatasync fails",
    "KVCacheLogUnlogged": "the same",
    "KVCacheNumericDrift": "a comparison beyond its tolerance",
    "KVCacheProjectionDiverged": "a word of the tables changed behind the log",
    "KVCacheTierFailing": "every answer of the disk is an input/output error",
}
NEEDS_A_FAULT = {
    "overview/Validation failures/0",
    "validation/Failures by layer/0",
    "validation/Failures by reason/0",
    "validation/Failures by pool/0",
    "validation/Greatest difference/0",
    "validation/Least cosine/0",
    "validation/Blocks computed again/0",
    "recovery/Pages kept in crashes/0",
    "recovery/Recovery time/0",
    "tiers/Failures of tiers/0",
    "tiers/Why not/0",
    *(
        f"{board}/annotations/{number}"
        for board in ("overview", "validation", "pools", "recovery", "tiers")
        for number in (0, 1)
    ),
}
"""Queries that have nothing to answer while all is well: failures, drift, crashes, refusals."""


def test_nothing_fires_while_all_is_well(story: Story) -> None:
    assert story.at_rest == set()


def test_every_expression_answers_but_for_those_that_need_a_fault(story: Story) -> None:
    silent = {name for name, count in story.calm.items() if not count}
    assert set(story.calm) == set(expressions())
    assert silent <= NEEDS_A_FAULT


def test_after_the_faults_every_expression_has_answered(story: Story) -> None:
    assert [name for name, count in story.whole.items() if not count] == []


@pytest.mark.parametrize("name", INJECTED)
def test_a_fault_is_told_and_told_to_be_over(story: Story, name: str) -> None:
    assert name in story.fired_s, f"{INJECTED[name]}: the webhook heard nothing"
    assert name in story.cleared_s, f"{INJECTED[name]}: the webhook did not hear that it is over"


def test_the_page_says_which_faults_were_injected() -> None:
    text = (dashboard_pages.DOCS / "alerts.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("- Against a real engine")
    injected, _, _ = rest.partition("The others")
    assert re.findall(r"`(KVCache\w+)`", injected) == sorted(INJECTED)


def test_every_rule_is_healthy(story: Story) -> None:
    assert {rule["name"]: rule["lastError"] for rule in story.rules if "lastError" in rule} == {}
    assert {rule["health"] for rule in story.rules} == {"ok"}
    assert {rule["name"] for rule in story.rules if rule["type"] == "alerting"} == set(ALERTS)


def test_what_is_told_has_words_and_a_runbook(story: Story) -> None:
    for alert in story.told:
        words = alert["annotations"]
        assert "error expanding" not in words["summary"] + words["description"]
        assert "<no value>" not in words["summary"] + words["description"]
        assert words["runbook_url"].endswith(f"/{alert['labels']['alertname']}")
        assert alert["labels"]["severity"] == ALERTS[alert["labels"]["alertname"]].severity
