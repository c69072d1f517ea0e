"""Reading one segment: its batches in order, and what stands after the last good one."""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from io import FileIO
from pathlib import Path
from typing import Final

import numpy as np

from kvstrata.core.events import EVENT_BYTES, EVENT_WORDS, LAST_OF_CALL

from .formats import (
    BATCH_MAGIC,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    BatchHeader,
    Footer,
    SegmentHeader,
    checksum,
)
from .projection import Words

__all__ = [
    "Batch",
    "ReadMemory",
    "SegmentScan",
    "Tail",
    "TailKind",
    "batch_fault",
    "footer_tail",
    "read_footer",
    "read_header",
]

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_FLAGS_BIT: Final = 40
_PAGE_BYTES: Final = 4096


class TailKind(Enum):
    """What stands after the last good batch of a segment."""

    ZERO = "zeros to the end of the file"
    FOOTER = "a footer, and nothing after it"
    DAMAGED = "something else"


@dataclass(frozen=True)
class Tail:
    """The end of a segment's good part.

    Attributes:
        kind: what stands there.
        offset: where, in bytes.
        last_seqno: of the last good batch.
        num_batches: good batches.
        chain_crc: CRC of the last good batch, or of the header.
        synced_seqno: the highest that any whole batch header at or after ``offset`` claims.
        end_offset: of damage, after the last record that is not all zeros.
        found: the damage in words.
        footer: where ``kind`` is FOOTER.
    """

    kind: TailKind
    offset: int
    last_seqno: int
    num_batches: int
    chain_crc: int
    synced_seqno: int = 0
    end_offset: int = 0
    found: str = ""
    footer: Footer | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One good batch.

    Attributes:
        offset: of its header, in bytes.
        header: as stored.
        words: int64[count, 8], a view of the scan's buffer.
    """

    offset: int
    header: BatchHeader
    words: Words


def read_header(path: Path) -> SegmentHeader | None:
    """A segment's header, or None where it is not whole."""
    with path.open("rb") as file:
        return SegmentHeader.unpack(file.read(SEGMENT_HEADER_BYTES))


