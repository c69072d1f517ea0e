"""The rules are sound, fire when they must, and are quiet when they must not fire."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstrata.core.errors import ConfigError
from kvstrata.dashboard.alerts import (
    ALERTS,
    RECORDING_RULES,
    TimeScale,
    alerting_rules,
    recording_rules,
)
from tests.services import need

from .rule_cases import CASES, Case


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    return found if found is not None else need("promtool", "prometheus")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both files of rules."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "recording.yml").write_text(recording_rules(), encoding="utf-8")
    (folder / "alerting.yml").write_text(alerting_rules(), encoding="utf-8")
    return folder


def run(*command: str | Path) -> str:
    """What a command prints; a failure fails the test."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_rules(promtool: str, rules: Path) -> None:
    said = run(promtool, "check", "rules", rules / "recording.yml", rules / "alerting.yml")
    assert f"{len(RECORDING_RULES)} rules found" in said
    assert f"{len(ALERTS)} rules found" in said


def test_every_alert_has_its_cases() -> None:
    assert set(CASES) == set(ALERTS)


def firing(name: str) -> str:
    return f'ALERTS{{alertname="{name}",alertstate="firing"}}'


def promtool_tests(name: str, case: Case) -> list[dict[str, Any]]:
    """Both histories of an alert, as promtool's unit tests."""

    def inputs(history: dict[str, str]) -> list[dict[str, str]]:
        return [{"series": series, "values": values} for series, values in history.items()]

    return [
        {
            "name": f"{name} fires",
            "interval": "1m",
            "input_series": inputs(case.fires),
            "promql_expr_test": [
                {
                    "expr": f"count({firing(name)})",
                    "eval_time": case.at,
                    "exp_samples": [{"labels": "{}", "value": case.count}],
                }
            ],
        },
        {
            "name": f"{name} is quiet",
            "interval": "1m",
            "input_series": inputs(case.quiet),
            "promql_expr_test": [
                {
                    "expr": firing(name),
                    "eval_time": case.quiet_at or case.at,
                    "exp_samples": [],
                }
            ],
        },
    ]


@pytest.mark.slow
def test_each_alert_fires_and_is_quiet(promtool: str, rules: Path) -> None:
    tests = [test for name, case in CASES.items() for test in promtool_tests(name, case)]
    document = {
        "rule_files": ["recording.yml", "alerting.yml"],
        "evaluation_interval": "1m",
        "tests": tests,
    }
    (rules / "tests.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    assert "SUCCESS" in run(promtool, "test", "rules", rules / "tests.yml")


@pytest.mark.parametrize("name", ["KVCacheLogPoisoned", "KVCachePoolExhausted"])
def test_swapped_histories_fail(promtool: str, rules: Path, name: str) -> None:
    """So the test above can fail."""
    case = CASES[name]
    swapped = Case(case.quiet, case.fires, case.at)
    document = {
        "rule_files": ["recording.yml", "alerting.yml"],
        "evaluation_interval": "1m",
        "tests": promtool_tests(name, swapped),
    }
    path = rules / f"{name}.yml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, check=False)
    assert done.returncode != 0


def test_a_time_scale_shortens_every_duration(promtool: str, tmp_path: Path) -> None:
    scale = TimeScale(1 / 60, least_window_s=4, evaluation="1s")
    file = tmp_path / "alerting.yml"
    file.write_text(alerting_rules(scale), encoding="utf-8")
    run(promtool, "check", "rules", file)
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    found = {rule["alert"]: rule for group in groups for rule in group["rules"]}
    assert {group["interval"] for group in groups} == {"1s"}
    assert found["KVCachePoolExhausted"]["for"] == "5000ms"
    assert "[5000ms]" in found["KVCacheTierFailing"]["expr"]
    assert "[1440000ms] offset 60000ms" in found["KVCacheHitRateCollapsed"]["expr"]
    assert TimeScale(1 / 600, least_window_s=4).expression("rate(a[5m])") == "rate(a[4000ms])"


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5])
def test_a_time_scale_only_shortens(factor: float) -> None:
    with pytest.raises(ConfigError, match="expected a factor"):
        TimeScale(factor)
