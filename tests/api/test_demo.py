"""The demo: played once as a user would."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvstrata import ConfigError, InvariantViolation
from kvstrata.api.demo.messages import Open
from kvstrata.api.demo.process import EngineProcess
from kvstrata.api.demo.report import FAULT_KINDS
from kvstrata.api.demo.texts import docstring, licence, pieces
from tests.processes import KVSTRATA, children_of, heed_interrupts

if TYPE_CHECKING:
    from .conftest import CommandLine

COMMAND = [*KVSTRATA, "demo"]
STARTUP_S = 120


@dataclass(frozen=True)
class Played:
    code: int
    report: dict[str, Any]
    error: str


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A log directory, and a folder in shared memory that is removed afterwards."""
    root = Path("/dev/shm") / f"kvstrata-demo-test-{os.getpid()}"
    root.mkdir()
    yield tmp_path_factory.mktemp("demo") / "log", root
    subprocess.run(["rm", "-r", str(root)], check=True)


@pytest.fixture(scope="module")
def played(shared: tuple[Path, Path]) -> Played:
    directory, root = shared
    where = ["--dir", str(directory), "--shared-memory-root", str(root)]
    found = subprocess.run(
        [*COMMAND, "--json", *where], capture_output=True, text=True, check=False
    )
    return Played(found.returncode, json.loads(found.stdout or "null"), found.stderr)


@pytest.mark.slow
def test_all_is_as_it_must_be(played: Played, shared: tuple[Path, Path]) -> None:
    assert played.error == ""
    assert played.report["failures"] == []
    assert played.report["ok"] is True
    assert played.code == 0
    assert played.report["directory"] == str(shared[0])


@pytest.mark.slow
def test_requests_reuse_and_are_identical(played: Played) -> None:
    first, *others = played.report["requests"]
    assert len(others) >= 8
    assert first["resumed_at"] == 0
    for request in (first, *others):
        assert request["identical"] is True
        assert 300 <= request["prompt_tokens"] <= 1600
        assert request["computed_tokens"] == request["prompt_tokens"] - request["resumed_at"]
        assert 0 < request["first_token_ms"] <= request["ms"]
    for request in others:
        assert request["resumed_at"] >= first["prompt_tokens"] - 16
        if request["turn"] > 1:
            assert request["resumed_at"] > request["prompt_tokens"] / 2


@pytest.mark.slow
def test_a_crash_keeps_what_was_sealed(played: Played) -> None:
    crash = played.report["crash"]
    assert crash["events_replayed"] > 0
    assert crash["seconds"] > 0
    assert crash["pages_kept"] > 0
    assert crash["pages_lost"] == sum(crash["pages_lost_by_fate"].values())
    assert crash["pages_lost_by_fate"]["crashed"] > 0
    assert crash["pages_lost_by_fate"]["checksum_mismatch"] == 0
    assert crash["sequences_ended"] == crash["steps_in_flight"] == 1
    assert crash["hit_tokens_after"] == sum(r["resumed_at"] for r in crash["requests"])
    assert crash["hit_tokens_after"] > 0
    assert crash["identical"] is True
    cut_off = crash["requests"][0]
    assert cut_off["computed_tokens"] < 16, "the prompt's own checkpoint survived"


@pytest.mark.slow
def test_every_kind_of_page_is_checked(played: Played) -> None:
    faults = played.report["faults"]
    assert tuple(fault["kind"] for fault in faults) == FAULT_KINDS
    for fault in faults:
        assert fault["layer"] == "bytes"
        assert fault["reason"] == "CHECKSUM_MISMATCH"
        assert fault["caught"] is True
        assert fault["identical"] is True
        assert fault["page"] > 0
        assert 0 <= fault["resumed_at"] < fault["would_resume_at"]


@pytest.mark.slow
def test_what_is_on_disk_is_resumed_from_and_checked(
    played: Played, shared: tuple[Path, Path]
) -> None:
    disk = played.report["disk"]
    resumed, recomputed = disk["resumed"], disk["recomputed"]
    assert disk["pages_lost"] > 0
    assert disk["stored_objects"] > disk["read_objects"] >= resumed["resumed_at"] // 16
    assert resumed["resumed_at"] > resumed["prompt_tokens"] / 2
    assert disk["reason"] == "CHECKSUM_MISMATCH"
    assert disk["caught"] is True
    assert 0 < recomputed["resumed_at"] < disk["would_resume_at"]
    assert resumed["identical"] is recomputed["identical"] is True
    (aside,) = (shared[0] / "disk" / "quarantine").iterdir()
    assert aside.name.endswith(disk["object"].replace("/", "."))


@pytest.mark.slow
def test_without_checks_the_comparison_fails(played: Played) -> None:
    control = played.report["negative_control"]
    assert control["verify_hits"] == "never"
    assert control["identical"] is False
    assert control["unharmed_identical"] is True
    assert [fault["identical"] for fault in control["faults"]] == [False] * len(FAULT_KINDS)


@pytest.mark.slow
def test_what_it_names_to_try_next_works(played: Played, kvstrata: CommandLine) -> None:
    commands = [shlex.split(command) for command in played.report["next_commands"]]
    tried = [arguments for program, *arguments in commands if program == "kvstrata"]
    assert [name for name, *_ in tried] == ["events", "events", "tiers", "recover", "fsck"]
    for arguments in tried:
        outcome = kvstrata(*arguments)
        assert outcome.code == 0, outcome
        assert outcome.out
    failed = kvstrata(*tried[0], "--json").lines
    assert len(failed) == 2 * len(FAULT_KINDS)
    assert len(kvstrata(*tried[1], "--json").lines) == 1


@pytest.mark.slow
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    place = ["--dir", str(tmp_path / "log"), "--shared-memory-root", str(tmp_path)]
    process = subprocess.Popen(
        [*COMMAND, *place],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=heed_interrupts,
    )
    try:
        wait_until((tmp_path / "log" / "format.json").exists)
        children = children_of(process.pid)
        assert children
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=STARTUP_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == f"kvstrata: interrupted; the log lies in {tmp_path / 'log'}\n"
    for child in children:
        assert not Path(f"/proc/{child}").exists()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STARTUP_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_used_directory_is_refused(kvstrata: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        assert "expected an empty or absent directory" in kvstrata.refuses("demo", "--dir", place)


@pytest.mark.parametrize("package", ["transformers", "sqlalchemy"])
def test_without_the_extra_it_says_what_to_install(package: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; " + COMMAND[2]
    found = subprocess.run(
        [sys.executable, "-c", code, "demo"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert found.stdout == ""
    assert f"found no {package}; pip install 'kvstrata[engine,tiers]'" in found.stderr
    assert found.stderr.count("\n") == 1


def test_an_engine_that_dies_unasked_is_an_error(tmp_path: Path) -> None:
    with EngineProcess() as engine:
        assert engine.kill() == -signal.SIGKILL
        with pytest.raises(InvariantViolation, match="exit code -9"):
            engine.open(Open(0, tmp_path, tmp_path))


def test_what_the_engine_refuses_is_said_here(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "file").touch()
    with (
        EngineProcess() as engine,
        pytest.raises(ConfigError, match="expected an empty directory"),
    ):
        engine.open(Open(0, tmp_path / "log", tmp_path))


def test_texts_come_with_python() -> None:
    assert "Python" in licence()
    assert "heap" in docstring("heapq")
    assert docstring("no_such_module") == ""


def test_pieces_are_whole_lines() -> None:
    text = "one\ntwo\nthree\nfour\nfive"
    assert pieces(text, 7) == ["one\ntwo", "three\nfour"]
