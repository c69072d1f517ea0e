"""Torn writes of the last batch, at every byte and in every fashion."""

import random
import shutil

import numpy as np
import pytest

from kvstrata.core.errors import CorruptSegment

from .support import Bench, edit, publish_call, segments_of, state_after

FIRST, LAST = [3, 4], 5
START = 4096 + 64 * (1 + 7)
END = START + 64 * (1 + LAST)


@pytest.fixture
def torn(bench: Bench) -> Bench:
    """A durable batch of 7 events, then one of 5 that no sync had covered."""
    log = bench.open(durability="none", sync_interval_ms=1.0)
    log.start()
    publish_call(log, *FIRST)
    log.flush()
    publish_call(log, LAST)
    while log.status().drained < 12:
        pass
    assert log.status().durable == 7
    log.close(clean=False)
    bench.forget_ring()
    return bench


class Copy:
    """A pristine directory, damaged and recovered again and again."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.segment = segments_of(bench.directory)[0]
        self.pristine = bench.directory.parent / "pristine"
        shutil.copytree(bench.directory, self.pristine)

    def recover(self, data: bytes) -> int:
        """Recover with this content of the segment; returns the last seqno."""
        shutil.rmtree(self.bench.directory)
        shutil.copytree(self.pristine, self.bench.directory)
        self.segment.write_bytes(data)
        log = self.bench.open()
        log.close(clean=False)
        last = log.recovery.last_seqno
        assert np.array_equal(log.arena, state_after([*FIRST, LAST] if last == 12 else FIRST))
        # A second recovery finds nothing left to do.
        again = self.bench.open()
        again.close(clean=False)
        assert (again.recovery.last_seqno, again.recovery.damage) == (last, ())
        return last


def test_cut_at_every_byte(torn: Bench) -> None:
    copy = Copy(torn)
    data = copy.segment.read_bytes()
    for length in range(START, END + 1):
        assert copy.recover(data[:length]) == (12 if length == END else 7), length


def test_zeroed_and_noisy_from_every_record(torn: Bench) -> None:
    copy = Copy(torn)
    data = copy.segment.read_bytes()
    noise = random.Random(1).randbytes(END - START)
    for at in range(START, END, 64):
        for filler in (bytes(END - at), noise[: END - at]):
            assert copy.recover(data[:at] + filler + data[END:]) == 7


def test_every_other_flipped_byte(torn: Bench) -> None:
    copy = Copy(torn)
    data = copy.segment.read_bytes()
    for at in range(START, END, 7):
        flipped = bytes([data[at] ^ 0x10])
        assert copy.recover(data[:at] + flipped + data[at + 1 :]) == 7


def test_what_was_cut_off_is_kept(torn: Bench) -> None:
    segment = segments_of(torn.directory)[0]
    original = segment.read_bytes()[START:END]
    edit(segment, START + 130, b"\xee")
    torn.open().close(clean=False)
    [copy] = (torn.directory / "damaged").iterdir()
    assert copy.name.startswith(f"{segment.name}.{START}")
    assert sum(a != b for a, b in zip(copy.read_bytes(), original, strict=True)) == 1


def _three_batches(bench: Bench, flush_middle: bool) -> None:
    """Batches of 40, 40 and 40 events, each some sectors long; the first one durable."""
    log = bench.open(durability="none", sync_interval_ms=1.0, segment_bytes=1 << 16)
    log.start()
    for number in range(3):
        publish_call(log, 40)
        while log.status().drained < 40 * (number + 1):
            pass
        if number == 0 or (number == 1 and flush_middle):
            log.flush()
    log.close(clean=False)
    bench.forget_ring()
    bench.forget_watermark()


MIDDLE = 4096 + 64 * 41
SECTOR = 512


@pytest.mark.parametrize("lost", ["all", "first sector", "last sector", "one inside"])
@pytest.mark.parametrize("middle", ["unsynced", "synced"])
def test_a_lost_middle_batch(bench: Bench, lost: str, middle: str) -> None:
    """A later batch that survived says whether the middle one was ever acknowledged."""
    _three_batches(bench, flush_middle=middle == "synced")
    segment = segments_of(bench.directory)[0]
    aligned = -(-MIDDLE // SECTOR) * SECTOR
    offset, size = {
        "all": (MIDDLE, 64 * 41),
        "first sector": (MIDDLE, aligned - MIDDLE),
        "last sector": (MIDDLE + 64 * 40, 64),
        "one inside": (aligned, SECTOR),
    }[lost]
    edit(segment, offset, bytes(size))
    if middle == "synced":
        with pytest.raises(CorruptSegment, match="DURABLE_DAMAGED") as caught:
            bench.open()
        assert f"{segment} at byte {MIDDLE}" in str(caught.value)
        return
    log = bench.open()
    log.close(clean=False)
    assert log.recovery.last_seqno == 40
    assert np.array_equal(log.arena, state_after([40]))
    [damage] = log.recovery.damage
    assert (damage.decision, damage.offset) == ("TORN_TAIL", MIDDLE)


def test_every_flipped_bit_in_durable_events_is_refused(bench: Bench) -> None:
    bench.write([[2], [1]])
    bench.forget_ring()
    segment = segments_of(bench.directory)[0]
    pristine = segment.read_bytes()
    for at in range(4096, 4096 + 64 * 5):
        edit(segment, at, bytes([pristine[at] ^ (1 << at % 8)]))
        with pytest.raises(CorruptSegment, match=r"at byte \d+ \(DURABLE_"):
            bench.open()
        edit(segment, at, pristine[at : at + 1])
    for at in range(136):
        edit(segment, at, bytes([pristine[at] ^ 1]))
        with pytest.raises(CorruptSegment, match="BAD_HEADER"):
            bench.open()
        edit(segment, at, pristine[at : at + 1])
    log = bench.open()
    log.close(clean=False)
    assert log.recovery.last_seqno == 3
    assert log.recovery.damage == ()
