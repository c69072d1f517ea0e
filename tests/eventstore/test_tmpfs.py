"""Shared memory: named by the directory, reserved in full, cleaned when nobody needs it."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kvstrata.core.errors import ConfigError, LogError
from kvstrata.core.ring import ring_bytes
from kvstrata.eventstore.log import check_room, place_of, tmpfs, tmpfs_dir
from kvstrata.eventstore.log.orphans import OrphanReason, clean_orphans, find_orphans

from .faults import FailingSystem
from .support import Bench, OtherBoot, publish_call, shared_corner, state_after


@pytest.fixture
def corner() -> Iterator[Path]:
    with shared_corner() as corner:
        yield corner


def test_a_place_is_named_by_the_resolved_directory(tmp_path: Path, corner: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    (tmp_path / "link").symlink_to(directory)
    place = place_of(directory, corner)
    assert place.root.parent == corner
    assert place.root.name.startswith("kvstrata-")
    assert place.is_memory
    assert place == place_of(tmp_path / "link", corner)
    assert place == place_of(tmp_path / "x" / ".." / "log", corner)
    assert place != place_of(tmp_path, corner)
    assert tmpfs_dir(directory, corner) == place.root / "pools"
    assert list(corner.iterdir()) == []


def test_without_a_tmpfs_the_directory_itself_serves(tmp_path: Path) -> None:
    for root, found in ((tmp_path, "file system"), (tmp_path / "none", "no such folder")):
        bench = Bench(tmp_path / f"log-{root.name}", root)
        log = bench.open()
        assert log.place_note.startswith(f"expected a tmpfs at {root}, found {found}")
        log.start()
        publish_call(log, 3)
        log.close(clean=False)
        assert (bench.directory / "shared" / "ring").exists()
        log = bench.open()
        log.close()
        assert (log.recovery.ring, log.recovery.last_seqno) == ("AHEAD", 3)


def test_too_small_says_how_much_is_needed(corner: Path, bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"expected \d+ bytes .* for pools on .* found \d+ bytes"):
        check_room(corner, 1 << 60, "pools")
    check_room(corner, 4096, "pools")


def test_a_ring_that_does_not_fit_leaves_the_log_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write([[3], [4]])
    real = os.statvfs

    def full(path: object) -> os.statvfs_result:
        fields = list(real(path))  # type: ignore[call-overload]
        fields[4] = 3
        return os.statvfs_result(fields)

    monkeypatch.setattr(tmpfs.os, "statvfs", full)
    with pytest.raises(ConfigError, match=f"expected {ring_bytes(65536) - ring_bytes(256)} bytes"):
        bench.open(ring_events=65536, segment_bytes=4 << 20)
    monkeypatch.undo()
    log = bench.open()
    log.close()
    assert np.array_equal(log.arena, state_after([3, 4]))
    assert log.recovery.bytes_trusted


def test_a_failed_reservation_leaves_no_memory_behind(bench: Bench) -> None:
    class NoMemory(FailingSystem):
        def open(self, path: Path, flags: int) -> int:
            self.fails = "fallocate" if path.name == "ring.tmp" else ""
            return super().open(path, flags)

    system = NoMemory()
    system.error = errno.ENOSPC
    with pytest.raises(LogError, match="No space left"):
        bench.open(system)
    assert list(place_of(bench.directory, bench.shared).root.glob("ring*")) == []
    bench.open().close()


def test_a_ring_of_another_size_is_made_anew(bench: Bench) -> None:
    log = bench.open()
    log.start()
    publish_call(log, 30)
    log.close(clean=False)
    log = bench.open(ring_events=512)
    assert (log.recovery.last_seqno, log.recovery.bytes_trusted) == (30, True)
    assert log.status().capacity == 512
    assert place_of(bench.directory, bench.shared).ring.stat().st_size == ring_bytes(512)
    log.start()
    publish_call(log, 300)
    log.close()
    log = bench.open()
    log.close()
    assert np.array_equal(log.arena, state_after([30, 300]))


def test_the_ring_has_no_holes(bench: Bench) -> None:
    log = bench.open(ring_events=4096, segment_bytes=1 << 20)
    status = place_of(bench.directory, bench.shared).ring.stat()
    assert status.st_blocks * 512 >= status.st_size
    log.close()


def test_somebody_elses_place_is_refused(bench: Bench, tmp_path: Path) -> None:
    place = place_of(bench.directory, bench.shared)
    (tmp_path / "elsewhere").mkdir()
    place.root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"expected .* to be a folder of user"):
        bench.open()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_orphans(bench: Bench) -> None:
    benches = {
        name: Bench(bench.directory.parent / name, bench.shared)
        for name in ("running", "closed", "crashed", "gone")
    }
    running = benches["running"].open()
    for name in ("closed", "crashed", "gone"):
        benches[name].write([[1]], close=name == "closed")
    benches["gone"].directory.rename(bench.directory.parent / "elsewhere")
    (bench.shared / "kvstrata-nameless").mkdir()
    foreign = bench.shared / "kvstrata-foreign"
    foreign.mkdir()
    (foreign / "owner.json").write_text(json.dumps({"directory": str(benches["closed"].directory)}))
    (bench.shared / "something-else").mkdir()

    found = {orphan.place.name: orphan for orphan in find_orphans(bench.shared)}
    places = {
        name: place_of(each.directory, bench.shared).root.name for name, each in benches.items()
    }
    assert {name: orphan.reason for name, orphan in found.items()} == {
        places["closed"]: OrphanReason.CLOSED,
        places["crashed"]: OrphanReason.CRASHED,
        places["gone"]: OrphanReason.GONE,
        "kvstrata-nameless": OrphanReason.NAMELESS,
        "kvstrata-foreign": OrphanReason.NAMELESS,
    }
    assert found[places["gone"]].num_bytes >= ring_bytes(256)
    assert found[places["gone"]].directory == benches["gone"].directory

    removed = {orphan.place.name for orphan in clean_orphans(bench.shared)}
    assert removed == {places["closed"], places["gone"]}
    assert {path.name for path in bench.shared.iterdir()} == {
        places["running"],
        places["crashed"],
        "kvstrata-nameless",
        "kvstrata-foreign",
        "something-else",
    }
    assert running.status().incarnation == 1
    running.close()
    log = benches["closed"].open()
    log.close()
    assert not log.recovery.bytes_trusted
    assert len(clean_orphans(bench.shared, tuple(OrphanReason))) == 5


def test_after_a_reboot_nothing_in_memory_is_believed(bench: Bench) -> None:
    log = bench.open()
    log.start()
    publish_call(log, 3)
    log.flush()
    publish_call(log, 4)
    log.close(clean=False)
    log = bench.open(OtherBoot())
    assert (log.recovery.boot_changed, log.recovery.bytes_trusted) == (True, False)
    assert log.recovery.last_seqno in (3, 7)  # what was written, not what was published
    log.close(clean=False)
    # The marker keeps the distrust through the next crash in the same boot.
    log = bench.open(OtherBoot())
    log.close()
    assert (log.recovery.boot_changed, log.recovery.bytes_trusted) == (False, False)
