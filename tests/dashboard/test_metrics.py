"""The catalogue keeps its own rules, and its page says what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kvstrata.core.errors import ConfigError
from kvstrata.dashboard.alerts import JOB
from kvstrata.dashboard.metrics import LABELS, METRICS, PREFIX, SECTIONS, Metric, metric_of_series
from tests.services import need
from tools import dashboard_pages

IDENTIFIES_ONE = {"block", "page", "request", "key", "tenant", "sequence", "lease", "slot"}


def test_names_say_what_they_are() -> None:
    for name, metric in METRICS.items():
        assert name == metric.name
        assert name.startswith(PREFIX)
        assert ":" not in name
        assert (metric.type == "counter") == name.endswith("_total")


def test_no_two_metrics_share_a_series() -> None:
    """A counter's name without its ending is a name of the text format too."""
    series = [name for metric in METRICS.values() for name in metric.series_names]
    assert len(set(series)) == len(series)
    stems = [name.removesuffix("_total") for name in METRICS]
    assert len(set(stems)) == len(stems)


def test_labels_are_closed_and_name_no_single_thing() -> None:
    used = {label for metric in METRICS.values() for label in metric.labels}
    assert used <= set(LABELS)
    assert not used & IDENTIFIES_ONE


def test_what_the_design_lists_is_there() -> None:
    text = """
        pool_pages tier_bytes source_tokens_total lookup_tokens_total hit_tokens_total
        resume_length_tokens recomputed_tokens_total validation_failures_total
        quarantined_pages_total evicted_pages_total eviction_age_seconds reuse_gap_seconds
        admission_decisions_total admission_wait_seconds recoveries_in_flight load_bytes_total
        load_duration_seconds spill_bytes_total spill_duration_seconds log_ring_events
        log_durable_lag_events log_stalls_total log_poisoned log_unlogged
        log_heartbeat_age_seconds follower_lag_events follower_lag_seconds replay_seconds_total
        replayed_events_total drift_total scrubbed_bytes_total topology_violations_total build_info
        layout_info
    """
    wanted = text.split()
    assert {f"{PREFIX}{name}" for name in wanted} <= set(METRICS)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("pages_total", {}),
        ("kvcache_pages", {}),
        ("kvcache:pages_total", {}),
        ("kvcache_pages_count_total", {}),
        ("kvcache_bytes_total", {}),
        ("kvcache_pages_total", {"unit": "sheets"}),
        ("kvcache_pages_total", {"labels": ("page",)}),
        ("kvcache_pages_total", {"help": ""}),
        ("kvcache_pages_total", {"help": "Pages."}),
        ("kvcache_pages_total", {"buckets": (1.0,)}),
        ("kvcache_pages_total", {"source": "hearsay"}),
        ("kvcache_pages", {"type": "histogram"}),
        ("kvcache_pages", {"type": "histogram", "buckets": (2.0, 1.0)}),
        ("kvcache_pages", {"type": "summary"}),
    ],
)
def test_a_metric_that_breaks_a_rule_is_refused(name: str, changed: dict[str, object]) -> None:
    facts: dict[str, object] = {
        "type": "counter",
        "unit": "pages",
        "labels": (),
        "help": "Pages",
        "source": "event log",
    }
    with pytest.raises(ConfigError, match=re.escape(name)):
        Metric(name, **{**facts, **changed})  # type: ignore[arg-type]


def test_a_series_leads_to_its_metric() -> None:
    metric = METRICS["kvcache_load_duration_seconds"]
    assert metric_of_series("kvcache_load_duration_seconds_bucket") is metric
    with pytest.raises(KeyError):
        metric_of_series("kvcache_load_duration_seconds")


def test_the_page_s_configuration_is_one_that_prometheus_takes(tmp_path: Path) -> None:
    promtool = shutil.which("promtool") or need("promtool", "prometheus")
    text = (dashboard_pages.DOCS / "metrics.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert f"job_name: {JOB} " in block
    file = tmp_path / "prometheus.yml"
    file.write_text(block, encoding="utf-8")
    command = [promtool, "check", "config", "--syntax-only", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_lists_every_metric_and_label() -> None:
    text = (dashboard_pages.DOCS / "metrics.md").read_text(encoding="utf-8")
    for _, metrics in SECTIONS:
        for metric in metrics:
            assert f"| `{metric.name}` | {metric.type} |" in text
    for label in LABELS:
        assert f"| `{label}` |" in text
