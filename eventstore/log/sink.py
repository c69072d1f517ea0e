"""Where the writer's events go: the open segment, the one prepared next, and the watermark.

Owned by one thread. Every method raises OSError where the device failed; after that the sink is
only closed.
"""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from kvstrata.core.errors import InvariantViolation
from kvstrata.core.events import EVENT_WORDS, LAST_OF_CALL
from kvstrata.core.ring import RING_HEADER_WORDS

from .config import LogConfig
from .cursors import Cursors, Phase
from .directory import LogPaths
from .formats import SealReason
from .identity import Format
from .ringfile import RING_NUM_SYNCS, RING_SEGMENT_ID, RingFile
from .segments import SegmentFile, prepare_segment
from .settle import LogEnd, new_header
from .system import System
from .watermark import WatermarkFile

__all__ = ["LogSink"]

_WATERMARK_SYNC_NS: Final = 1_000_000_000
_LARGEST_BATCH: Final = 1 << 20
_FLAGS_BIT: Final = 40


class LogSink:
    """Writes what the ring holds.

    Args:
        system: the machine.
        paths: the directory.
        identity: its format.
        config: the log's settings.
        ring: handed to this incarnation already.
        cursors: over the same ring.
        end: where the log ends, durable.
        incarnation: this one's number.
        on_sealed: called with path and last seqno of each segment sealed by rotation.
    """

    def __init__(
        self,
        system: System,
        paths: LogPaths,
        identity: Format,
        config: LogConfig,
        ring: RingFile,
        cursors: Cursors,
        end: LogEnd,
        incarnation: int,
        on_sealed: Callable[[Path, int], None],
    ) -> None:
        self._system = system
        self._paths = paths
        self._identity = identity
        self._config = config
        self._ring = ring
        self._cursors = cursors
        self._incarnation = incarnation
        self._on_sealed = on_sealed
        self._drained = self._durable = end.last_seqno
        self._prepared = -1
        self._is_full = False
        self._marked_ns = system.monotonic_ns()
        self._mark = WatermarkFile(system, paths.watermark)
        self._segment = self._create_segment(end)

    def prepare(self) -> None:
        """Have the next segment ready, so that rotation is quick; a full disk waits till then."""
        if self._prepared >= 0 or self._is_full:
            return
        self._cursors.enter(Phase.ROTATING)
        try:
            self._prepared = self._prepare_segment()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._is_full = True

    def _prepare_segment(self) -> int:
        return prepare_segment(self._system, self._paths, self._config.segment_bytes)

    def drain(self, head: int) -> None:
        """Write everything up to ``head``, the end of a call, a batch at a time."""
        while self._drained < head and not self._cursors.is_stopped:
            count = self._batch_count(head - self._drained)
            if count == 0:
                self._rotate()
                continue
            self._cursors.enter(Phase.WRITING)
            pieces = self._ring.slices(self._drained + 1, count)
            self._check(pieces)
            self._segment.append(pieces, count, self._durable, self._system.monotonic_ns())
            self._drained += count
            self._cursors.advance(self._drained, self._durable)

    def sync(self) -> None:
        """Make what was written durable, and say so."""
        if self._durable < self._drained:
            self._cursors.enter(Phase.SYNCING)
            self._segment.sync()
            self._acknowledge()

    def seal(self, reason: SealReason) -> LogEnd:
        """End the segment; everything in it is durable then."""
        self._cursors.enter(Phase.ROTATING)
        segment = self._segment
        footer = segment.seal(reason, self._system.monotonic_ns())
        self._acknowledge()
        self._mark.sync()
        return LogEnd(
            footer.last_seqno, segment.header.segment_id + 1, footer.crc, self._incarnation
        )

    def close(self) -> None:
        """Close the files; nothing is synced."""
        self._segment.close()
        self._mark.close()
        if self._prepared >= 0:
            self._system.close(self._prepared)
            self._prepared = -1

    def _batch_count(self, waiting: int) -> int:
        """Events of the next batch, whole calls; 0 where the segment has no room for one."""
        room = min(self._segment.room, _LARGEST_BATCH)
        if waiting <= room:
            return waiting
        places = (self._drained + np.arange(waiting)) % self._ring.capacity
        flags = self._ring.words[RING_HEADER_WORDS + places * EVENT_WORDS + 2] >> _FLAGS_BIT
        ends = np.flatnonzero(flags & LAST_OF_CALL) + 1
        fitting = ends[ends <= room]
        if len(fitting):
            return int(fitting[-1])
        # A call that no segment could hold still gets one to itself.
        return int(ends[0]) if self._segment.is_empty else 0

    def _check(self, pieces: Sequence[memoryview]) -> None:
        """Never write what recovery would refuse."""
        first = self._drained + 1
        for piece in pieces:
            seqnos = np.frombuffer(piece, dtype=np.int64)[::EVENT_WORDS]
            if not np.array_equal(seqnos, np.arange(first, first + len(seqnos))):
                raise InvariantViolation(f"expected consecutive events from {first} in the ring")
            first += len(seqnos)

    def _acknowledge(self) -> None:
        if not self._cursors.advance(self._drained, self._drained):
            return
        self._durable = self._drained
        self._ring.words[RING_NUM_SYNCS] += 1
        self._cursors.enter(Phase.MARKING)
        segment = self._segment
        segment_id = segment.header.segment_id
        self._mark.write(self._durable, segment_id, segment.offset, self._incarnation)
        now_ns = self._system.monotonic_ns()
        if now_ns - self._marked_ns >= _WATERMARK_SYNC_NS:
            self._mark.sync()
            self._marked_ns = now_ns

    def _rotate(self) -> None:
        end = self.seal(SealReason.ROTATED)
        if self._cursors.is_stopped:
            return
        sealed = self._segment
        self._segment = self._create_segment(end)
        sealed.close()
        self._on_sealed(sealed.path, sealed.last_seqno)

    def _create_segment(self, end: LogEnd) -> SegmentFile:
        prepared = self._prepared if self._prepared >= 0 else self._prepare_segment()
        self._prepared, self._is_full = -1, False
        header = new_header(self._system, self._identity, end, self._incarnation, self._config.rank)
        self._ring.words[RING_SEGMENT_ID] = header.segment_id
        return SegmentFile.create(
            self._system, self._paths, header, prepared, self._config.segment_bytes
        )
