"""EventLog: one directory's log, opened for writing.

Life, each verb once and in this order:

1. ``open``: take the lock, read and judge what is there, replay, settle, begin an incarnation.
2. ``start``: let the writer drain the ring.
3. ``flush``, ``put_blob``, ``snapshot``: as often as wanted.
4. ``settle_recovery``: the manager's recovery is in the log; the pools are believed again.
5. ``end_epoch``: only where the log cannot go on; serving does, a restart will be cold.
6. ``close``.
"""

import threading
import time
from pathlib import Path
from typing import Any, Final

from kvstrata.core.arena import ArenaParams
from kvstrata.core.errors import LogError, LogPoisoned
from kvstrata.core.layout import CacheLayout
from kvstrata.core.ring import (
    RING_FLAG_CLOSED,
    RING_FLAG_POISONED,
    RING_FLAG_UNLOGGED,
    RING_FLAGS,
)

from .blobs import get_blob, put_blob
from .config import LogConfig
from .cursors import Patience
from .directory import LogPaths, Marker
from .lock import DirectoryLock
from .opening import Opened, open_directory
from .projection import Projection, Words, core_projection
from .recovery import RecoveryReport
from .status import LogStatus, status_of
from .system import System

__all__ = ["EventLog"]

_MARKER_WAIT_S: Final = 0.2
_LOOK_S: Final = 0.02


