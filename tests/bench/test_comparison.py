"""What the comparison makes of its results, and what becomes of a peer that is not there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compare import GEOMETRY, works
from peers.environments import Environment
from tables import MEASURES, log_cost, ratio, rows, value

from .conftest import BENCH

WORKLOADS: dict[str, dict[str, object]] = {
    name: {"path": name} for name in ("chat", "conversation", "synthetic", "agentic")
}


def results(**rounds: list[float]) -> dict[str, Any]:
    """Results in which one work was measured: a match of 8k tokens."""
    subjects = {
        key.replace("_", "-"): {
            "rounds": [{"match": {"median_us": one, "p99_us": 2 * one}} for one in found]
        }
        for key, found in rounds.items()
    }
    return {
        "works": {"match 8k": subjects},
        "subjects": dict.fromkeys(subjects),
        "labels": {key: key.upper() for key in subjects},
    }


def test_every_row_is_of_a_work_that_is_measured() -> None:
    measured = works(False, WORKLOADS)
    assert {measure.work for measure in MEASURES} <= set(measured)
    assert all(
        work["geometry"]["budget_bytes"] == GEOMETRY["budget_bytes"] for work in measured.values()
    )


def test_ratios_are_of_medians_and_say_whether_the_goal_is_reached() -> None:
    found = results(kvstrata=[9.0, 10.0, 500.0], vllm=[99.0, 123.0, 1.0], sglang_rust=[19.0])
    match = MEASURES[0]
    assert value(found, match, "kvstrata") == 10.0
    assert ratio(found, match, "vllm") == pytest.approx(9.9)
    (row,) = rows(found)
    assert row[-2:] == ["9.9 (missed: 10)", "1.9 (missed: 2)"]
    found["works"]["match 8k"]["vllm"]["rounds"].append({"match": {"median_us": 130.0}})
    assert rows(found)[0][-2] == "11.1 (reached: 10)"


def test_a_subject_without_rounds_has_no_figure() -> None:
    found = results(kvstrata=[10.0], vllm=[])
    assert value(found, MEASURES[0], "vllm") is None
    assert rows(found)[0][2:] == ["-", "-", "-"]


def test_the_log_costs_the_ratio_of_medians() -> None:
    def one(caller: float, process: float) -> dict[str, float]:
        return {"manager_us_per_request": caller, "process_cpu_s": process}

    subjects = {
        "kvstrata": {"rounds": [one(11, 3), one(12, 4), one(99, 9)]},
        "kvstrata-unlogged": {"rounds": [one(10, 2), one(10, 2), one(1, 1)]},
    }
    assert log_cost({"works": {"serve chat": subjects}}) == {"caller": 1.2, "process": 2.0}
    assert log_cost({"works": {}}) is None


def test_a_peer_that_cannot_be_installed_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment("vllm", "no-such-package==0")

    def fails(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "notes\nERROR: no such package\n")

    monkeypatch.setattr(subprocess, "run", fails)
    assert environment.install(tmp_path) == "could not be installed: ERROR: no such package"


def test_a_peer_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment("vllm", "some==1")
    steps: list[list[str]] = []

    def notes(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        steps.append(command)
        (tmp_path / "vllm").mkdir(exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", notes)
    assert [environment.install(tmp_path), environment.install(tmp_path)] == ["", ""]
    assert [step[-1] for step in steps[1:3]] == ["torch==2.13.0", "some==1"]
    assert len(steps) == 4
    assert Environment("vllm", "some==2").install(tmp_path) == ""
    assert len(steps) == 8


def test_the_page_says_what_the_results_say() -> None:
    checked = subprocess.run(
        [sys.executable, str(BENCH / "report.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
