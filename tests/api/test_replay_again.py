"""A replay that broke off goes on from its log, and ends as if it had not."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvstrata import CacheManager
from kvstrata.api.replay import replaying
from kvstrata.api.traces import read_trace

from .logs import closed_log
from .replays import random_lines, write_trace

if TYPE_CHECKING:
    from .conftest import CommandLine, Outcome

REPOSITORY = Path(__file__).resolve().parents[2]
REQUESTS = 40
DIE_AFTER = """
import os, signal, sys
from kvstrata import CacheManager
from kvstrata.api.cli import app

verb, left = sys.argv.pop(1), int(sys.argv.pop(1))
plain = getattr(CacheManager, verb)

def run(*arguments):
    global left
    found = plain(*arguments)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

setattr(CacheManager, verb, run)
app()
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace.jsonl", *random_lines(11, REQUESTS))


@pytest.fixture
def options(tmp_path: Path, shared_root: Path, trace: Path) -> list[str]:
    """Of the command, with a log directory."""
    sizes = ["--budget", "4GB", "--concurrency", "4", "--json"]
    places = ["--dir", str(tmp_path / "log"), "--shared-memory-root", str(shared_root)]
    return ["replay", str(trace), *sizes, *places]


def killed(options: list[str], verb: str, number: int) -> None:
    """A command that is killed as soon as it has done something so many times."""
    child = subprocess.run(
        [sys.executable, "-c", DIE_AFTER, verb, str(number), *options],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()


def check_log(kvstrata: CommandLine, directory: Path) -> None:
    found = kvstrata("fsck", directory)
    assert found.code == 0, found


def totals(outcome: Outcome) -> tuple[int, int, int]:
    assert outcome.code == 0, outcome
    return tuple(outcome.json[name] for name in ("requests", "refused", "prompt_tokens"))


@pytest.mark.parametrize(
    "kills",
    [
        [("begin", 30)],
        [("finish", 12)],
        [("reserve", 90)],
        [("reserve", 60), ("flush", 1), ("finish", 10), ("begin", 5)],
    ],
    ids=["begin", "finish", "reserve", "four times"],
)
def test_killed_it_goes_on(
    kvstrata: CommandLine,
    tmp_path: Path,
    options: list[str],
    trace: Path,
    kills: list[tuple[str, int]],
) -> None:
    """Also where it is killed as soon as it has recovered."""
    directory = tmp_path / "log"
    for verb, number in kills:
        killed(options, verb, number)
        check_log(kvstrata, directory)
    found = kvstrata(*options)
    tokens = sum(request.prompt_tokens for request in read_trace(trace).requests())
    assert totals(found) == (REQUESTS, 0, tokens)
    assert 0 < found.json["run_requests"] < REQUESTS
    check_log(kvstrata, directory)


def test_through_it_is_only_read(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, options: list[str]
) -> None:
    first = kvstrata(*options)
    files = {path: path.stat() for path in (tmp_path / "log").rglob("*") if path.is_file()}
    again = kvstrata(*options)
    kept = {path: path.stat() for path in (tmp_path / "log").rglob("*") if path.is_file()}
    assert {path: status.st_mtime_ns for path, status in kept.items()} == {
        path: status.st_mtime_ns for path, status in files.items()
    }
    of_this_run = {"run_requests": 0, "manager_cpu_us_per_request": None}
    assert totals(again)[0] == REQUESTS
    assert again.json == {**first.json, **of_this_run}


def interrupting(monkeypatch: pytest.MonkeyPatch, steps: int, *numbers: int) -> None:
    """Send this process signals in its so many-th step."""
    left = steps
    plain = CacheManager.reserve

    def reserve(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            for number in numbers:
                signal.raise_signal(number)
        return plain(*arguments)

    monkeypatch.setattr(CacheManager, "reserve", reserve)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("steps", [1, 90])
def test_interrupted_it_says_how_far_it_came_and_goes_on(
    kvstrata: CommandLine,
    tmp_path: Path,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    steps: int,
) -> None:
    undisturbed = [*options[:-4], *options[-2:]]
    expected = totals(kvstrata(*undisturbed))
    handler = signal.getsignal(number)
    interrupting(monkeypatch, steps, number)
    found = kvstrata(*options)
    assert found.code == 128 + number
    assert "interrupted; the same command with --dir" in found.err
    assert found.err.count("\n") == 1
    assert found.json["requests"] == found.json["run_requests"] < REQUESTS
    assert signal.getsignal(number) == handler
    check_log(kvstrata, tmp_path / "log")
    again = kvstrata(*options)
    assert totals(again) == expected
    assert again.json["run_requests"] == REQUESTS - found.json["requests"]


def test_a_second_interrupt_ends_it_where_it_is(
    kvstrata: CommandLine, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupting(monkeypatch, 90, signal.SIGINT, signal.SIGINT)
    found = kvstrata(*options)
    assert (found.code, found.out, found.err) == (130, "", "kvstrata: interrupted\n")
    assert totals(kvstrata(*options))[0] == REQUESTS


@pytest.mark.parametrize("calls", [1, 90, "the last"])
def test_without_its_log_it_does_not_go_on(
    kvstrata: CommandLine,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    calls: int | str,
) -> None:
    """A full disk ends it, where the manager alone would serve on."""
    verb = "close" if calls == "the last" else "reserve"
    plain, left = getattr(CacheManager, verb), calls if isinstance(calls, int) else 1

    def run(self: CacheManager, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            assert self.log is not None
            self.log.end_epoch("the disk is full")
        return plain(self, *arguments)

    monkeypatch.setattr(CacheManager, verb, run)
    told = kvstrata.refuses(*options)
    assert "found an ended epoch (the disk is full); mend the device" in told
    assert totals(kvstrata(*options))[0] == REQUESTS


@pytest.mark.parametrize("ending", ["whole", "interrupted", "killed twice", "refused", "failed"])
def test_without_dir_nothing_is_left(
    kvstrata: CommandLine,
    tmp_path: Path,
    shared_root: Path,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    seen: list[Path] = []

    def look(*arguments: Any) -> Any:
        seen.extend([*shared_root.iterdir(), *folder.iterdir()])
        return plain(*arguments)

    plain: Callable[..., Any] = replaying.Replay.run
    monkeypatch.setattr(replaying.Replay, "run", look)
    budget = "1MB" if ending == "refused" else "4GB"
    if ending in ("interrupted", "killed twice"):
        interrupting(monkeypatch, 50, *[signal.SIGINT] * (1 if ending == "interrupted" else 2))
    if ending == "failed":
        monkeypatch.setattr(CacheManager, "match", lambda *arguments: 1 / 0)
    root = ("--shared-memory-root", shared_root)
    arguments = ("replay", trace, "--budget", budget, "--concurrency", "4", *root)
    if ending == "failed":
        with pytest.raises(ZeroDivisionError):
            kvstrata(*arguments)
    else:
        code = {"whole": 0, "refused": 2}.get(ending, 130)
        assert kvstrata(*arguments).code == code
    assert len(seen) == (0 if ending == "refused" else 2)
    assert not list(shared_root.iterdir())
    assert not list(folder.iterdir())


PRO = "deepseek-v4-pro"
OTHERS = {
    "concurrency": (["--concurrency", "5"], "--concurrency 5, found one with 4", False),
    "budget": (["--budget", "5GB"], "the same --budget, found one with another", True),
    "layout": (["--layout", PRO, "--budget", "10GB"], f"--layout {PRO}, found one of deep", False),
}


@pytest.mark.parametrize(("changed", "said", "was_killed"), OTHERS.values(), ids=OTHERS.keys())
def test_other_options_are_refused(
    kvstrata: CommandLine,
    tmp_path: Path,
    options: list[str],
    changed: list[str],
    said: str,
    was_killed: bool,
) -> None:
    if was_killed:
        killed(options, "reserve", 60)
    else:
        kvstrata(*options)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    told = kvstrata.refuses(*options, *changed)
    assert f"{tmp_path / 'log'}: expected the log of a replay with {said}" in told
    assert "name another --dir" in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert totals(kvstrata(*options))[0] == REQUESTS


@pytest.mark.parametrize("longer", [False, True])
def test_another_trace_is_refused(
    kvstrata: CommandLine, tmp_path: Path, options: list[str], trace: Path, longer: bool
) -> None:
    expected = totals(kvstrata(*options))
    lines = trace.read_bytes()
    other = b'{"tokens": [1]}\n' if not longer else b'{"tokens": [' + b"1, " * 2000 + b"1]}\n"
    trace.write_bytes(lines + other)
    before = {path: path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file()}
    assert "name another --dir, or remove this one" in kvstrata.refuses(*options)
    after = {path: path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file()}
    assert after == before
    trace.write_bytes(lines)
    assert totals(kvstrata(*options)) == expected


def test_the_log_of_an_engine_is_left_alone(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, options: list[str]
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert "--layout deepseek-v4-flash, found one of attention" in kvstrata.refuses(*options)
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
