from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .logs import closed_log, crashed_log, open_cache, run_prompt

if TYPE_CHECKING:
    from .conftest import CommandLine


def flip_a_byte(directory: Path, offset: int) -> Path:
    """Damage the first segment; return it."""
    segment = sorted((directory / "segments").glob("*.seg"))[0]
    content = bytearray(segment.read_bytes())
    content[offset] ^= 1
    segment.write_bytes(content)
    return segment


@pytest.mark.parametrize("make", [closed_log, crashed_log])
def test_what_an_engine_leaves_is_sound(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path, make: object
) -> None:
    assert callable(make)
    directory = make(tmp_path / "log", shared_root)
    outcome = kvstrata("fsck", directory, "--shared-memory-root", shared_root)
    assert outcome.code == 0
    assert outcome.out.endswith("sound\n")
    found = kvstrata("fsck", directory, "--shared-memory-root", shared_root, "--json").json
    assert found["is_sound"] is True
    assert found["faults"] == []
    assert found["num_events"] == found["last_seqno"] > 0


def test_damage_is_a_fault_until_it_is_repaired(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = closed_log(tmp_path / "log", shared_root)
    segment = flip_a_byte(directory, 4096 + 64 + 8)
    before = segment.read_bytes()
    options = (directory, "--shared-memory-root", shared_root)

    found = kvstrata("fsck", *options, "--json")
    assert found.code == 1
    (fault, *_) = found.json["faults"]
    assert fault["path"] == str(segment)
    assert fault["offset"] == 4096
    told = kvstrata("fsck", *options)
    assert told.code == 1
    assert f"fault: segments/{segment.name} at byte 4096" in told.out
    assert segment.read_bytes() == before

    repaired = kvstrata("fsck", *options, "--repair")
    assert repaired.code == 0, repaired
    assert "repaired: " in repaired.out
    assert kvstrata("fsck", *options).code == 0
    with open_cache(directory, shared_root) as cache:
        cache.check_integrity()


def test_it_works_beside_an_engine_but_does_not_repair(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    directory = tmp_path / "log"
    with open_cache(directory, shared_root) as cache:
        run_prompt(cache).finish()
        cache.flush()
        assert kvstrata("fsck", directory, "--shared-memory-root", shared_root).code == 0
        refusal = kvstrata.refuses(
            "fsck", directory, "--repair", "--shared-memory-root", shared_root
        )
        assert "expected to be the only writer" in refusal


def test_what_is_no_log_is_one_line(kvstrata: CommandLine, tmp_path: Path) -> None:
    assert "no such directory" in kvstrata.refuses("fsck", tmp_path / "missing")
    assert "no format.json" in kvstrata.refuses("fsck", tmp_path)
    assert list(tmp_path.iterdir()) == []
