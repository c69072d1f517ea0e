"""A load played as a user would: with faults, ended by its time and by Ctrl-C, gone on with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvstrata.eventstore.history.analytics import run_query
from tests.processes import KVSTRATA, children_of, free_port, heed_interrupts

from ..conftest import CommandLine

COMMAND = [*KVSTRATA, "demo", "--load"]
START_S = 240
HAPPENS = ("requests", "resumed_tokens", "stored", "loads", "evicted", "deferred", "failures")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Where the log goes, and a corner of shared memory."""
    shared = Path("/dev/shm") / f"kvstrata-load-test-{os.getpid()}"
    shared.mkdir()
    yield tmp_path_factory.mktemp("load") / "log", shared
    subprocess.run(["rm", "-r", str(shared)], check=True)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def played(place: tuple[Path, Path]) -> list[dict[str, Any]]:
    """What a load says that is ended when it has shown everything."""
    directory, shared = place
    options = ["--dir", str(directory), "--shared-memory-root", str(shared), "--json"]
    options += ["--faults", "--fault-every", "2", "--rate", "8", "--serve", "--port"]
    options += [str(free_port())]
    process = subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    found: list[dict[str, Any]] = []
    end_s = time.monotonic() + START_S
    try:
        for line in process.stdout:
            found.append(json.loads(line))
            if has_shown_all(found) or time.monotonic() > end_s:
                break
        found.append(asked(found, end_s))
        process.send_signal(signal.SIGTERM)
        rest, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, error) == (0, "")
    return found + lines_of(rest)


def has_shown_all(lines: list[dict[str, Any]]) -> bool:
    """Whether it was killed and came back, and has done all that a load is for."""
    counts = lines[-1].get("counts", {})
    return bool(named(lines, "recovered")) and all(counts.get(name) for name in HAPPENS)


def asked(lines: list[dict[str, Any]], end_s: float) -> dict[str, Any]:
    """What the API beside the load says, as soon as it is ready."""
    (server,) = named(lines, "server")
    with httpx.Client(base_url=server["url"], timeout=20) as client:
        while time.monotonic() < end_s:
            try:
                if client.get("/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                pass  # it is not there yet
            time.sleep(0.2)
        hits = client.get("/v1/queries/hits", params={"bucket_s": 10_000_000})
        return {
            "event": "asked",
            "pools": client.get("/v1/pools").status_code,
            "metrics": client.get("/metrics").text,
            "hits": hits.json(),
            "url": server["url"],
        }


def named(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


@pytest.mark.slow
def test_it_answers_reuses_evicts_loads_and_waits(played: list[dict[str, Any]]) -> None:
    assert played[-1]["event"] == "ended"
    counts = played[-1]["counts"]
    assert counts["resumed_tokens"] < counts["prompt_tokens"]
    assert all(counts[name] for name in HAPPENS), counts
    earlier = [line["counts"]["requests"] for line in named(played, "status")]
    assert earlier == sorted(earlier)


@pytest.mark.slow
def test_it_is_damaged_killed_and_recovers(played: list[dict[str, Any]]) -> None:
    told = [line["text"] for line in named(played, "fault")]
    assert any("page" in text for text in told)
    assert any("object" in text for text in told)
    recovered = named(played, "recovered")
    assert recovered
    assert all(line["pages_kept"] > 0 for line in recovered)
    assert played[-1]["counts"]["failures"] > 0
    assert named(played, "died") == []


@pytest.mark.slow
def test_the_api_beside_it_answers_and_ends_with_it(played: list[dict[str, Any]]) -> None:
    (told,) = named(played, "asked")
    assert told["pools"] == 200
    assert told["hits"]["rows"][0][1] > 0, "requests began"
    assert "kvcache_requests_total" in told["metrics"]
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{told['url']}/healthz", timeout=5)


@pytest.mark.slow
def test_its_log_is_whole_and_can_be_asked(
    played: list[dict[str, Any]], place: tuple[Path, Path], kvstrata: CommandLine
) -> None:
    directory, shared = place
    assert played
    assert kvstrata("fsck", directory).code == 0
    recoveries = run_query(directory, "recoveries", shared_memory_root=shared).records()
    # The last one may have been under way when the load was ended.
    assert len(recoveries) - len(named(played, "recovered")) in (0, 1)
    hits = run_query(directory, "hits", {"bucket_s": 10_000_000}, shared_memory_root=shared)
    assert sum(row["requests"] for row in hits.records()) >= played[-1]["counts"]["requests"]
    assert run_query(directory, "failures", shared_memory_root=shared).rows


@pytest.mark.slow
def test_it_goes_on_where_it_was_and_ctrl_c_leaves_no_process(
    played: list[dict[str, Any]], place: tuple[Path, Path]
) -> None:
    directory, shared = place
    assert played
    options = ["--dir", str(directory), "--shared-memory-root", str(shared)]
    process = subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=heed_interrupts,
    )
    try:
        assert process.stdout
        for line in process.stdout:
            if re.search(r" [1-9]\d* answered", line):
                break
        children = children_of(process.pid)
        assert children
        os.killpg(process.pid, signal.SIGINT)
        rest, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, error) == (0, "")
    assert rest.endswith(f"requests answered; the log lies in {directory}\n")
    for child in children:
        assert not Path(f"/proc/{child}").exists()
    starts = run_query(directory, "activity", shared_memory_root=shared).records()
    closed = sum(row["events"] for row in starts if row["type"] == "MANAGER_CLOSED")
    assert closed == 2


@pytest.mark.slow
@pytest.mark.parametrize("event", ["status", "engine"])
def test_without_a_directory_nothing_is_left(
    event: str, tmp_path: Path, place: tuple[Path, Path]
) -> None:
    """Whether it ends while the engine starts, or later."""
    before = sorted(place[1].iterdir())
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    # What torch compiles it keeps for every program of the user; it is not the load's to remove.
    kept = {"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    process = subprocess.Popen(
        [*COMMAND, "--shared-memory-root", str(place[1]), "--json"],
        env={**os.environ, **kept},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        for line in process.stdout:
            if json.loads(line)["event"] == event:
                break
        assert list(temporary.iterdir())
        process.send_signal(signal.SIGTERM)
        rest, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, error) == (0, "")
    assert lines_of(rest)[-1]["event"] == "ended"
    assert list(temporary.iterdir()) == []
    assert sorted(place[1].iterdir()) == before


def test_what_makes_no_sense_is_refused(kvstrata: CommandLine, tmp_path: Path) -> None:
    for option in (["--serve"], ["--faults"], ["--duration", "3"]):
        assert f"{option[0]}: expected it with --load" in kvstrata.refuses("demo", *option)
    (tmp_path / "file").touch()
    found = kvstrata.refuses("demo", "--load", "--dir", tmp_path)
    assert "expected an empty or absent directory" in found
    assert "--rate: expected more than 0" in kvstrata.refuses("demo", "--load", "--rate", 0)


def test_a_refused_load_makes_nothing(
    kvstrata: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kvstrata.refuses("demo", "--load", "--rate", 0)
    assert list(tmp_path.iterdir()) == []
