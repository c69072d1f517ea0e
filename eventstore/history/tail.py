"""One segment, read on from where the last read ended, while a writer may still append to it."""

import os
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import LogError
from kvstrata.core.events import EVENT_BYTES, EVENT_WORDS
from kvstrata.eventstore.log.chain import Damage, Segment, header_fault, link_fault, refusal
from kvstrata.eventstore.log.formats import (
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    BatchHeader,
    Footer,
)
from kvstrata.eventstore.log.identity import Format
from kvstrata.eventstore.log.projection import Words
from kvstrata.eventstore.log.scan import batch_fault, read_header

__all__ = ["ReadBuffers", "SegmentChanged", "SegmentTail"]

_LEAST_READ_BYTES: Final = 1 << 16


class SegmentChanged(LogError):
    """A segment no longer holds what was read of it; read the log anew."""


class ReadBuffers:
    """Memory that is read into again and again: what a read gave holds until the next one."""

    def __init__(self) -> None:
        self._bytes: npt.NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        self._words: Words = np.zeros(0, dtype=np.int64)

    def take_bytes(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """So many bytes, of whatever was read last."""
        if len(self._bytes) < num_bytes:
            self._bytes = np.empty(num_bytes, dtype=np.uint8)
        return self._bytes[:num_bytes]

    def take_events(self, num_events: int) -> Words:
        """Room for so many events, int64[n, 8]."""
        if len(self._words) < num_events * EVENT_WORDS:
            self._words = np.empty(num_events * EVENT_WORDS, dtype=np.int64)
        return self._words[: num_events * EVENT_WORDS].reshape(-1, EVENT_WORDS)


class SegmentTail:
    """An open segment and how far it was read.

    Args:
        path: its file.
        identity: of the log it must belong to.
        before: the segment before and its footer, where they were read.

    Attributes:
        segment: path and header.
        next_seqno: of the next event to read.
        footer: once everything before it was read; None before.

    Raises:
        CorruptSegment: its header is damaged, or it does not continue the segment before.
        FileNotFoundError: it is gone.
    """

    def __init__(
        self, path: Path, identity: Format, before: "tuple[Segment, Footer] | None" = None
    ) -> None:
        header = read_header(path)
        fault = header_fault(path, header, identity)
        if fault or header is None:
            raise refusal(Damage(path, 0, "BAD_HEADER", fault), "a segment of this log")
        if before is not None:
            fault = link_fault(*before, header)
            if fault:
                raise refusal(Damage(path, 0, "BROKEN_LINK", fault), "the next segment")
        self.segment = Segment(path, header)
        self.next_seqno = header.first_seqno
        self.footer: Footer | None = None
        self._offset = SEGMENT_HEADER_BYTES
        self._chain_crc = header.crc
        self._num_batches = 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._inode = os.fstat(self._descriptor).st_ino

    def read(self, durable_seqno: int, most: int, buffers: ReadBuffers) -> Words:
        """The next events, whole batches.

        Args:
            durable_seqno: nothing beyond it is read.
            most: no further batch is begun after so many events.
            buffers: to read into.

        Returns:
            int64[n, 8], valid until the next read; empty where there is none up to
            ``durable_seqno``, or where the segment ends (:attr:`footer`).

        Raises:
            CorruptSegment: a durable event is damaged.
            SegmentChanged: what was read before is no longer there.
            FileNotFoundError: the segment is gone.
        """
        self._look_again()
        wanted = min(most, durable_seqno - self.next_seqno + 1)
        if wanted <= 0:
            self._read_footer()
            return buffers.take_events(0)
        view = self._fetch(max(wanted * EVENT_BYTES, _LEAST_READ_BYTES), buffers)
        batches: list[tuple[int, int]] = []
        at = taken = 0
        while taken < wanted and self.next_seqno <= durable_seqno:
            header = BatchHeader.unpack(view, at)
            end = at + RECORD_BYTES
            if header is not None:
                end += header.count * EVENT_BYTES
                if end > len(view) and not batches:
                    view = self._fetch(end, buffers)
            if end > len(view) and batches:
                break  # the rest of it comes with the next read
            try:
                if not self._accept(header, view, at, durable_seqno):
                    break
            except LogError:
                if not batches:
                    raise
                break  # what is good before it counts; the next read says what is wrong
            batches.append((at + RECORD_BYTES, end))
            taken += (end - at) // EVENT_BYTES - 1
            at = end
        words = buffers.take_events(taken)
        _gather(view, batches, words)
        return words

    def _fetch(self, num_bytes: int, buffers: ReadBuffers) -> memoryview:
        """So many bytes from where it stands, or fewer at the end of the file."""
        memory = buffers.take_bytes(-(-num_bytes // RECORD_BYTES) * RECORD_BYTES)
        read = os.preadv(self._descriptor, [memory.data], self._offset)
        return memory.data[: read // RECORD_BYTES * RECORD_BYTES]

    def _accept(
        self, header: BatchHeader | None, view: memoryview, at: int, durable_seqno: int
    ) -> bool:
        """Go on behind one batch; False where the segment ends before it.

        Raises:
            CorruptSegment: it is damaged.
        """
        if header is None:
            if self._take_footer(view[at : at + RECORD_BYTES]):
                return False
            found = "bytes that are no batch" if any(view[at : at + RECORD_BYTES]) else "zeros"
            raise self._damaged(found, durable_seqno)
        fault = batch_fault(
            view, at, header, self.segment.header.segment_id, self.next_seqno, self._chain_crc
        )
        if fault:
            raise self._damaged(fault, durable_seqno)
        self.next_seqno += header.count
        self._offset += RECORD_BYTES + header.count * EVENT_BYTES
        self._chain_crc = header.crc
        self._num_batches += 1
        return True

    def _damaged(self, found: str, durable_seqno: int) -> LogError:
        damage = Damage(self.segment.path, self._offset, "DURABLE_DAMAGED", found)
        return refusal(damage, f"events up to {durable_seqno}")

    def _look_again(self) -> None:
        """Follow the file's name where another file has it now, as after a recovery's rewrite."""
        found = os.stat(self.segment.path)
        if found.st_ino != self._inode:
            header = read_header(self.segment.path)
            if header != self.segment.header:
                raise SegmentChanged(
                    f"expected the segment read before, found another in {self.segment.path}"
                )
            os.close(self._descriptor)
            self._descriptor = os.open(self.segment.path, os.O_RDONLY | os.O_CLOEXEC)
            self._inode = os.fstat(self._descriptor).st_ino
        if found.st_size < self._offset:
            raise SegmentChanged(
                f"expected at least {self._offset} bytes, which were read, found {found.st_size} "
                f"in {self.segment.path}"
            )

    def _read_footer(self) -> None:
        self._take_footer(os.pread(self._descriptor, RECORD_BYTES, self._offset))

    def _take_footer(self, record: bytes | memoryview) -> bool:
        footer = Footer.unpack(record) if len(record) == RECORD_BYTES else None
        if footer is None or (footer.num_batches, footer.previous_crc, footer.last_seqno) != (
            self._num_batches, self._chain_crc, self.next_seqno - 1,
        ):  # fmt: skip
            return False
        self.footer = footer
        return True

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _gather(view: memoryview, batches: list[tuple[int, int]], words: Words) -> None:
    """Copy the events of batches, which headers part, one behind the other."""
    into, at = words.reshape(-1).view(np.uint8), 0
    source: npt.NDArray[np.uint8] = np.frombuffer(view, dtype=np.uint8)
    for start, end in batches:
        into[at : at + end - start] = source[start:end]
        at += end - start
