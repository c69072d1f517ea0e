"""A reader beside the engine: it tails the log and keeps tables and a tally of its own."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import ArenaParams, Tables, open_tables
from kvstrata.core.errors import ConfigError, InvariantViolation, KvstrataError
from kvstrata.core.events import EVENT_DTYPE, EVENT_WORDS, LAST_OF_CALL
from kvstrata.core.layout import CacheLayout
from kvstrata.core.refusals import refusal_text
from kvstrata.eventstore.log.projection import Words
from kvstrata.eventstore.log.status import LogStatus
from kvstrata.eventstore.log.tmpfs import DEFAULT_ROOT

from .drift import DIGESTS, DigestComparison, DriftFound
from .following import Following, is_replaced
from .memory import TallyMemory
from .position import Position
from .tail import SegmentChanged
from .tally import Tally

__all__ = ["Follower", "Position"]

_LOG: Final = logging.getLogger("kvstrata.history")
_SAVE_S: Final = 1.0
_FLAGS_BIT: Final = 40

Listener = Callable[[npt.NDArray[np.void]], None]


class Follower:
    """Tails a log directory and keeps its own projection; never blocks the engine.

    Several may follow one log, in the engine's process or in others. Only durable events are
    applied: what a crash of the machine can take back was never shown. The directory may come
    later, be rotated, pruned and recovered, or be replaced by another log.

    Args:
        directory: the log directory.
        shared_memory_root: where the engine's ring is.
        memory: file that keeps the tally across restarts of the follower; None keeps nothing, and
            the tally begins with the first event that the log still holds.

    Attributes:
        lock: held while tables and tally change; readers hold it while they read them.
        drift: divergences of the tables found so far, oldest first.
        drifts_found: how many; ``drift`` keeps the newest.
    """

    def __init__(
        self,
        directory: Path,
        *,
        shared_memory_root: Path = DEFAULT_ROOT,
        memory: Path | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.lock = threading.Lock()
        self._shared_memory_root = Path(shared_memory_root)
        self._memory = None if memory is None else TallyMemory(Path(memory))
        self._stepping = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._listeners: list[Listener] = []
        self._following: Following | None = None
        self._tables: Tables | None = None
        self._tally: Tally | None = None
        self._comparison = DigestComparison(0)
        self._pending: Words = np.zeros((0, EVENT_WORDS), dtype=np.int64)
        self._refused_at = 0
        self._is_closed = False
        self._restarts = self._missed_events = self._applied_events = 0
        self._apply_seconds = 0.0
        self._replayed = False
        self._error = ""
        self._caught_up_s = self._saved_s = time.monotonic()
        try:
            with self._stepping:
                self._begin()
        except (KvstrataError, OSError) as error:
            self._failed(error)

    # what readers see

    @property
    def layout(self) -> CacheLayout:
        """The layout of the cache. Raises ConfigError where there is no log yet."""
        return self._open().layout

    @property
    def params(self) -> ArenaParams:
        """Sizes of the tables. Raises ConfigError where there is no log yet."""
        return self._open().params

    @property
    def arena(self) -> Words:
        """The tables' words; another object once the follower began anew."""
        return self._open().arena

    @property
    def tables(self) -> Tables:
        """Views of :attr:`arena`. Raises ConfigError where there is no log yet."""
        if self._tables is None:
            raise self._no_log()
        return self._tables

    @property
    def tally(self) -> Tally:
        """Counts of all events. Raises ConfigError where there is no log yet."""
        if self._tally is None:
            raise self._no_log()
        return self._tally

    @property
    def tier_names(self) -> tuple[str, ...]:
        """Names of the tiers below the device, as the engine said when it opened."""
        return self._open().tier_names()

    @property
    def is_open(self) -> bool:
        """Whether there is a log; before, only :meth:`position` and :meth:`status` answer."""
        return self._following is not None

    @property
    def drift(self) -> list[DriftFound]:
        """See the class."""
        return list(self._comparison.found)

    @property
    def drifts_found(self) -> int:
        """See the class."""
        return self._comparison.num_found

    @property
    def digests(self) -> tuple[int, int]:
        """Digests of the engine's tables that were equal to the follower's, and that were not."""
        return self._comparison.equal, self._comparison.differed

    def _open(self) -> Following:
        if self._following is None:
            raise self._no_log()
        return self._following

    def _no_log(self) -> ConfigError:
        return ConfigError(
            f"expected a kvstrata log in {self.directory}, found none yet "
            f"({self._error or 'nothing was read'}); open an engine with it, or wait"
        )

    def position(self) -> Position:
        """Where it stands now; the durable end is looked up anew."""
        following = self._following
        if following is None:
            return Position(error=self._error, restarts=self._restarts)
        seqno, durable = following.seqno, following.durable.read()
        lag = max(durable - seqno, 0)
        return Position(
            seqno=seqno,
            durable_seqno=durable,
            lag_events=lag,
            lag_seconds=time.monotonic() - self._caught_up_s if lag else 0.0,
            event_time_ns=following.event_time_ns,
            segment_id=following.segment_id,
            epoch=following.epoch,
            restarts=self._restarts,
            missed_events=self._missed_events,
            applied_events=self._applied_events,
            apply_seconds=self._apply_seconds,
            replayed=self._replayed,
            error=self._error,
        )

    def status(self) -> LogStatus | None:
        """The engine's status page; None where no ring is."""
        return None if self._following is None else self._following.durable.status()

    def add_listener(self, listener: Listener) -> None:
        """Have events told as they are applied.

        Args:
            listener: called in :meth:`step` after they were applied, outside the lock, with
                EVENT_DTYPE[n], which holds until it returns. One that raises is logged and told
                the next events all the same.
        """
        self._listeners.append(listener)

    # following

    def start(self, interval_s: float = 0.05) -> None:
        """Step on a thread of its own, at once where there is more, else after a while."""
        if self._thread is not None:
            return
        self._stop.clear()
        self._thread = threading.Thread(
            target=self._run, args=(interval_s,), name="kvstrata-follower", daemon=True
        )
        self._thread.start()

    def _run(self, interval_s: float) -> None:
        while not self._stop.is_set():
            if self.step() == 0:
                self._stop.wait(interval_s)

    def step(self, max_events: int = 1 << 16) -> int:
        """Read and apply the next durable events, at most about so many, whole calls.

        What goes wrong stands in :meth:`position` and is tried again with the next step.

        Returns:
            How many were read; 0 where there is nothing more for now, or it was closed.
        """
        with self._stepping:
            if self._is_closed:
                return 0
            try:
                done = self._step(max_events)
            except (KvstrataError, OSError) as error:
                self._failed(error)
                done = 0
            except Exception as error:
                _LOG.exception("the follower of %s failed", self.directory)
                self._failed(error)
                done = 0
            if not done:
                self._save(False)
        return done

    def _failed(self, error: Exception) -> None:
        self._error = str(error) or type(error).__name__

    def _step(self, max_events: int) -> int:
        following = self._following
        if following is None or is_replaced(following):
            self._begin()
            following = self._open()
        elif self._refused_at:
            if not following.has_snapshot_after(self._refused_at):
                return 0
            self._begin()
            following = self._open()
        try:
            words = self._next_words(following, max_events)
        except SegmentChanged:
            words = None
        if words is None:  # what comes next was pruned away, or cut off and written anew
            self._begin()
            following = self._open()
            words = self._next_words(following, max_events)
        if words is None or not len(words):
            self._error = ""
            if following.seqno >= following.durable.read():
                self._caught_up_s, self._replayed = time.monotonic(), True
            return 0
        fresh = self._apply(following, words)
        self._error = ""
        if len(fresh):
            self._tell(fresh)
        if time.monotonic() - self._saved_s > _SAVE_S:
            self._save(True)
        return len(words)

    def _tell(self, events: npt.NDArray[np.void]) -> None:
        for listener in list(self._listeners):
            try:
                listener(events)
            except Exception:  # one that fails must not hold up the others, or the follower
                _LOG.exception("a listener of the follower of %s failed", self.directory)

    def _begin(self) -> None:
        """Begin, or begin anew: with the newest snapshot that holds."""
        before, tally = self._following, self._tally
        following = Following(self.directory, self._shared_memory_root)
        if tally is None or before is None or before.epoch != following.epoch:
            tally = Tally(following.layout, following.params)
            if self._memory is not None:
                self._memory.load(tally, following.epoch)
        first = following.first_seqno()
        if tally.seqno and first > tally.seqno + 1:
            self._missed_events += first - 1 - tally.seqno
        tally.begin_at(first)
        following.start_reading(min(following.seqno, tally.seqno) + 1)
        if before is not None:  # only now: what fails above is tried again from where it stood
            before.close()
        with self.lock:
            self._following, self._tally = following, tally
            self._tables = open_tables(following.arena)
        self._comparison.begin(following.seqno)
        self._pending = self._pending[:0]
        self._restarts += before is not None
        self._refused_at = 0

    def _next_words(self, following: Following, max_events: int) -> Words | None:
        """The next whole calls, at most about so many events; None where they were pruned."""
        if not len(self._pending):
            found = following.read(max_events)
            if found is None:
                return None
            self._pending = found
        words = self._pending
        if len(words) > max_events:
            ends = np.flatnonzero((words[:, 2] >> _FLAGS_BIT) & LAST_OF_CALL) + 1
            place = min(int(np.searchsorted(ends, max_events)), len(ends) - 1)
            words = words[: int(ends[place])]
        self._pending = self._pending[len(words) :]
        return words

    def _apply(self, following: Following, words: Words) -> npt.NDArray[np.void]:
        """Apply and count what was not yet; returns what was applied."""
        tally = self.tally
        first = int(words[0, 0])
        fresh = words[max(following.seqno - first + 1, 0) :]
        began_s = time.perf_counter()
        kinds = fresh[:, 2] & 0xFF
        digests = np.flatnonzero((kinds == DIGESTS[0]) | (kinds == DIGESTS[1]))
        at = 0
        for place in [*digests.tolist(), len(fresh)]:
            if place > at:
                with self.lock:
                    self._apply_piece(following, fresh[at:place])
                at = place
            if place < len(fresh):
                event = fresh[place].view(EVENT_DTYPE)
                self._comparison.compare(following.arena, event)
        with self.lock:
            tally.add(_events(words[max(tally.seqno - first + 1, 0) :]))
        following.look_at(fresh)
        self._apply_seconds += time.perf_counter() - began_s
        self._applied_events += len(fresh)
        return _events(fresh)

    def _apply_piece(self, following: Following, words: Words) -> None:
        done = following.projection.apply(following.arena, words)
        if done == len(words):
            return
        event = words[done]
        why = refusal_text(following.projection.refusal(following.arena))
        self._refused_at = seqno = int(event[0])
        self._comparison.add(DriftFound("refused", -1, 1, seqno, seqno, int(event[1]), why, ""))
        raise InvariantViolation(
            f"expected event {seqno} to apply, found it refused ({why}); the follower waits for a "
            "newer snapshot to begin anew with"
        )

    def _save(self, is_due: bool) -> None:
        """Keep the tally, now and then."""
        tally, now_s = self._tally, time.monotonic()
        if self._memory is None or tally is None or self._following is None:
            return
        if is_due or now_s - self._saved_s > _SAVE_S:
            self._saved_s = now_s
            try:
                self._memory.save(tally, self._following.epoch)
            except OSError as error:
                _LOG.warning("expected to keep the tally, found %s", error)

    def close(self) -> None:
        """Stop, and keep the tally; closing twice is allowed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._stepping:
            self._is_closed = True
            self._save(True)
            if self._following is not None:
                self._following.close()

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _events(words: Words) -> npt.NDArray[np.void]:
    events: npt.NDArray[np.void] = words.reshape(-1).view(EVENT_DTYPE)
    return events
