"""A test a row: how each row of the recovery tables comes about, and what is decided."""

import os
import shutil
from collections.abc import Callable

import numpy as np
import pytest

from kvstrata.core.errors import CorruptSegment
from kvstrata.core.ring import (
    RING_DRAINED,
    RING_FLAG_POISONED,
    RING_FLAG_UNLOGGED,
    RING_FLAGS,
    RING_INCARNATION,
)
from kvstrata.eventstore.log.decisions import RING_TABLE, TAIL_TABLE
from kvstrata.eventstore.log.ringfile import map_ring
from kvstrata.eventstore.log.system import System
from kvstrata.eventstore.log.tmpfs import place_of

from .support import Bench, OtherBoot, edit, publish_call, segments_of, state_after

CALLS = [[3], [4], [5]]
NUM_EVENTS = 12


def _last_batch_offset(bench: Bench) -> int:
    # Header, then three batches of 3, 4 and 5 events.
    return 4096 + 64 * (1 + 3 + 1 + 4)


def _sealed_last(bench: Bench) -> None:
    bench.write(CALLS, close=True)
    for path in (bench.directory / "snapshots").iterdir():
        path.unlink()


def _end_of_log(bench: Bench) -> None:
    bench.write(CALLS)


def _torn_tail(bench: Bench) -> None:
    bench.write(CALLS)
    bench.forget_watermark()
    edit(segments_of(bench.directory)[0], _last_batch_offset(bench) + 100, b"\xff" * 8)


def _durable_damaged(bench: Bench) -> None:
    bench.write(CALLS)
    edit(segments_of(bench.directory)[0], _last_batch_offset(bench) + 100, b"\xff" * 8)


def _durable_missing(bench: Bench) -> None:
    bench.write(CALLS)
    edit(segments_of(bench.directory)[0], _last_batch_offset(bench), bytes(64 * 6))


def _two_segments(bench: Bench) -> None:
    bench.write(CALLS)
    bench.write([[1]])


def _sealed(bench: Bench) -> None:
    bench.write([*CALLS[:2], [4]])
    bench.write([[1]])


def _damaged_before_another(bench: Bench) -> None:
    _two_segments(bench)
    edit(segments_of(bench.directory)[0], 4096 + 70, b"\xff")


def _unsealed_before_another(bench: Bench) -> None:
    _two_segments(bench)
    path = segments_of(bench.directory)[0]
    os.truncate(path, path.stat().st_size - 64)


TAIL_CASES: dict[str, tuple[Callable[[Bench], None], int | None]] = {
    "SEALED": (_sealed, NUM_EVENTS),
    "SEALED_LAST": (_sealed_last, NUM_EVENTS),
    "END_OF_LOG": (_end_of_log, NUM_EVENTS),
    "TORN_TAIL": (_torn_tail, 7),
    "DURABLE_DAMAGED": (_durable_damaged, None),
    "DURABLE_MISSING": (_durable_missing, None),
    "DAMAGED_BEFORE_ANOTHER": (_damaged_before_another, None),
    "UNSEALED_BEFORE_ANOTHER": (_unsealed_before_another, None),
}


@pytest.mark.parametrize("name", [row.name for row in TAIL_TABLE])
def test_end_of_a_segment(bench: Bench, name: str) -> None:
    make, survivors = TAIL_CASES[name]
    make(bench)
    bench.forget_ring()
    if survivors is None:
        first = segments_of(bench.directory)[0]
        before = {path: path.read_bytes() for path in segments_of(bench.directory)}
        with pytest.raises(CorruptSegment, match=name) as caught:
            bench.open()
        assert str(first) in str(caught.value)
        assert "at byte" in str(caught.value)
        assert before == {path: path.read_bytes() for path in segments_of(bench.directory)}
        return
    log = bench.open()
    log.close(clean=False)
    assert log.recovery.last_seqno == survivors
    assert [damage.decision for damage in log.recovery.damage] == (
        [name] if name == "TORN_TAIL" else []
    )
    copies = list((bench.directory / "damaged").iterdir())
    assert len(copies) == (1 if name == "TORN_TAIL" else 0)


