"""Writing one segment: created, appended to, synced, sealed.

Order of creation, each step durable before the next: the file under a temporary name with its
space reserved; its header; its real name. So a segment with a real name has a whole header, and
the one before it is sealed and durable.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from kvstrata.core.events import EVENT_BYTES

from .directory import LogPaths
from .formats import (
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    BatchHeader,
    Footer,
    SealReason,
    SegmentHeader,
    checksum,
)
from .scan import Tail
from .system import System, write_whole

__all__ = ["SegmentFile", "prepare_segment"]


def prepare_segment(system: System, paths: LogPaths, segment_bytes: int) -> int:
    """Reserve the file of a segment to come.

    Returns:
        Its descriptor.

    Raises:
        OSError: there is no room, or the device failed.
    """
    system.unlink(paths.prepared)
    descriptor = system.open(paths.prepared, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    try:
        system.fallocate(descriptor, segment_bytes)
        system.fdatasync(descriptor)
    except OSError:
        system.close(descriptor)
        raise
    return descriptor


class SegmentFile:
    """An open segment, owned by one thread.

    Attributes:
        header: as stored.
        offset: where the next batch goes, in bytes.
        last_seqno: of the last batch, ``first_seqno - 1`` while empty.
    """

    def __init__(
        self, system: System, descriptor: int, path: Path, header: SegmentHeader, limit_bytes: int
    ) -> None:
        self._system = system
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        self._chain_crc = header.crc
        self._num_batches = 0
        self._packed = bytearray(RECORD_BYTES)
        self.path = path
        self.header = header
        self.offset = SEGMENT_HEADER_BYTES
        self.last_seqno = header.first_seqno - 1

    @classmethod
    def create(
        cls, system: System, paths: LogPaths, header: SegmentHeader, prepared: int, limit_bytes: int
    ) -> "SegmentFile":
        """Put a prepared file into use. Raises OSError.

        Args:
            system: the machine.
            paths: the directory.
            header: what the segment begins with; the segment before is sealed and durable.
            prepared: descriptor from :func:`prepare_segment`.
            limit_bytes: size beyond which it takes no second batch.
        """
        path = paths.segment(header.first_seqno)
        write_whole(system, prepared, [header.pack()], 0)
        system.fdatasync(prepared)
        system.rename(paths.prepared, path)
        system.sync_directory(paths.segments)
        return cls(system, prepared, path, header, limit_bytes)

    @classmethod
    def resume(cls, system: System, path: Path, header: SegmentHeader, tail: Tail) -> "SegmentFile":
        """Open a segment after its last good batch; what stood there is cut off. Raises OSError."""
        segment = cls(system, system.open(path, os.O_RDWR), path, header, 0)
        segment.offset = tail.offset
        segment.last_seqno = tail.last_seqno
        segment._chain_crc = tail.chain_crc
        segment._num_batches = tail.num_batches
        system.truncate(segment._descriptor, tail.offset)
        return segment

    @property
    def is_empty(self) -> bool:
        """Whether it holds no event."""
        return self.last_seqno < self.header.first_seqno

    @property
    def room(self) -> int:
        """Events that one more batch can take, the footer's place kept free."""
        return max(0, self._limit_bytes - self.offset - 2 * RECORD_BYTES) // EVENT_BYTES

    def append(
        self, pieces: Sequence[memoryview], count: int, synced_seqno: int, monotonic_ns: int
    ) -> None:
        """Write the next ``count`` events as one batch, by one system call.

        Args:
            pieces: their bytes, in order; unchanged until this returns.
            count: events, whole calls.
            synced_seqno: the last seqno known durable.
            monotonic_ns: now.

        Raises:
            OSError: the write failed or was short.
        """
        header = BatchHeader(
            count, self.last_seqno + 1, self.header.segment_id, synced_seqno, self._chain_crc,
            monotonic_ns,
        )  # fmt: skip
        crc = header.pack_into(self._packed)
        for piece in pieces:
            crc = checksum(piece, crc)
        BatchHeader.store_crc(self._packed, crc)
        self.offset += write_whole(
            self._system, self._descriptor, [self._packed, *pieces], self.offset
        )
        self.last_seqno += count
        self._chain_crc = crc
        self._num_batches += 1

    def sync(self) -> None:
        """Make everything appended durable. Raises OSError."""
        self._system.fdatasync(self._descriptor)

    def seal(self, reason: SealReason, monotonic_ns: int) -> Footer:
        """Write the footer, give back reserved space, and make all of it durable. Raises OSError.

        Returns:
            The footer as stored; its CRC begins the next segment's header.
        """
        footer = Footer(
            self._num_batches, self._chain_crc, self.header.segment_id, self.header.first_seqno,
            self.last_seqno, self.offset, reason, monotonic_ns,
        )  # fmt: skip
        packed = footer.pack()
        write_whole(self._system, self._descriptor, [packed], self.offset)
        self._system.truncate(self._descriptor, self.offset + RECORD_BYTES)
        self._system.fdatasync(self._descriptor)
        stored = Footer.unpack(packed)
        if stored is None:
            raise RuntimeError("expected a packed footer to unpack")
        return stored

    def close(self) -> None:
        """Close the file without syncing."""
        self._system.close(self._descriptor)
