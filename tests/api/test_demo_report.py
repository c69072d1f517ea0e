"""The demo's report: anything that is not as it must be makes it fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvstrata.api.commands import demo
from kvstrata.api.demo.report import (
    FAULT_KINDS,
    ControlFault,
    CrashResult,
    DiskResult,
    FaultResult,
    NegativeControl,
    Report,
    RequestResult,
)
from kvstrata.api.demo.screen import Screen

if TYPE_CHECKING:
    from .conftest import CommandLine

REQUEST = RequestResult("json", 2, 900, 624, 276, 10.0, 20.0, True)
CRASH = CrashResult(99, 0.01, 50, 11, {"crashed": 11}, 1, 1, 624, True, [REQUEST])
FAULTS = [
    FaultResult(kind, "group", 7, "bytes", "CHECKSUM_MISMATCH", True, 624, 608, True)
    for kind in FAULT_KINDS
]
CONTROL = NegativeControl(
    "never", False, True, [ControlFault(kind, "group", 7, False) for kind in FAULT_KINDS]
)
RECOMPUTED = replace(REQUEST, resumed_at=608)
DISK = DiskResult(90, 70, 40, REQUEST, "a/b.block", "CHECKSUM_MISMATCH", True, 624, RECOMPUTED)
GOOD = Report(
    directory=Path("log"),
    shared_memory_root=Path("shm"),
    seed=0,
    requests=[REQUEST],
    crash=CRASH,
    faults=FAULTS,
    disk=DISK,
    negative_control=CONTROL,
    next_commands=["kvstrata fsck log"],
)
BAD_REQUEST = replace(REQUEST, identical=False)
BAD = {
    "request": replace(GOOD, requests=[REQUEST, BAD_REQUEST]),
    "no reuse": replace(GOOD, requests=[replace(REQUEST, resumed_at=0)]),
    "request after the crash": replace(
        GOOD, crash=replace(CRASH, identical=False, requests=[BAD_REQUEST])
    ),
    "crash": replace(GOOD, crash=replace(CRASH, identical=False)),
    "no hit after the crash": replace(GOOD, crash=replace(CRASH, hit_tokens_after=0)),
    "no step in flight": replace(GOOD, crash=replace(CRASH, steps_in_flight=0)),
    "not caught": replace(GOOD, faults=[replace(FAULTS[0], caught=False), *FAULTS[1:]]),
    "not recomputed": replace(GOOD, faults=[*FAULTS[:3], replace(FAULTS[3], identical=False)]),
    "a kind left out": replace(GOOD, faults=FAULTS[:3]),
    "no pages lost": replace(GOOD, disk=replace(DISK, pages_lost=0)),
    "nothing read": replace(GOOD, disk=replace(DISK, read_objects=0)),
    "nothing resumed": replace(GOOD, disk=replace(DISK, resumed=replace(REQUEST, resumed_at=0))),
    "resumed wrongly": replace(GOOD, disk=replace(DISK, resumed=BAD_REQUEST)),
    "object not caught": replace(GOOD, disk=replace(DISK, caught=False)),
    "object not recomputed": replace(GOOD, disk=replace(DISK, recomputed=REQUEST)),
    "recomputed wrongly": replace(
        GOOD, disk=replace(DISK, recomputed=replace(RECOMPUTED, identical=False))
    ),
    "control identical": replace(GOOD, negative_control=replace(CONTROL, identical=True)),
    "control without faults": replace(GOOD, negative_control=replace(CONTROL, faults=[])),
    "control broken": replace(GOOD, negative_control=replace(CONTROL, unharmed_identical=False)),
}


@pytest.mark.parametrize("name", BAD)
def test_anything_wrong_is_exit_code_1(
    kvstrata: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr(demo, "_play", lambda *_: BAD[name])
    outcome = kvstrata("demo", "--json", "--dir", tmp_path)
    assert outcome.code == 1
    assert outcome.json["ok"] is False
    assert len(outcome.json["failures"]) == 1


def test_nothing_wrong_is_exit_code_0(
    kvstrata: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "_play", lambda *_: GOOD)
    outcome = kvstrata("demo", "--json", "--dir", tmp_path)
    assert outcome.code == 0
    assert outcome.json["ok"] is True
    assert outcome.json["failures"] == []


def test_people_see_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(quiet=False)
    screen.requests([REQUEST, BAD_REQUEST])
    screen.crash(CRASH)
    screen.faults(FAULTS)
    screen.disk(DISK)
    screen.control(CONTROL)
    screen.end(BAD["not caught"])
    out = capsys.readouterr().out
    for expected in (
        "resumed at",
        "no",
        "lost, crashed",
        "CHECKSUM_MISMATCH",
        "b.block",
        "kvstrata fsck log",
    ):
        assert expected in out
    assert "COMPRESSED, group page 7: expected caught" in out
    assert "Not as it must be" in out
