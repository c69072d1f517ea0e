"""What may happen to a log under a follower: pruned, replaced, damaged, mended."""

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from kvstrata.core.words import PAGE_GENERATION
from kvstrata.eventstore.history.following import Following
from kvstrata.eventstore.history.tail import SegmentChanged, SegmentTail
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.fsck import fsck
from kvstrata.eventstore.log.tmpfs import place_of
from kvstrata.eventstore.log.watermark import read_watermark
from tests.face.support import Place

from .following import SMALL_SEGMENTS, agree, catch_up, follow, values, work

PRUNING = SMALL_SEGMENTS | {"retention_bytes": 0, "snapshots_kept": 1}


def segments(place: Place) -> list[Path]:
    return LogPaths(place.directory).segment_files()


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def test_begins_anew_where_events_were_pruned(place: Place, tmp_path: Path) -> None:
    with place.open(log=PRUNING) as cache:
        work(cache, 3)
        with follow(place) as follower:
            agree(follower, cache)
            before, stopped_at = values(follower.tally), follower.position().seqno
            work(cache, 150, 3)
            cache.flush()
    with place.open(log=PRUNING) as cache, follow(place) as fresh:
        oldest = int(segments(place)[0].stem)
        assert oldest > stopped_at + 1
        agree(fresh, cache)
        assert fresh.tally.since_seqno == oldest
        work(cache, 5)
        agree(fresh, cache)
        assert fresh.position().restarts == 0
    assert before["requests"] == 3


def test_a_slow_follower_is_overtaken_by_retention(place: Place) -> None:
    with place.open(log=PRUNING) as cache, follow(place) as follower:
        work(cache, 3)
        agree(follower, cache)
        before, stopped_at = values(follower.tally), follower.position().seqno
        work(cache, 200, 3)
        cache.flush()
        oldest = int(segments(place)[0].stem)
        for _ in range(200):
            if oldest > stopped_at + 1:
                break
            work(cache, 5)
            cache.flush()
            oldest = int(segments(place)[0].stem)
        assert oldest > stopped_at + 1
        agree(follower, cache)
        position = follower.position()
        assert position.restarts == 1
        assert position.missed_events > 0
        after = values(follower.tally)
        assert all(after[name] >= value for name, value in before.items())
        counted = int(follower.tally.counts.sum())
        assert counted + position.missed_events == position.seqno


