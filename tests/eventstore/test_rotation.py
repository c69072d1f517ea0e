"""Segments one after the other, snapshots of them, and what retention deletes."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from kvstrata.core.errors import CorruptSegment, InvariantViolation, LogError, SequenceGap
from kvstrata.eventstore.log import EventLog, open_replayed, read_events
from kvstrata.eventstore.log import reader as reader_module
from kvstrata.eventstore.log.formats import SealReason
from kvstrata.eventstore.log.scan import read_footer, read_header

from .support import Bench, edit, fake_projection, publish_call, segments_of, state_after

SIZES = [40, 17, 60, 3, 55, 33, 64, 1, 50, 20, 64, 64, 30, 9]


def write_rotating(bench: Bench, close: bool = True, **settings: object) -> list[int]:
    log = bench.open(**settings)
    log.start()
    for size in SIZES:
        publish_call(log, size)
        log.flush()
    wait_for_snapshots(log, bench, settings)
    log.close(clean=close)
    return SIZES


def wait_for_snapshots(log: EventLog, bench: Bench, settings: dict[str, object]) -> None:
    """Snapshots on rotation come from another thread, which also deletes old segments."""
    if not settings.get("segments_per_snapshot"):
        return
    newest_first = reversed(segments_of(bench.directory))
    last = next((found.last_seqno for path in newest_first if (found := read_footer(path))), 0)
    deadline = time.monotonic() + 5
    while last and not (bench.directory / "snapshots" / f"{last:020d}.snap").exists():
        assert not log.snapshot_error, log.snapshot_error
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_segments_continue_each_other(bench: Bench) -> None:
    write_rotating(bench)
    paths = segments_of(bench.directory)
    assert len(paths) > 2
    assert not (bench.directory / "segments" / "next").exists() or paths
    before = None
    for number, path in enumerate(paths):
        header, footer = read_header(path), read_footer(path)
        assert header is not None
        assert footer is not None
        assert path.name == f"{header.first_seqno:020d}.seg"
        assert footer.data_bytes + 64 == path.stat().st_size <= 16384
        assert header.segment_id == footer.segment_id == number + 1
        if before is not None:
            assert header.first_seqno == before.last_seqno + 1
            assert header.previous_crc == before.crc
        last = number == len(paths) - 1
        assert footer.reason is (SealReason.CLOSED if last else SealReason.ROTATED)
        before = footer
    assert before is not None
    assert before.last_seqno == sum(SIZES)


def test_a_call_is_never_split(bench: Bench) -> None:
    write_rotating(bench)
    seen = 0
    ends = set(np.cumsum(SIZES).tolist())
    for events in read_events(bench.directory):
        seen += len(events)
        assert int(events["seqno"][-1]) in ends
    assert seen == sum(SIZES)


def test_a_backlog_of_many_calls_is_cut_at_their_ends(bench: Bench) -> None:
    log = bench.open(ring_events=512)
    sizes = [7] * 70
    for size in sizes:
        publish_call(log, size)
    log.start()
    log.flush()
    log.close()
    ends = set(np.cumsum(sizes).tolist())
    batches = [int(events["seqno"][-1]) for events in read_events(bench.directory)]
    assert len(batches) > 1
    assert set(batches) <= ends
    assert len(segments_of(bench.directory)) > 1


def test_replay_from_any_snapshot_equals_replay_from_the_start(bench: Bench) -> None:
    write_rotating(bench, segments_per_snapshot=1, snapshots_kept=100)
    snapshots = sorted((bench.directory / "snapshots").iterdir())
    assert len(snapshots) > 2
    expected = state_after(SIZES)
    while True:
        log = bench.open(segments_per_snapshot=0, snapshots_kept=100)
        log.close(clean=False)
        assert np.array_equal(log.arena, expected)
        left = sorted((bench.directory / "snapshots").iterdir())
        assert log.recovery.snapshot_seqno == (int(left[-1].stem) if left else 0)
        assert log.recovery.events_replayed == sum(SIZES) - log.recovery.snapshot_seqno
        if not left:
            break
        left[-1].unlink()


@pytest.mark.parametrize("damage", ["header", "tables", "cut", "foreign", "renamed"])
def test_a_snapshot_that_does_not_hold_is_skipped(bench: Bench, damage: str) -> None:
    write_rotating(bench, segments_per_snapshot=1, snapshots_kept=100)
    newest = sorted((bench.directory / "snapshots").iterdir())[-1]
    if damage == "header":
        edit(newest, 30, b"\xff")
    elif damage == "tables":
        edit(newest, 4096 + 5, b"\xff")
    elif damage == "cut":
        os.truncate(newest, newest.stat().st_size - 8)
    elif damage == "foreign":
        edit(newest, 0, b"not a snapshot at all")
    else:
        newest.rename(newest.with_name(f"{sum(SIZES) - 1:020d}.snap"))
    log = bench.open()
    log.close(clean=False)
    assert np.array_equal(log.arena, state_after(SIZES))
    assert 0 < log.recovery.snapshot_seqno < sum(SIZES)
    assert [item.decision for item in log.recovery.damage] == ["SNAPSHOT_SKIPPED"]


def test_only_as_many_snapshots_as_asked_are_kept(bench: Bench) -> None:
    write_rotating(bench, segments_per_snapshot=1, snapshots_kept=2)
    assert len(list((bench.directory / "snapshots").iterdir())) == 2


def test_retention_deletes_only_what_a_kept_snapshot_covers(bench: Bench) -> None:
    write_rotating(bench, segments_per_snapshot=1, snapshots_kept=2, retention_bytes=0)
    snapshots = sorted((bench.directory / "snapshots").iterdir())
    paths = segments_of(bench.directory)
    header = read_header(paths[0])
    assert header is not None
    assert 1 < header.first_seqno <= int(snapshots[0].stem) + 1
    log = bench.open()
    log.close(clean=False)
    assert np.array_equal(log.arena, state_after(SIZES))
    with pytest.raises(SequenceGap, match="expected event 1, found a log that begins with"):
        next(read_events(bench.directory))
    first = header.first_seqno
    assert sum(len(part) for part in read_events(bench.directory, first)) == sum(SIZES) - first + 1
    # Even one bad snapshot leaves the log whole; without any it is refused.
    edit(snapshots[-1], 4096, b"\xff\xff")
    log = bench.open()
    log.close(clean=False)
    assert np.array_equal(log.arena, state_after(SIZES))
    for path in (bench.directory / "snapshots").iterdir():
        path.unlink()
    with pytest.raises(CorruptSegment, match="START_MISSING"):
        bench.open()


def test_without_retention_every_segment_stays(bench: Bench) -> None:
    write_rotating(bench, segments_per_snapshot=1, snapshots_kept=1)
    assert sum(len(part) for part in read_events(bench.directory)) == sum(SIZES)


def test_a_missing_segment_is_refused(bench: Bench) -> None:
    write_rotating(bench, close=False)
    segments_of(bench.directory)[1].unlink()
    with pytest.raises(CorruptSegment, match="BROKEN_LINK"):
        bench.open()
    with pytest.raises(CorruptSegment, match="BROKEN_LINK"):
        list(read_events(bench.directory))


def test_a_segment_of_another_log_is_refused(bench: Bench, tmp_path: Path) -> None:
    write_rotating(bench, close=False)
    other = Bench(tmp_path / "other", bench.shared)
    write_rotating(other, close=False)
    victim = segments_of(bench.directory)[1]
    victim.write_bytes(segments_of(other.directory)[1].read_bytes())
    with pytest.raises(CorruptSegment, match="a segment of another log"):
        bench.open()


def test_a_snapshot_names_its_event(bench: Bench) -> None:
    log = bench.open()
    log.start()
    publish_call(log, 5)
    path = log.snapshot(log.arena, 5)
    assert path.name == f"{5:020d}.snap"
    assert log.status().durable >= 5  # a snapshot is only of durable events
    with pytest.raises(LogError, match="expected an arena at event 4"):
        log.snapshot(log.arena, 4)
    log.close()


def test_an_event_that_apply_refuses_stops_recovery(bench: Bench) -> None:
    bench.write([[3]])
    projection = fake_projection()
    object.__setattr__(projection, "apply", lambda arena, words: 1)
    with pytest.raises(InvariantViolation, match="expected event 2 to apply"):
        EventLog.open(
            bench.directory,
            None,
            bench.config(),
            None,
            projection=projection,  # type: ignore[arg-type]
        )


def test_events_from_any_seqno(bench: Bench) -> None:
    write_rotating(bench)
    total = sum(SIZES)
    for first in (1, 2, 40, 41, 58, total - 1, total):
        events = np.concatenate(list(read_events(bench.directory, first)))
        assert events["seqno"].tolist() == list(range(first, total + 1))
    assert list(read_events(bench.directory, total + 1)) == []


def test_reading_beside_a_living_writer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    log = bench.open()
    log.start()
    for size in (5, 6, 7):
        publish_call(log, size)
    log.flush()
    publish_call(log, 9)
    assert sum(len(part) for part in read_events(bench.directory)) >= 18
    monkeypatch.setattr(reader_module, "core_projection", lambda layout, params: fake_projection())
    monkeypatch.setattr(reader_module.CacheLayout, "from_json", lambda fields: None)
    monkeypatch.setattr(reader_module, "ArenaParams", lambda **sizes: None)
    arena, report = open_replayed(bench.directory, bench.shared)
    assert np.array_equal(arena, state_after([5, 6, 7, 9]))
    assert report.last_seqno == 27
    assert log.status().head == 27
    log.close()
