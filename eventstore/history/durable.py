"""How much of a log is durable, as anyone can tell from outside."""

import mmap
import os
import threading
import time
from pathlib import Path
from typing import Final

from kvstrata.core.ring import RING_DURABLE, RING_INCARNATION
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.ringfile import RingFile, map_ring
from kvstrata.eventstore.log.status import LogStatus, status_of
from kvstrata.eventstore.log.system import System
from kvstrata.eventstore.log.tmpfs import place_of
from kvstrata.eventstore.log.watermark import read_watermark

__all__ = ["DurableMark"]

_LOOK_S: Final = 1.0


class DurableMark:
    """Looks at a log's ring, or where there is none at its files; for any thread.

    Args:
        paths: the directory.
        log_id: which log the ring must belong to.
        shared_memory_root: where the ring is.
    """

    def __init__(self, paths: LogPaths, log_id: bytes, shared_memory_root: Path) -> None:
        self._paths = paths
        self._log_id = log_id
        self._ring_path = place_of(paths.root, shared_memory_root).ring
        self._boot_id = System().boot_id()
        self._lock = threading.Lock()
        self._ring: RingFile | None = None
        self._inode = 0
        self._seqno = 0
        self._looked_s = -_LOOK_S

    def read(self) -> int:
        """The last seqno known durable; never less than was said before."""
        with self._lock:
            ring = self._mapped()
            found = int(ring.words[RING_DURABLE]) if ring is not None else 0
            now_s = time.monotonic()
            # A ring that does not move may be one that no engine writes any more.
            if ring is None or (found <= self._seqno and now_s - self._looked_s > _LOOK_S):
                self._looked_s = now_s
                found = max(found, self._of_files())
            self._seqno = max(self._seqno, found)
            return self._seqno

    def status(self, stall_limit_ms: float = 2000.0) -> LogStatus | None:
        """The status page; None where no ring of this log is."""
        with self._lock:
            ring = self._mapped()
            return None if ring is None else status_of(ring.words, stall_limit_ms)

    def _mapped(self) -> RingFile | None:
        """The ring of this log, mapped anew where another file has its name."""
        try:
            inode = os.stat(self._ring_path).st_ino
        except (FileNotFoundError, PermissionError):
            self._ring, self._inode = None, 0
            return None
        if inode != self._inode:
            try:
                self._ring = map_ring(self._ring_path, mmap.ACCESS_READ)
            except PermissionError:  # another user's: the files say nearly as much
                self._ring = None
            self._inode = inode
        ring = self._ring
        if ring is None or ring.words[RING_INCARNATION] == 0:
            return None
        if ring.log_id != self._log_id or ring.boot_id != self._boot_id:
            return None  # its memory says nothing of this log, or of this boot
        return ring

    def _of_files(self) -> int:
        """What the watermark says, and every segment with another behind it."""
        mark, _ = read_watermark(self._paths.watermark)
        segments = self._paths.segment_files()
        sealed = int(segments[-1].stem) - 1 if segments else 0
        return max(mark.durable_seqno if mark is not None else 0, sealed)