class EventLog:
    """The log of one engine. Made by :meth:`open`; one thread calls its methods.

    Attributes:
        arena: int64[...], the recovered state; the caller's to mutate.
        recovery: what was found.
        incarnation: number of this life of the engine.
        ring: int64[...], for the mutating thread to publish into.
        pools_dir: folder for the pools' files, in memory that survives the process.
        place_note: empty, or why that memory is a disk.
    """

    def __init__(self, opened: Opened, lock: DirectoryLock) -> None:
        self._system = opened.system
        self._paths = opened.paths
        self._config = opened.config
        self._projection = opened.projection
        self._cursors = opened.cursors
        self._writer = opened.writer
        self._maintenance = opened.maintenance
        self._lock = lock
        self._is_closed = False
        self._marking: threading.Thread | None = None
        self.arena: Words = opened.arena
        self.recovery: RecoveryReport = opened.report
        self.ring: Words = opened.ring.words
        self.incarnation = opened.incarnation
        self.pools_dir = opened.place.pools
        self.place_note = opened.place.note

    @classmethod
    def open(
        cls,
        directory: Path,
        layout: CacheLayout,
        config: LogConfig,
        params: ArenaParams,
        *,
        projection: Projection | None = None,
        system: System | None = None,
    ) -> "EventLog":
        """Open a directory for writing, and recover what is in it.

        Args:
            directory: an empty or new directory, or a log.
            layout: of the cache.
            config: the log's settings.
            params: sizes of the arena.
            projection: what to replay into; the core's own tables unless a test brings another.
            system: the machine; tests bring one that fails.

        Raises:
            ConfigError: not a log directory, a log of another layout or other sizes, or no room
                in shared memory.
            DirectoryBusy: another process writes it.
            UnknownSchema: written by another version.
            CorruptSegment: acknowledged events are damaged or gone.
            LogError: the device failed.
        """
        system = system if system is not None else System()
        projection = projection if projection is not None else core_projection(layout, params)
        paths = LogPaths(Path(directory))
        try:
            paths.make(system)
            lock = DirectoryLock(paths)
        except OSError as error:
            raise LogError(f"expected to make {directory}, found {error}") from error
        try:
            return cls(open_directory(system, paths, config, projection), lock)
        except OSError as error:
            lock.release()
            raise LogError(
                f"expected to open the log in {directory}, found {error}; nothing acknowledged "
                "is lost: mend the device and open again"
            ) from error
        except BaseException:
            lock.release()
            raise

    def start(self) -> None:
        """Start the writer thread."""
        self._writer.start()
        self._maintenance.start()

    @property
    def poisoned(self) -> bool:
        """Whether nothing more becomes durable: a failure, or the epoch was ended."""
        return self._cursors.is_stopped

    @property
    def reason(self) -> str:
        """Why it was poisoned or ended, "" where it was not."""
        return self._cursors.reason

    @property
    def snapshot_error(self) -> str:
        """The last snapshot on rotation that failed, "" where none did."""
        return self._maintenance.last_error

    def status(self) -> LogStatus:
        """One look at the status page."""
        return status_of(self.ring, self._config.stall_limit_ms)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything published before the call is durable; never longer than a limit.

        Args:
            timeout_s: the limit; ``flush_timeout_ms`` where None.

        Raises:
            LogPoisoned: it is not durable: a failure, an ended epoch, a dead or stalled writer,
                or the limit passed.
        """
        cursors = self._cursors
        target = cursors.head
        limit_s = self._config.flush_timeout_ms / 1e3 if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        patience = Patience(cursors)
        self._require_writer(target, patience)
        self._writer.request(target)
        while not cursors.wait_for_durable(target, _LOOK_S):
            patience.look(_LOOK_S * 1e3)
            self._require_writer(target, patience)
            if time.monotonic() > deadline:
                raise LogPoisoned(
                    f"expected events up to {target} to become durable in {limit_s:g} s, found "
                    f"{cursors.durable} durable and the writer {cursors.phase.name.lower()}; "
                    "flush again, or end the epoch"
                )

    def _require_writer(self, target: int, patience: Patience) -> None:
        cursors = self._cursors
        if cursors.is_stopped:
            found = cursors.reason or "the log stopped"
        elif not self._writer.is_alive:
            found = "a dead writer" if self._writer.was_started else "a writer never started"
        else:
            if patience.silence_ms <= self._config.stall_limit_ms:
                return
            found = (
                f"a writer silent for {patience.silence_ms:.0f} ms while "
                f"{cursors.phase.name.lower()}"
            )
        raise LogPoisoned(
            f"expected events up to {target} to become durable, found {found}; durable up to "
            f"{cursors.durable}: go on unlogged (end_epoch) and restart with a sound device"
        )

    def end_epoch(self, reason: str) -> None:
        """Go on unlogged: nothing more becomes durable, and a restart will come up cold.

        Returns at once even where the device hangs; the flag in the status page holds without
        the marker's file as long as the machine is up, and a boot distrusts the pools anyway.
        """
        self._cursors.stop(RING_FLAG_UNLOGGED, f"an ended epoch ({reason})")
        self._writer.request(0)
        if self._marking is None:
            self._marking = threading.Thread(
                target=self._mark_unlogged, args=(reason,), name="kvstrata-marker", daemon=True
            )
            self._marking.start()
        self._marking.join(_MARKER_WAIT_S)

    def _mark_unlogged(self, reason: str) -> None:
        try:
            self._paths.set_marker(self._system, Marker.UNLOGGED, reason)
        except OSError:
            return  # the status page says it; nothing else can be done on a failing device

    def distrust_pools(self, reason: str) -> None:
        """Somebody may still write the pools: the next start comes up without their pages.

        The log itself goes on.
        """
        try:
            self._paths.set_marker(self._system, Marker.UNTRUSTED, reason)
        except OSError:
            self.end_epoch(reason)

    def settle_recovery(self) -> None:
        """Believe the pools again: call it once the manager's recovery is in the log.

        Raises:
            LogPoisoned: the log failed; the next start distrusts the pools again.
            LogError: the markers were not cleared, likewise.
        """
        self.flush()
        try:
            for marker in Marker:
                self._paths.clear_marker(self._system, marker)
        except OSError as error:
            raise LogError(f"expected to clear the markers, found {error}") from error

    def put_blob(self, value: Any) -> bytes:
        """Store a JSON value durably, before an event names it.

        Returns:
            Its digest, 16 bytes.

        Raises:
            LogError: it was not stored.
        """
        try:
            return put_blob(self._system, self._paths, value)
        except OSError as error:
            raise LogError(f"expected to store a blob, found {error}") from error

    def get_blob(self, digest: bytes) -> Any:
        """A stored JSON value by its digest. Raises LogError."""
        return get_blob(self._paths, digest)

    def snapshot(self, arena: Words, seqno: int) -> Path:
        """Store an arena, so that a replay begins there.

        Args:
            arena: as of ``seqno``.
            seqno: published already.

        Returns:
            The file.

        Raises:
            LogPoisoned: the events up to ``seqno`` do not become durable.
            LogError: the arena is not at ``seqno``, or was not stored.
        """
        found = self._projection.last_seqno(arena)
        if found != seqno or seqno > self._cursors.head:
            raise LogError(
                f"expected an arena at event {seqno} of {self._cursors.head}, found one at {found}"
            )
        if self.poisoned or self._cursors.durable < seqno:
            self.flush()
        try:
            return self._maintenance.store(arena, seqno)
        except OSError as error:
            raise LogError(f"expected to store a snapshot, found {error}") from error

    def close(self, clean: bool = True) -> None:
        """End the log; a second close does nothing. Never hangs.

        The directory stays locked where the writer hangs: only the process's end frees it then.

        Args:
            clean: store a snapshot of :attr:`arena` where it stands at the log's end. False
                leaves the log as a crash would, but releases the directory.

        Raises:
            LogPoisoned: what was published did not all become durable.
            LogError: the snapshot was not stored; the log itself is whole.
        """
        if self._is_closed:
            return
        self._is_closed = True
        limit_s = self._config.flush_timeout_ms / 1e3
        try:
            if not self._writer.was_started:
                self.start()
            if clean and not self.poisoned:
                self._close_cleanly(limit_s)
            else:
                self._abandon(limit_s)
        finally:
            # A thread that still hangs in a write must not meet the directory's next writer.
            if not self._writer.is_alive:
                self._lock.release()

    def _close_cleanly(self, limit_s: float) -> None:
        ended = self._writer.end(limit_s)
        self._maintenance.end(limit_s)
        head = self._cursors.head
        if not ended or self._cursors.durable < head:
            # The ring stays whole: a restart appends its events, but starts cold.
            self._cursors.stop(RING_FLAG_POISONED, "closed before the writer was done")
            raise LogPoisoned(
                f"expected events up to {head} to become durable on close, found "
                f"{self._cursors.durable} durable ({self.reason}); the next start will be cold"
            )
        if self._projection.last_seqno(self.arena) == head > 0:
            try:
                self._maintenance.store(self.arena, head)
            except OSError as error:
                raise LogError(f"expected to store a snapshot on close, found {error}") from error
        self.ring[RING_FLAGS] |= RING_FLAG_CLOSED

    def _abandon(self, limit_s: float) -> None:
        self._writer.abandon(limit_s)
        self._maintenance.end(limit_s)
