"""Bytes of every record the log writes, as tables in docs/files.md show them.

All numbers are little-endian. Every record carries a CRC32C of itself, so that no field is
believed before it was checked. Records inside a segment are 64 bytes or a multiple.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from crc32c import crc32c

__all__ = [
    "BATCH_MAGIC",
    "FOOTER_MAGIC",
    "FORMAT_VERSION",
    "RECORD_BYTES",
    "SEGMENT_HEADER_BYTES",
    "BatchHeader",
    "Buffer",
    "Footer",
    "SealReason",
    "SegmentHeader",
    "checksum",
    "is_whole",
    "seal_record",
]

FORMAT_VERSION: Final = 1
RECORD_BYTES: Final = 64
SEGMENT_HEADER_BYTES: Final = 4096

SEGMENT_MAGIC: Final = b"kvs-segm"
BATCH_MAGIC: Final = int.from_bytes(b"KVSB", "little")
FOOTER_MAGIC: Final = int.from_bytes(b"KVSF", "little")

Buffer = bytes | bytearray | memoryview

# Every record but the batch header: 8 bytes of magic or magic and CRC, then what the CRC covers.
_SEGMENT: Final = struct.Struct("<8sIIIIQQIIQ16sqq16s16s16s")
_BATCH: Final = struct.Struct("<IIIIQQQIIqQ")
_FOOTER: Final = struct.Struct("<IIIIQQQQIIq")
_CRC: Final = struct.Struct("<I")


def checksum(data: Buffer, before: int = 0) -> int:
    """CRC32C of ``data``, continued from the checksum of what stands before it."""
    return int(crc32c(data, before))


def seal_record(record: bytes, crc_at: int, total_bytes: int) -> bytes:
    """Pad a packed record and store the CRC of all that follows the CRC field."""
    padded = bytearray(record.ljust(total_bytes, b"\0"))
    _CRC.pack_into(padded, crc_at, checksum(memoryview(padded)[crc_at + 4 :]))
    return bytes(padded)


def is_whole(record: Buffer, crc_at: int, total_bytes: int) -> bool:
    """Whether the CRC field of a record matches all that follows it."""
    if len(record) < total_bytes:
        return False
    (crc,) = _CRC.unpack_from(record, crc_at)
    return int(crc) == checksum(memoryview(record)[crc_at + 4 : total_bytes])


class SealReason(IntEnum):
    """Why a segment was sealed. Stable numbers."""

    ROTATED = 1
    CLOSED = 2
    RECOVERED = 3
    REPAIRED = 4


@dataclass(frozen=True)
class SegmentHeader:
    """The first 4096 bytes of a segment; one segment belongs to one incarnation.

    ``previous_crc`` is the footer CRC of the segment before, 0 in the first. The clock pair was
    read together, so an event's monotonic time can be told as wall time. ``abi_digest`` is all
    zeros while no kernel ABI is registered.
    """

    segment_id: int
    first_seqno: int
    previous_crc: int
    rank: int
    incarnation: int
    boot_id: bytes
    realtime_ns: int
    monotonic_ns: int
    log_id: bytes
    layout_digest: bytes
    abi_digest: bytes
    schema_version: int
    format_version: int = FORMAT_VERSION
    record_bytes: int = RECORD_BYTES

    def pack(self) -> bytes:
        """The 4096 bytes."""
        fields = _SEGMENT.pack(
            SEGMENT_MAGIC,
            0,
            self.format_version,
            self.record_bytes,
            self.schema_version,
            self.segment_id,
            self.first_seqno,
            self.previous_crc,
            self.rank,
            self.incarnation,
            self.boot_id,
            self.realtime_ns,
            self.monotonic_ns,
            self.log_id,
            self.layout_digest,
            self.abi_digest,
        )
        return seal_record(fields, 8, SEGMENT_HEADER_BYTES)

    @property
    def crc(self) -> int:
        """Its CRC, with which the chain of batch CRCs begins."""
        return int(_CRC.unpack_from(self.pack(), 8)[0])

    @classmethod
    def unpack(cls, data: Buffer) -> Self | None:
        """The header in ``data``, or None where it is not whole.

        A whole header of another format version is returned: its version says so.
        """
        if bytes(data[:8]) != SEGMENT_MAGIC or not is_whole(data, 8, SEGMENT_HEADER_BYTES):
            return None
        _, _, version, record, schema, segment, first, previous, rank, incarnation, *rest = (
            _SEGMENT.unpack_from(data)
        )
        boot_id, realtime_ns, monotonic_ns, log_id, layout, abi = rest
        return cls(
            segment, first, previous, rank, incarnation, boot_id, realtime_ns, monotonic_ns,
            log_id, layout, abi, schema, version, record,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The 64 bytes before the events of one write.

    ``crc`` covers the header from its own end and every event. ``header_crc`` covers the header
    alone: a batch whose events were torn still proves its ``synced_seqno``, the last seqno known
    durable when it was written. ``previous_crc`` chains it to the batch before.
    """

    count: int
    first_seqno: int
    segment_id: int
    synced_seqno: int
    previous_crc: int
    monotonic_ns: int
    crc: int = 0

    def pack_into(self, target: bytearray) -> int:
        """Write all but ``crc`` into 64 bytes.

        Returns:
            The checksum so far, to be continued over the events.
        """
        _BATCH.pack_into(
            target, 0, BATCH_MAGIC, 0, 0, self.count, self.first_seqno, self.segment_id,
            self.synced_seqno, self.previous_crc, 0, self.monotonic_ns, 0,
        )  # fmt: skip
        view = memoryview(target)
        _CRC.pack_into(target, 8, checksum(view[12:RECORD_BYTES]))
        return checksum(view[8:RECORD_BYTES])

    @staticmethod
    def store_crc(target: bytearray, crc: int) -> None:
        """Write the checksum of header and events into the packed header."""
        _CRC.pack_into(target, 4, crc)

    @classmethod
    def unpack(cls, data: memoryview, offset: int) -> Self | None:
        """The header at ``offset``, or None where the header itself is not whole."""
        if offset + RECORD_BYTES > len(data):
            return None
        magic, crc, header_crc, count, first, segment, synced, previous, _, at_ns, _ = (
            _BATCH.unpack_from(data, offset)
        )
        if magic != BATCH_MAGIC or header_crc != checksum(
            data[offset + 12 : offset + RECORD_BYTES]
        ):
            return None
        return cls(count, first, segment, synced, previous, at_ns, crc)


