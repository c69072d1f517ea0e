"""fsck lists everything that is wrong; only its repair cuts, and what it cuts is kept."""

import shutil

import numpy as np
import pytest

from kvstrata.core.errors import ConfigError, CorruptSegment, DirectoryBusy
from kvstrata.core.events import EventType
from kvstrata.eventstore.log import place_of, read_events
from kvstrata.eventstore.log.fsck import FsckReport, fsck
from kvstrata.eventstore.log.scan import read_header

from .support import (
    Bench,
    edit,
    fake_apply,
    make_call,
    publish_call,
    put_in_ring,
    segments_of,
    state_after,
)

SIZES = [40, 17, 60, 3, 55, 33, 64, 1, 50, 20, 64, 64, 30, 9]


def names(report: FsckReport) -> list[str]:
    return [damage.decision for damage in report.faults]


def write_long(bench: Bench, snapshots: bool = False) -> None:
    log = bench.open()
    log.start()
    for number, size in enumerate(SIZES):
        publish_call(log, size)
        log.flush()
        if snapshots and number == len(SIZES) // 2:
            log.snapshot(log.arena, sum(SIZES[: number + 1]))
    log.close(clean=False)


def test_a_sound_log(bench: Bench) -> None:
    write_long(bench, snapshots=True)
    report = fsck(bench.directory, shared_memory_root=bench.shared)
    assert report.is_sound
    assert report.notes == ()
    assert (report.num_events, report.last_seqno) == (sum(SIZES), sum(SIZES))
    assert (report.first_seqno, report.num_snapshots) == (1, 1)
    assert report.num_segments == len(segments_of(bench.directory)) > 2
    assert report.durable_seqno == sum(SIZES)


def test_not_a_log(bench: Bench) -> None:
    with pytest.raises(ConfigError):
        fsck(bench.directory)


def test_a_repair_needs_the_lock(bench: Bench) -> None:
    log = bench.open()
    assert fsck(bench.directory, shared_memory_root=bench.shared).is_sound
    with pytest.raises(DirectoryBusy):
        fsck(bench.directory, repair=True, shared_memory_root=bench.shared)
    log.close()


def test_a_repair_of_a_sound_log_changes_nothing(bench: Bench) -> None:
    write_long(bench)
    before = {path: path.read_bytes() for path in segments_of(bench.directory)}
    assert fsck(bench.directory, True, bench.shared).repairs == ()
    assert before == {path: path.read_bytes() for path in segments_of(bench.directory)}


def test_every_fault_is_listed_with_its_place(bench: Bench) -> None:
    write_long(bench)
    paths = segments_of(bench.directory)
    edit(paths[0], 4096 + 70, b"\xff")
    edit(paths[1], 20, b"\xff")
    edit(paths[-1], 4096 + 100, b"\xff")
    report = fsck(bench.directory, shared_memory_root=bench.shared)
    assert names(report) == ["DAMAGED_BEFORE_ANOTHER", "BAD_HEADER", "DURABLE_DAMAGED"]
    assert [(damage.path, damage.offset) for damage in report.faults] == [
        (paths[0], 4096),
        (paths[1], 0),
        (paths[-1], 4096),
    ]


def repaired(bench: Bench, last: int, events: int) -> FsckReport:
    """Repair, and hold that what is left opens, reads and goes on."""
    report = fsck(bench.directory, True, bench.shared)
    assert report.is_sound, report.faults
    assert report.repairs
    assert f"the log ends at event {last}" in report.repairs[-1]
    log = bench.open()
    assert log.recovery.last_seqno == last
    assert not log.recovery.bytes_trusted
    sizes = []
    total = 0
    for size in SIZES:
        if total + size <= last:
            sizes.append(size)
            total += size
    assert np.array_equal(log.arena, state_after(sizes))
    log.start()
    publish_call(log, 2)
    log.close()
    assert fsck(bench.directory, shared_memory_root=bench.shared).is_sound
    first = read_header(segments_of(bench.directory)[0])
    assert first is not None
    assert sum(len(part) for part in read_events(bench.directory, first.first_seqno)) == events + 2
    return report


def test_repair_cuts_damage_in_durable_events(bench: Bench) -> None:
    write_long(bench)
    path = segments_of(bench.directory)[1]
    header = read_header(path)
    assert header is not None
    edit(path, 4096 + 64 * 2, b"\xff")
    with pytest.raises(CorruptSegment, match="fsck --repair"):
        bench.open()
    num_segments = len(segments_of(bench.directory))
    last = header.first_seqno - 1
    repaired(bench, last, last)
    assert len(list((bench.directory / "damaged").iterdir())) == num_segments - 1


def test_repair_keeps_the_good_part_of_a_segment(bench: Bench) -> None:
    bench.write([[40], [17], [60]])
    edit(segments_of(bench.directory)[0], 4096 + 64 * (41 + 18) + 500, b"\xff")
    repaired(bench, 57, 57)