def _even(bench: Bench) -> None:
    bench.write(CALLS)


def _ahead(bench: Bench) -> None:
    log = bench.open()
    log.start()
    for [size] in CALLS:
        publish_call(log, size)
        if size == 4:
            log.flush()
    log.close(clean=False)


def _no_ring(bench: Bench) -> None:
    _ahead(bench)
    bench.forget_ring()


def _set_word(bench: Bench, place: int, value: int) -> None:
    ring = map_ring(place_of(bench.directory, bench.shared).ring)
    assert ring is not None
    ring.words[place] = value


def _other_incarnation(bench: Bench) -> None:
    _ahead(bench)
    _set_word(bench, RING_INCARNATION, 7)


def _unlogged(bench: Bench) -> None:
    _ahead(bench)
    _set_word(bench, RING_FLAGS, RING_FLAG_UNLOGGED)


def _unreadable(bench: Bench) -> None:
    _ahead(bench)
    _set_word(bench, RING_DRAINED, 9)


def _poisoned(bench: Bench) -> None:
    _ahead(bench)
    _set_word(bench, RING_FLAGS, RING_FLAG_POISONED)


RING_CASES: dict[str, tuple[Callable[[Bench], None], int, bool]] = {
    "NO_RING": (_no_ring, 7, False),
    "OTHER_BOOT": (_ahead, 7, False),
    "OTHER_INCARNATION": (_other_incarnation, 7, False),
    "UNLOGGED": (_unlogged, 7, False),
    "UNREADABLE": (_unreadable, 7, False),
    "POISONED": (_poisoned, NUM_EVENTS, False),
    "AHEAD": (_ahead, NUM_EVENTS, True),
    "EVEN": (_even, NUM_EVENTS, True),
}


@pytest.mark.parametrize("name", [row.name for row in RING_TABLE])
def test_surviving_ring(bench: Bench, name: str) -> None:
    make, survivors, trusted = RING_CASES[name]
    make(bench)
    shutil.rmtree(bench.directory / "snapshots")
    inode = segments_of(bench.directory)[0].stat().st_ino
    log = bench.open(OtherBoot() if name == "OTHER_BOOT" else System())
    log.close(clean=False)
    assert (log.recovery.ring, log.recovery.last_seqno) == (name, survivors)
    assert log.recovery.bytes_trusted == trusted
    assert log.recovery.unlogged == (name == "UNLOGGED")
    assert log.recovery.boot_changed == (name == "OTHER_BOOT")
    sizes = [3, 4, 5] if survivors == NUM_EVENTS else [3, 4]
    assert np.array_equal(log.arena, state_after(sizes))
    # What a failed sync may have left in memory only is stored anew.
    assert (segments_of(bench.directory)[0].stat().st_ino != inode) == (name == "POISONED")


def test_distrust_outlives_a_crash_before_the_managers_recovery_is_logged(bench: Bench) -> None:
    _no_ring(bench)
    log = bench.open()
    assert not log.recovery.bytes_trusted
    log.start()
    publish_call(log, 2)
    log.flush()
    log.close(clean=False)
    log = bench.open()
    assert log.recovery.ring == "EVEN"
    assert not log.recovery.bytes_trusted
    log.start()
    log.settle_recovery()
    log.close(clean=False)
    log = bench.open()
    log.close()
    assert log.recovery.bytes_trusted


def test_a_crash_between_new_segment_and_ring_loses_no_trust(bench: Bench) -> None:
    _ahead(bench)
    ring_file = place_of(bench.directory, bench.shared).ring
    before = ring_file.read_bytes()
    bench.open().close(clean=False)
    # The ring as the first crash left it: the second open never got to it.
    ring_file.write_bytes(before)
    log = bench.open()
    log.close(clean=False)
    assert (log.recovery.ring, log.recovery.bytes_trusted) == ("EVEN", True)
    assert log.recovery.last_seqno == NUM_EVENTS
    assert np.array_equal(log.arena, state_after([3, 4, 5]))