def read_footer(path: Path) -> Footer | None:
    """The footer at the very end of a file, or None."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < SEGMENT_HEADER_BYTES + RECORD_BYTES:
            return None
        file.seek(size - RECORD_BYTES)
        footer = Footer.unpack(file.read(RECORD_BYTES))
    return footer if footer is not None and footer.data_bytes == size - RECORD_BYTES else None


def footer_tail(footer: Footer) -> Tail:
    """The tail of a sealed segment whose batches were not read."""
    return Tail(
        TailKind.FOOTER, footer.data_bytes, footer.last_seqno, footer.num_batches,
        footer.previous_crc, footer=footer,
    )  # fmt: skip


class ReadMemory:
    """Memory that segments are read into one after another.

    Memory touched for the first time costs more than reading does.
    """

    def __init__(self) -> None:
        self._bytes: Bytes = np.zeros(0, dtype=np.uint8)

    def take(self, num_bytes: int) -> Bytes:
        """So many bytes, of whatever was read last."""
        if len(self._bytes) < num_bytes:
            self._bytes = np.empty(num_bytes, dtype=np.uint8)
        return self._bytes[:num_bytes]


def batch_fault(
    view: memoryview,
    offset: int,
    header: BatchHeader,
    segment_id: int,
    next_seqno: int,
    chain_crc: int,
) -> str:
    """What is wrong with one batch, "" where it is good.

    Args:
        view: bytes that hold it.
        offset: where its header stands in them.
        header: unpacked from there.
        segment_id: of the segment it is to belong to.
        next_seqno: with which it is to begin.
        chain_crc: of the batch before, or of the segment's header.
    """
    if header.segment_id != segment_id:
        return f"a batch of segment {header.segment_id}, not {segment_id}"
    if header.first_seqno != next_seqno:
        return f"a batch of event {header.first_seqno}, not {next_seqno}"
    if header.previous_crc != chain_crc:
        return "a batch whose chain does not continue the one before"
    end = offset + RECORD_BYTES + header.count * EVENT_BYTES
    if header.count == 0 or end > len(view):
        return f"a batch of {header.count} events, more than the file holds"
    if header.crc != checksum(
        view[offset + RECORD_BYTES : end],
        checksum(view[offset + 8 : offset + RECORD_BYTES]),
    ):
        return f"a batch of {header.count} events with a wrong checksum"
    flags = view[end - EVENT_BYTES + _FLAGS_BIT // 8 + 16]
    if not flags & LAST_OF_CALL:
        return "a batch that ends inside a call"
    return ""


class SegmentScan:
    """One pass over a segment.

    Iterate :meth:`batches` to its end, then :attr:`tail` is known. A batch is good when its CRCs
    hold and segment id, seqno and chain continue what came before.

    Args:
        path: the segment's file.
        header: as read from it.
        memory: to read into, for whoever is done with one segment's batches before the next; None
            for memory of its own.
    """

    def __init__(self, path: Path, header: SegmentHeader, memory: ReadMemory | None = None) -> None:
        self.path = path
        self.header = header
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            # Whole records; where the file was cut inside one, its rest reads as zeros.
            num_bytes = -(-size // RECORD_BYTES) * RECORD_BYTES
            fresh = memory is None
            self._bytes = (
                np.zeros(num_bytes, np.uint8) if memory is None else memory.take(num_bytes)
            )
            self._view = self._bytes.data
            self._end = -(-_read_data(file, self._bytes, fresh) // RECORD_BYTES) * RECORD_BYTES
        self._tail: Tail | None = None

    @property
    def tail(self) -> Tail:
        """What stands after the last good batch; reads on to it if need be."""
        if self._tail is None:
            for _ in self.batches():
                pass
        if self._tail is None:
            raise RuntimeError("expected batches() to end by storing the tail")
        return self._tail

    def batches(self) -> Iterator[Batch]:
        """Good batches in order."""
        offset = SEGMENT_HEADER_BYTES
        next_seqno = self.header.first_seqno
        chain_crc = self.header.crc
        num_batches = 0
        found = ""
        while offset < len(self._view):
            header = BatchHeader.unpack(self._view, offset)
            if header is None:
                break
            found = self._fault(header, offset, next_seqno, chain_crc)
            if found:
                break
            end = offset + RECORD_BYTES + header.count * EVENT_BYTES
            rows = self._bytes[offset + RECORD_BYTES : end]
            yield Batch(offset, header, rows.view(np.int64).reshape(-1, EVENT_WORDS))
            offset, chain_crc = end, header.crc
            next_seqno += header.count
            num_batches += 1
        self._tail = self._read_tail(Tail(
            TailKind.DAMAGED, offset, next_seqno - 1, num_batches, chain_crc, found=found
        ))  # fmt: skip

    def _fault(self, header: BatchHeader, offset: int, next_seqno: int, chain_crc: int) -> str:
        """What is wrong with the batch at an offset, "" where it is good."""
        return batch_fault(
            self._view, offset, header, self.header.segment_id, next_seqno, chain_crc
        )

    def _read_tail(self, tail: Tail) -> Tail:
        rest = self._bytes[tail.offset : self._end]
        footer = Footer.unpack(self._view[tail.offset : tail.offset + RECORD_BYTES])
        if footer is not None and not _is_nonzero(rest[RECORD_BYTES:]):
            expected = (tail.num_batches, tail.chain_crc, self.header.segment_id, tail.last_seqno)
            if expected == (
                footer.num_batches, footer.previous_crc, footer.segment_id, footer.last_seqno,
            ):  # fmt: skip
                return replace(tail, kind=TailKind.FOOTER, found="", footer=footer)
            return self._damaged(tail, "a footer that does not close these batches")
        if not _is_nonzero(rest):
            return replace(tail, kind=TailKind.ZERO, found="")
        if not tail.found and not _is_nonzero(rest[:RECORD_BYTES]):
            return self._damaged(tail, "zeros followed by other bytes")
        return self._damaged(tail, tail.found or "bytes that are no batch")

    def _damaged(self, tail: Tail, found: str) -> Tail:
        rest = self._bytes[tail.offset : self._end]
        records = rest.view(np.uint32).reshape(-1, RECORD_BYTES // 4)
        synced = 0
        for place in np.flatnonzero(records[:, 0] == BATCH_MAGIC):
            header = BatchHeader.unpack(self._view, tail.offset + int(place) * RECORD_BYTES)
            if header is not None and header.segment_id == self.header.segment_id:
                synced = max(synced, header.synced_seqno)
        last = int(np.flatnonzero(records.any(axis=1))[-1])
        end = tail.offset + (last + 1) * RECORD_BYTES
        return replace(tail, found=found, synced_seqno=synced, end_offset=end)


def _read_data(file: FileIO, memory: Bytes, is_zero: bool) -> int:
    """Read a file, but not what was allocated and never written: that is zeros.

    Args:
        file: the file.
        memory: as long as the file; filled.
        is_zero: whether it holds zeros.

    Returns:
        Where the data ends; only zeros follow.
    """
    end = 0
    while end < len(memory):
        start, stop = _next_data(file.fileno(), end, len(memory))
        file.seek(start)
        read = file.readinto(memory[start:stop].data)
        if not read:
            break
        if not is_zero:
            memory[end:start] = 0
        end = start + read
    if not is_zero:
        memory[end:] = 0
    return end


def _next_data(fd: int, end: int, size: int) -> tuple[int, int]:
    """Where a file's data goes on after ``end``, and where it stops then; ``size`` for nowhere.

    The first page of a hole is looked at all the same: file systems have called a hole what they
    had not written out yet, and what was acknowledged must not be lost to that.
    """
    try:
        start = os.lseek(fd, end, os.SEEK_DATA)
        stop = os.lseek(fd, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:
            return end, size  # a file system that cannot tell
        start = stop = size
    if start > end and os.pread(fd, _PAGE_BYTES, end).strip(b"\0"):
        return end, size
    return start, stop


def _is_nonzero(part: Bytes) -> bool:
    return bool(part.view(np.uint64).any())
