"""Snapshots on rotation and retention, off the mutating and the writing thread.

A sealed segment is replayed onto a private arena that begins with the newest snapshot, so the
engine neither stops nor lends its tables. A failure here is reported and poisons nothing: the
log is whole without snapshots.
"""

import queue
import threading
from pathlib import Path

from kvstrata.core.errors import KvstrataError

from .chain import load_segments
from .config import LogConfig
from .directory import LogPaths
from .identity import Format
from .projection import Projection, Words, replay_words
from .scan import SegmentScan
from .snapshot import fresh_or_snapshot, newest_snapshot, write_snapshot
from .system import System

__all__ = ["Maintenance", "prune", "replay_sealed"]


def replay_sealed(paths: LogPaths, identity: Format, projection: Projection, up_to: int) -> Words:
    """The arena at the end of a sealed segment, from the newest snapshot before it.

    Args:
        paths: the directory.
        identity: its format.
        projection: what to replay into.
        up_to: last seqno of that segment.
    """
    snapshot, _ = newest_snapshot(paths, identity, at_most=up_to)
    arena, seqno = fresh_or_snapshot(projection, snapshot)
    segments = load_segments(paths, identity)
    for number, segment in enumerate(segments):
        first = segment.header.first_seqno
        if number + 1 < len(segments) and segments[number + 1].header.first_seqno <= seqno + 1:
            continue
        if first > up_to:
            break
        for batch in SegmentScan(segment.path, segment.header).batches():
            done = projection.last_seqno(arena) - batch.header.first_seqno + 1
            if done < batch.header.count:
                replay_words(projection, arena, batch.words[max(done, 0) :])
    return arena


def prune(system: System, paths: LogPaths, identity: Format, config: LogConfig) -> list[Path]:
    """Delete old snapshots, and segments beyond the retention that a kept snapshot covers.

    Returns:
        What was deleted.

    Raises:
        OSError: a file could not be deleted.
    """
    snapshots = paths.snapshot_files()
    kept = snapshots[-config.snapshots_kept :]
    deleted = snapshots[: -config.snapshots_kept]
    for path in deleted:
        system.unlink(path)
    if deleted:
        system.sync_directory(paths.snapshots)
    if config.retention_bytes is None or len(kept) < config.snapshots_kept:
        return deleted
    covered = int(kept[0].stem)
    segments = load_segments(paths, identity)
    sizes = [segment.path.stat().st_size for segment in segments]
    total = sum(sizes)
    for segment, size, following in zip(segments, sizes, segments[1:], strict=False):
        if total <= config.retention_bytes or following.header.first_seqno > covered + 1:
            break
        system.unlink(segment.path)
        system.sync_directory(paths.segments)  # one by one: never a gap in the middle
        deleted.append(segment.path)
        total -= size
    return deleted


class Maintenance:
    """One thread that takes snapshots of sealed segments and prunes.

    Args:
        system: the machine.
        paths: the directory.
        identity: its format.
        config: the log's settings.
        projection: what to replay into.
    """

    def __init__(
        self,
        system: System,
        paths: LogPaths,
        identity: Format,
        config: LogConfig,
        projection: Projection,
    ) -> None:
        self._system = system
        self._paths = paths
        self._identity = identity
        self._config = config
        self._projection = projection
        self._sealed: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._num_sealed = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="kvstrata-snapshots", daemon=True)
        self.last_error = ""

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def segment_sealed(self, path: Path, last_seqno: int) -> None:
        """A segment is sealed and durable; called by the writer, returns at once."""
        self._num_sealed += 1
        every = self._config.segments_per_snapshot
        if every and self._num_sealed % every == 0:
            self._sealed.put(last_seqno)

    def store(self, arena: Words, seqno: int) -> Path:
        """Write a snapshot now, on the calling thread, and prune.

        Raises:
            OSError: it was not stored.
        """
        with self._lock:
            path = write_snapshot(self._system, self._paths, self._identity, arena, seqno)
            prune(self._system, self._paths, self._identity, self._config)
        return path

    def end(self, timeout_s: float) -> None:
        """Finish what was asked for, then end the thread; waits at most so long."""
        self._sealed.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (seqno := self._sealed.get()) is not None:
            try:
                arena = replay_sealed(self._paths, self._identity, self._projection, seqno)
                self.store(arena, seqno)
            except (OSError, KvstrataError) as error:
                self.last_error = f"snapshot at event {seqno}: {error}"