@dataclass(frozen=True)
class Footer:
    """The 64 bytes that seal a segment; nothing follows them.

    ``previous_crc`` is the last batch's CRC (the header's in an empty segment), ``data_bytes``
    the footer's own offset, ``last_seqno`` is ``first_seqno - 1`` in an empty segment.
    """

    num_batches: int
    previous_crc: int
    segment_id: int
    first_seqno: int
    last_seqno: int
    data_bytes: int
    reason: SealReason
    monotonic_ns: int
    crc: int = 0

    def pack(self) -> bytes:
        """The 64 bytes."""
        fields = _FOOTER.pack(
            FOOTER_MAGIC, 0, self.num_batches, self.previous_crc, self.segment_id,
            self.first_seqno, self.last_seqno, self.data_bytes, self.reason, 0, self.monotonic_ns,
        )  # fmt: skip
        return seal_record(fields, 4, RECORD_BYTES)

    @classmethod
    def unpack(cls, data: Buffer) -> Self | None:
        """The footer in ``data``, or None where it is not whole."""
        if not is_whole(data, 4, RECORD_BYTES):
            return None
        magic, crc, batches, previous, segment, first, last, size, reason, _, at_ns = (
            _FOOTER.unpack_from(data)
        )
        if magic != FOOTER_MAGIC or reason not in tuple(SealReason):
            return None
        return cls(batches, previous, segment, first, last, size, SealReason(reason), at_ns, crc)
