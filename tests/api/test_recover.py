from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .logs import KEPT_PAGES, PROMPT, closed_log, crashed_log, open_cache, run_prompt

if TYPE_CHECKING:
    from .conftest import CommandLine, Outcome

DIE_IN_A_STEP = """
import os, signal, sys
from pathlib import Path
from tests.api.logs import open_cache, run_prompt
cache = open_cache(Path(sys.argv[1]), Path(sys.argv[2]))
run_prompt(cache).finish()
sequence = run_prompt(cache)
cache.reserve([sequence.id], [20])
os.kill(os.getpid(), signal.SIGKILL)
"""


def recover(kvstrata: CommandLine, directory: Path, root: Path, *options: str) -> Outcome:
    return kvstrata("recover", directory, "--shared-memory-root", root, *options)


def snapshot_of(*folders: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


def without_time(found: dict[str, Any]) -> dict[str, Any]:
    """What a rehearsal and the recovery must agree on."""
    return {k: v for k, v in found.items() if k not in {"seconds", "dry_run"}}


def test_a_killed_engine_is_recovered_as_rehearsed(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = tmp_path / "log"
    repository = Path(__file__).resolve().parents[2]
    killed = subprocess.run(
        [sys.executable, "-c", DIE_IN_A_STEP, str(directory), str(shared_root)],
        env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = snapshot_of(directory, shared_root)
    rehearsed = recover(kvstrata, directory, shared_root, "--dry-run", "--json")
    assert rehearsed.code == 0
    assert snapshot_of(directory, shared_root) == before

    found = recover(kvstrata, directory, shared_root, "--json")
    assert found.code == 0
    assert without_time(found.json) == without_time(rehearsed.json)
    assert found.json["events_replayed"] > 0
    assert found.json["pages"]["kept"] == KEPT_PAGES
    assert found.json["pages"]["lost"]["crashed"] > 0
    assert found.json["pages"]["lost"]["checksum_mismatch"] == 0
    assert found.json["sequences_ended"] == 1
    assert found.json["log"]["clean"] is False

    with open_cache(directory, shared_root) as cache:
        assert cache.match(PROMPT).resume_at == 96
        cache.check_integrity()


def test_a_closed_log_has_nothing_to_lose(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    outcome = recover(kvstrata, directory, shared_root)
    assert outcome.code == 0
    assert "closed cleanly" in outcome.out
    assert outcome.out.endswith("recovered\n")
    found = recover(kvstrata, directory, shared_root, "--json").json
    assert found["pages"]["kept"] == KEPT_PAGES
    assert set(found["pages"]["lost"].values()) == {0}


def test_a_damaged_page_is_named_and_the_exit_code_says_so(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = crashed_log(tmp_path / "log", shared_root)
    (pool,) = shared_root.glob("kvstrata-*/pools/full.pool")
    content = bytearray(pool.read_bytes())
    for offset in range(0, len(content), 64):
        content[offset] ^= 1
    pool.write_bytes(content)
    for options in (["--dry-run"], []):
        found = recover(kvstrata, directory, shared_root, "--json", *options)
        assert found.code == 1
        assert found.json["pages"]["lost"]["checksum_mismatch"] > 0


def test_without_its_memory_the_pages_are_lost(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = crashed_log(tmp_path / "log", shared_root)
    for pool in shared_root.glob("kvstrata-*/pools/*.pool"):
        pool.unlink()
        pool.with_suffix(".other").touch()
    rehearsed = recover(kvstrata, directory, shared_root, "--dry-run", "--json").json
    assert rehearsed["pages"]["kept"] == 0
    assert rehearsed["pages"]["lost"]["bytes_untrusted"] == KEPT_PAGES
    found = recover(kvstrata, directory, shared_root, "--json").json
    assert found["pages"] == rehearsed["pages"]


def test_a_rehearsal_works_beside_an_engine_and_recovery_does_not(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = tmp_path / "log"
    with open_cache(directory, shared_root) as cache:
        sequence = run_prompt(cache)
        found = recover(kvstrata, directory, shared_root, "--dry-run", "--json")
        assert found.code == 0
        assert found.json["sequences_ended"] == 1
        assert sequence.position == len(PROMPT.tokens)
        refusal = kvstrata.refuses("recover", directory, "--shared-memory-root", shared_root)
        assert "expected to be the only writer" in refusal
        sequence.finish()
        cache.check_integrity()


def test_corruption_is_one_line_and_exit_code_1(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    for snapshot in (directory / "snapshots").iterdir():
        snapshot.unlink()
    segment = sorted((directory / "segments").glob("*.seg"))[0]
    content = bytearray(segment.read_bytes())
    content[4096 + 64 + 8] ^= 1
    segment.write_bytes(content)
    before = snapshot_of(directory)
    for options in (["--dry-run"], []):
        outcome = recover(kvstrata, directory, shared_root, *options)
        assert outcome.code == 1
        assert outcome.err.startswith("kvstrata: ")
        assert outcome.err.count("\n") == 1
        assert str(segment) in outcome.err
    assert snapshot_of(directory) | before == snapshot_of(directory)