def test_repair_of_missing_durable_events_accepts_the_loss(bench: Bench) -> None:
    bench.write([[40], [17], [60]])
    edit(segments_of(bench.directory)[0], 4096 + 64 * (41 + 18), bytes(64 * 62))
    assert names(fsck(bench.directory, False, bench.shared)) == ["DURABLE_MISSING"]
    repaired(bench, 57, 57)


def test_repair_of_a_lost_header(bench: Bench) -> None:
    write_long(bench)
    paths = segments_of(bench.directory)
    header = read_header(paths[2])
    assert header is not None
    edit(paths[2], 0, bytes(100))
    repaired(bench, header.first_seqno - 1, header.first_seqno - 1)


def test_repair_of_a_missing_segment(bench: Bench) -> None:
    write_long(bench)
    paths = segments_of(bench.directory)
    header = read_header(paths[1])
    assert header is not None
    paths[1].unlink()
    assert "BROKEN_LINK" in names(fsck(bench.directory, False, bench.shared))
    repaired(bench, header.first_seqno - 1, header.first_seqno - 1)


def test_repair_before_a_snapshot_loses_nothing_a_restart_needs(bench: Bench) -> None:
    write_long(bench, snapshots=True)
    paths = segments_of(bench.directory)
    edit(paths[0], 4096 + 70, b"\xff")
    log = bench.open()  # recovery does not even look there
    log.close(clean=False)
    second = read_header(paths[1])
    assert second is not None
    repaired(bench, sum(SIZES), sum(SIZES) - second.first_seqno + 1)


def test_repair_goes_on_from_a_snapshot_beyond_the_damage(bench: Bench) -> None:
    log = bench.open()
    log.start()
    for size in (40, 17, 60):
        publish_call(log, size)
    log.snapshot(log.arena, 117)
    log.close(clean=False)
    edit(segments_of(bench.directory)[0], 4096 + 70, b"\xff")
    report = repaired(bench, 117, 0)
    assert any("after the snapshot at event 117" in line for line in report.repairs)


def test_repair_of_everything(bench: Bench) -> None:
    bench.write([[40], [17]])
    edit(segments_of(bench.directory)[0], 0, bytes(8))
    report = fsck(bench.directory, True, bench.shared)
    assert report.is_sound
    log = bench.open()
    log.close()
    assert log.recovery.last_seqno == 0


def test_repair_of_lost_segments(bench: Bench) -> None:
    bench.write([[40], [17]])
    shutil.rmtree(bench.directory / "segments")
    assert names(fsck(bench.directory, False, bench.shared)) == ["DURABLE_MISSING"]
    with pytest.raises(CorruptSegment, match="DURABLE_MISSING"):
        bench.open()
    assert fsck(bench.directory, True, bench.shared).is_sound
    bench.open().close()


def test_the_ring_is_a_witness_too(bench: Bench) -> None:
    bench.write([[40], [17]])
    bench.forget_watermark()
    edit(segments_of(bench.directory)[0], 4096 + 64 * 41, bytes(64 * 18))
    assert names(fsck(bench.directory, False, bench.shared)) == ["DURABLE_MISSING"]
    with pytest.raises(CorruptSegment, match="DURABLE_MISSING"):
        bench.open()
    repaired(bench, 40, 40)
    assert place_of(bench.directory, bench.shared).ring.exists()


def test_notes(bench: Bench) -> None:
    write_long(bench, snapshots=True)
    segment = segments_of(bench.directory)[-1]
    edit(segment, segment.stat().st_size - 64, b"\x01")
    [snapshot] = (bench.directory / "snapshots").iterdir()
    edit(snapshot, 5000 - 4096, b"\xff")
    edit(bench.directory / "watermark", 20, b"\xff")
    (bench.directory / "blobs" / "x.tmp").touch()
    (bench.directory / "unlogged").touch()
    (bench.directory / "damaged" / "old").touch()
    report = fsck(bench.directory, shared_memory_root=bench.shared)
    assert report.is_sound
    assert [damage.decision for damage in report.notes] == [
        "WATERMARK_TORN",
        "SNAPSHOT_SKIPPED",
        "TORN_TAIL",
        "LEFTOVER",
        "UNLOGGED",
        "KEPT_COPY",
    ]


def test_a_blob_that_an_event_names_must_be_there(bench: Bench) -> None:
    log = bench.open()
    log.start()
    digest = log.put_blob({"engine": "test"})
    stray = log.put_blob({"nobody": "names me"})
    call = make_call(1, 2)
    call[0, 2] = int(EventType.MANAGER_OPENED)
    call[0, 4:6] = np.frombuffer(digest, dtype=np.int64)
    fake_apply(log.arena, call)
    put_in_ring(log.ring, call)
    log.close(clean=False)
    bench.open().close()
    report = fsck(bench.directory, shared_memory_root=bench.shared)
    assert report.is_sound
    assert report.num_blobs == 2
    (bench.directory / "blobs" / stray.hex()).write_text("[]")
    report = fsck(bench.directory, shared_memory_root=bench.shared)
    assert [damage.decision for damage in report.notes] == ["BLOB_DAMAGED"]
    (bench.directory / "blobs" / digest.hex()).unlink()
    assert names(fsck(bench.directory, False, bench.shared)) == ["BLOB_LOST"]