def test_another_log_in_its_place(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        work(cache, 5)
        agree(follower, cache)
        first = follower.position()
        cache.close()
        shutil.move(place.directory, place.directory.with_name("aside"))
        assert follower.step() == 0
        assert "gone" in follower.position().error
        assert follower.position().seqno == first.seqno
        with place.open() as other:
            work(other, 2)
            agree(follower, other)
            now = follower.position()
            assert now.epoch != first.epoch
            assert now.restarts == 1
            assert follower.tally.totals["requests"] == 2


@pytest.mark.parametrize("place_of_damage", ["sealed", "live"])
def test_goes_on_once_damage_is_mended(place: Place, place_of_damage: str) -> None:
    with place.open(log=SMALL_SEGMENTS) as cache, follow(place) as follower:
        work(cache, 4)
        agree(follower, cache)
        stopped_at = follower.position().seqno
        work(cache, 60 if place_of_damage == "sealed" else 1, 4)
        cache.flush()
        path = next(one for one in reversed(segments(place)) if int(one.stem) <= stopped_at)
        assert (path == segments(place)[-1]) == (place_of_damage == "live")
        tail = follower._following._tail  # type: ignore[union-attr]
        assert tail is not None
        flip(path, tail._offset + 200)
        catch_up(follower)
        position = follower.position()
        assert position.seqno == stopped_at
        assert position.lag_events > 0
        assert path.name in position.error
        assert "checksum" in position.error
        flip(path, tail._offset + 200)
        agree(follower, cache)
        assert follower.position().restarts == 0


def test_what_is_good_before_damage_is_applied_once(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        work(cache, 1)
        agree(follower, cache)
        work(cache, 1, 4)
        cache.flush()
        mark, _ = read_watermark(LogPaths(place.directory).watermark)
        assert mark is not None
        work(cache, 1, 8)
        cache.flush()
        path = segments(place)[-1]
        flip(path, mark.offset + 200)
        catch_up(follower)
        assert follower.position().seqno >= mark.durable_seqno
        assert "checksum" in follower.position().error
        flip(path, mark.offset + 200)
        agree(follower, cache)
        assert follower.drift == []
        assert follower.position().restarts == 0


def test_a_missing_segment_is_named(place: Place) -> None:
    with place.open(log=SMALL_SEGMENTS) as cache:
        work(cache, 60)
        cache.flush()
        gone = segments(place)[2]
        kept = gone.read_bytes()
        gone.unlink()
        for snapshot in LogPaths(place.directory).snapshot_files():
            snapshot.unlink()
        with follow(place) as follower:
            catch_up(follower)
            assert gone.name in follower.position().error
            gone.write_bytes(kept)
            agree(follower, cache)


def test_a_file_that_was_written_anew_is_read_on(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        work(cache, 4)
        agree(follower, cache)
        cache.close()
        (path,) = segments(place)
        copy = path.with_suffix(".copy")
        shutil.copy(path, copy)
        os.replace(copy, path)
        with place.open() as again:
            work(again, 4)
            agree(follower, again)
            assert follower.position().restarts == 0


def test_a_log_cut_by_repair_is_read_anew(place: Place) -> None:
    with follow(place) as follower:
        with place.open() as cache:
            work(cache, 12)
            cache.flush()
            work(cache, 12, 12)
            agree(follower, cache)
        (path,) = segments(place)
        for snapshot in LogPaths(place.directory).snapshot_files():
            snapshot.unlink()
        flip(path, path.stat().st_size // 2)
        fsck(place.directory, repair=True, shared_memory_root=place.shared)
        with place.open() as cache:
            work(cache, 3)
            cache.flush()
            catch_up(follower)
            catch_up(follower)
            assert follower.position().restarts >= 1
            assert np.array_equal(follower.arena, cache.arena)


def test_an_event_that_does_not_apply_is_a_divergence(place: Place) -> None:
    with place.open(log=SMALL_SEGMENTS) as cache, follow(place) as follower:
        work(cache, 5)
        agree(follower, cache)
        seqno = follower.position().seqno
        follower.tables.pages[:, PAGE_GENERATION] += 1  # every handle is stale
        work(cache, 5, 5)
        cache.flush()
        catch_up(follower)
        assert follower.position().seqno >= seqno
        assert "refused" in follower.position().error
        (found,) = follower.drift
        assert found.kind == "refused"
        assert found.first_seqno == found.last_seqno == follower.position().seqno + 1
        assert follower.step() == 0
        work(cache, 80, 10)  # a newer snapshot comes with a segment that is sealed
        for _ in range(200):
            cache.flush()
            catch_up(follower)
            if not follower.position().error:
                break
            work(cache, 5)
        agree(follower, cache)
        assert follower.position().restarts == 1
        assert len(follower.drift) == 1


def test_what_a_power_loss_takes_back_was_never_applied(place: Place) -> None:
    log = {"durability": "none", "sync_interval_ms": 2.0, "stall_limit_ms": 5000.0}
    with follow(place) as follower:
        cache = place.open(log=log)
        work(cache, 4)
        cache.flush()
        work(cache, 4, 4)
        assert cache.log is not None
        until = cache.stats().last_seqno
        deadline_s = time.monotonic() + 10
        while cache.log.status().drained < until:
            assert time.monotonic() < deadline_s
            time.sleep(0.002)
        catch_up(follower)
        applied = follower.position().seqno
        assert applied < until
        cache.log.close(clean=False)
        mark, _ = read_watermark(LogPaths(place.directory).watermark)
        assert mark is not None
        assert mark.durable_seqno == applied
        os.truncate(segments(place)[-1], mark.offset)
        shutil.rmtree(place_of(place.directory, place.shared).root)
        with place.open(log=log) as cache:
            assert cache.recovery is not None
            assert cache.recovery.log.last_seqno == applied
            work(cache, 3, 4)
            agree(follower, cache)
            assert follower.position().restarts == 0


def test_an_unlogged_epoch_is_not_followed_and_its_end_is(place: Place) -> None:
    with follow(place) as follower:
        cache = place.open()
        work(cache, 4)
        agree(follower, cache)
        assert cache.log is not None
        cache.log.end_epoch("a test")
        work(cache, 4, 4)
        catch_up(follower)
        status = follower.status()
        assert status is not None
        assert status.unlogged
        assert follower.position().seqno < cache.stats().last_seqno
        cache.log.close(clean=False)
        with place.open() as cache:
            work(cache, 4)
            agree(follower, cache)
            assert follower.position().restarts == 0
            assert follower.tally.totals["lost_pages"] > 0


def test_beginning_anew_is_tried_again_where_it_failed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(*_: object) -> None:
        raise SegmentChanged("expected the segment read before, found another")

    def gone(*_: object) -> None:
        raise FileNotFoundError("a segment that was listed and then pruned")

    with place.open() as cache, follow(place) as follower:
        work(cache, 5)
        cache.flush()
        catch_up(follower)
        work(cache, 5)
        cache.flush()
        with monkeypatch.context() as patched:
            patched.setattr(SegmentTail, "read", changed)
            patched.setattr(Following, "start_reading", gone)
            assert follower.step() == 0
            assert "pruned" in follower.position().error
        catch_up(follower)
        assert np.array_equal(follower.arena, cache.arena)
        assert follower.position().lag_events == 0


def test_an_older_copy_of_the_log_in_its_place(place: Place, tmp_path: Path) -> None:
    with place.open() as cache:
        work(cache, 3)
    shutil.copytree(place.directory, tmp_path / "copy")
    with place.open() as cache, follow(place) as follower:
        work(cache, 20)
        cache.flush()
        catch_up(follower)
        cache.close()
        shutil.rmtree(place.directory)
        shutil.copytree(tmp_path / "copy", place.directory)
        with place.open() as again:
            work(again, 4)
            again.flush()
            catch_up(follower)
            assert np.array_equal(follower.arena, again.arena)
            assert follower.position().restarts == 1
        assert follower.drift == []
