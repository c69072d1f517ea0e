"""Rules and panels name only what the catalogue has."""

from __future__ import annotations

import pytest

from kvstrata.dashboard.alerts import ALERTS, GROUPS, RECORDING_RULES
from kvstrata.dashboard.grafana import dashboards
from kvstrata.dashboard.metrics import METRICS

from .panels import queries_of
from .promql import OF_PROMETHEUS, RECORDED, faults, selectors

EXPRESSIONS = {
    **{name: alert.expression for name, alert in ALERTS.items()},
    **{rule.name: rule.expression for rule in RECORDING_RULES},
    **{
        f"{board}/{title}/{number}": expression
        for board, built in dashboards().items()
        for title, number, expression in queries_of(built)
    },
}


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_an_expression_names_only_the_catalogue(where: str) -> None:
    assert faults(EXPRESSIONS[where]) == []


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("rate(kvcache_no_such_total[5m])", "no metric kvcache_no_such_total"),
        ('kvcache_pool_pages{state="melted"}', "state is never 'melted'"),
        ('kvcache_pool_pages{key="a"}', "kvcache_pool_pages has no label key"),
        ('kvcache_load_duration_seconds_bucket{le="3"}', "has no bucket 3"),
        ("kvcache_load_duration_seconds", "no metric kvcache_load_duration_seconds"),
    ],
)
def test_an_expression_that_names_something_else_is_found(expression: str, fault: str) -> None:
    (found,) = faults(expression)
    assert fault in found


def test_every_metric_is_looked_at() -> None:
    """A metric that no rule and no panel shows is one too many, but for these."""
    for_people = {
        "kvcache_engine_incarnation",
        "kvcache_engine_starts_total",
        "kvcache_exporter_scrape_seconds",
        "kvcache_dirtied_pages_total",
        "kvcache_quarantined_pages_total",
        "kvcache_request_hits_total",
        "kvcache_resume_length_tokens",
        "kvcache_hit_length_tokens",
        "kvcache_recomputed_tokens_total",
        "kvcache_prompt_tokens_total",
        "kvcache_completion_anomalies_total",
        "kvcache_recovering_bytes",
        "kvcache_load_objects_total",
        "kvcache_spill_objects_total",
        "kvcache_scrubbed_pages_total",
        "kvcache_scrub_bad_pages_total",
        "kvcache_follower_last_event_timestamp_seconds",
        "kvcache_follower_restarts_total",
        "kvcache_follower_apply_seconds_total",
    }
    names = {selector.name for text in EXPRESSIONS.values() for selector in selectors(text)}
    shown = {
        metric.name
        for metric in METRICS.values()
        if any(series in names for series in metric.series_names)
    }
    assert set(METRICS) - shown <= for_people
    assert names <= {
        *OF_PROMETHEUS,
        *RECORDED,
        *(series for metric in METRICS.values() for series in metric.series_names),
    }


def test_recorded_series_are_used() -> None:
    names = {selector.name for text in EXPRESSIONS.values() for selector in selectors(text)}
    assert set(RECORDED) - names <= {"instance:kvcache_requests:rate5m"}


def test_every_alert_is_in_one_group() -> None:
    assert sorted(alert.name for group in GROUPS.values() for alert in group) == sorted(ALERTS)
