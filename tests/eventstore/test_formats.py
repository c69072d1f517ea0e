"""The stored bytes are frozen: a changed field must show here."""

import hashlib

import pytest

from kvstrata.eventstore.log.formats import (
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    BatchHeader,
    Footer,
    SealReason,
    SegmentHeader,
    checksum,
)
from kvstrata.eventstore.log.snapshot import SNAPSHOT_HEADER_BYTES, SnapshotHeader
from kvstrata.eventstore.log.watermark import Watermark

SEGMENT = SegmentHeader(
    segment_id=3,
    first_seqno=1001,
    previous_crc=0xDEADBEEF,
    rank=2,
    incarnation=5,
    boot_id=b"b" * 16,
    realtime_ns=1_700_000_000_000_000_000,
    monotonic_ns=123_456_789,
    log_id=b"l" * 16,
    layout_digest=b"d" * 16,
    abi_digest=b"a" * 16,
    schema_version=1,
)
FOOTER = Footer(7, 0xCAFEBABE, 3, 1001, 1500, 40_000, SealReason.ROTATED, 987_654_321)
WATERMARK = Watermark(turn=9, durable_seqno=1400, segment_id=3, offset=36_000, incarnation=5)
SNAPSHOT = SnapshotHeader(
    1500, 8 * 16, 0x12345678, b"l" * 16, b"d" * 16, b"p" * 16, 1_700_000_000_000_000_000, 1
)


def packed_batch(events: bytes) -> bytes:
    header = BatchHeader(len(events) // 64, 1001, 3, 1000, SEGMENT.crc, 222)
    packed = bytearray(RECORD_BYTES)
    BatchHeader.store_crc(packed, checksum(events, header.pack_into(packed)))
    return bytes(packed)


def test_crc32c_is_the_castagnoli_polynomial() -> None:
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(b"6789", checksum(b"12345")) == 0xE3069283


@pytest.mark.parametrize(
    ("packed", "size", "sha256"),
    [
        (SEGMENT.pack(), SEGMENT_HEADER_BYTES, "1e849ce4d9315d9c"),
        (packed_batch(bytes(range(64)) * 2), RECORD_BYTES, "33749e3d1e8249b3"),
        (FOOTER.pack(), RECORD_BYTES, "6ebc431fdb15eb43"),
        (WATERMARK.pack(), RECORD_BYTES, "1571958b92825f61"),
        (SNAPSHOT.pack(), SNAPSHOT_HEADER_BYTES, "a921cc037a6eef1b"),
    ],
    ids=["segment", "batch", "footer", "watermark", "snapshot"],
)
def test_stored_bytes_never_change(packed: bytes, size: int, sha256: str) -> None:
    assert len(packed) == size
    assert hashlib.sha256(packed).hexdigest()[:16] == sha256


def test_records_read_back() -> None:
    assert SegmentHeader.unpack(SEGMENT.pack()) == SEGMENT
    footer = Footer.unpack(FOOTER.pack())
    assert footer is not None
    assert (footer.last_seqno, footer.reason, footer.previous_crc) == (1500, 1, 0xCAFEBABE)
    assert Watermark.unpack(WATERMARK.pack()) == WATERMARK
    assert SnapshotHeader.unpack(SNAPSHOT.pack()) == SNAPSHOT
    batch = BatchHeader.unpack(memoryview(packed_batch(bytes(64))), 0)
    assert batch is not None
    assert (batch.count, batch.first_seqno, batch.synced_seqno) == (1, 1001, 1000)


def test_every_flipped_bit_of_a_record_shows() -> None:
    batch = packed_batch(bytes(64))
    for record, unpack in (
        (batch, lambda data: BatchHeader.unpack(memoryview(data), 0)),
        (FOOTER.pack(), Footer.unpack),
        (WATERMARK.pack(), Watermark.unpack),
        (SEGMENT.pack()[:4096], SegmentHeader.unpack),
        (SNAPSHOT.pack()[:4096], SnapshotHeader.unpack),
    ):
        for bit in range(min(len(record), 160) * 8):
            damaged = bytearray(record)
            damaged[bit // 8] ^= 1 << bit % 8
            found = unpack(bytes(damaged))
            # A batch's own checksum covers its events too and is compared there.
            assert found is None or (record is batch and 32 <= bit < 64), bit
