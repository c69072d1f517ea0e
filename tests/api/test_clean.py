from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .logs import closed_log, crashed_log, open_cache

if TYPE_CHECKING:
    from .conftest import CommandLine


def clean(kvstrata: CommandLine, root: Path, *options: str) -> dict[str, Any]:
    outcome = kvstrata("clean", "--shared-memory-root", root, "--json", *options)
    assert outcome.code == 0
    found: dict[str, Any] = outcome.json
    return found


def reasons(orphans: list[dict[str, Any]]) -> list[str]:
    return sorted(orphan["reason"] for orphan in orphans)


def test_only_memory_of_gone_directories_is_removed_unasked(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    shutil.rmtree(closed_log(tmp_path / "gone", shared_root))
    closed_log(tmp_path / "closed", shared_root)
    crashed_log(tmp_path / "crashed", shared_root)
    with open_cache(tmp_path / "alive", shared_root):
        planned = clean(kvstrata, shared_root, "--dry-run")
        assert reasons(planned["chosen"]) == ["gone"]
        assert planned["removed"] == []
        assert len(list(shared_root.iterdir())) == 4

        done = clean(kvstrata, shared_root)
        assert reasons(done["removed"]) == ["gone"]
        assert reasons(done["kept"]) == ["closed", "crashed"]
        assert done["removed"][0]["num_bytes"] > 0
        assert len(list(shared_root.iterdir())) == 3

        done = clean(kvstrata, shared_root, "--also", "closed", "--also", "crashed")
        assert reasons(done["removed"]) == ["closed", "crashed"]
        assert len(list(shared_root.iterdir())) == 1


def test_people_read_what_was_kept_and_why(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    closed_log(tmp_path / "closed", shared_root)
    outcome = kvstrata("clean", "--dry-run", "--shared-memory-root", shared_root)
    assert "kept" in outcome.out
    assert f"0 B to free in {shared_root}" in outcome.out


def test_an_unknown_reason_is_refused(kvstrata: CommandLine, shared_root: Path) -> None:
    refusal = kvstrata.refuses("clean", "--also", "alive", "--shared-memory-root", shared_root)
    assert "expected one of nameless, closed, crashed, found 'alive'" in refusal
