"""The writer thread: decides when the sink writes and syncs.

A failed write or sync poisons the log: nothing is tried again, because the kernel may have
dropped what it could not write, and a second sync would then report success for it.
"""

import threading
from typing import Final

from kvstrata.core.ring import RING_FLAG_POISONED

from .config import Durability, LogConfig
from .cursors import Cursors, Phase
from .formats import SealReason
from .sink import LogSink
from .system import System

__all__ = ["LogWriter"]

_SHORTEST_WAIT_S: Final = 0.0002
_LONGEST_WAIT_S: Final = 0.005
_FASTEST_EVENT_S: Final = 30e-9
_BACKLOG_PARTS: Final = 8


class LogWriter:
    """Drains the ring on a thread of its own.

    Args:
        system: the machine.
        config: the log's settings.
        cursors: of the ring.
        sink: owned by the thread from :meth:`start` on.
    """

    def __init__(self, system: System, config: LogConfig, cursors: Cursors, sink: LogSink) -> None:
        self._system = system
        self._durability = config.durability
        self._interval_ns = int(config.sync_interval_ms * 1e6)
        # Each look takes the interpreter from the engine's thread for a moment: no more of them
        # than it takes to see the ring before the fastest engine has filled half of it.
        half_s = config.ring_events / 2 * _FASTEST_EVENT_S
        self._pause_limit_s = min(max(half_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
        self._cursors = cursors
        self._sink = sink
        self._wanted = 0
        self._since_ns = system.monotonic_ns()
        self._ending = threading.Event()
        self._abandoned = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvstrata-log", daemon=True)

    def start(self) -> None:
        """Begin to drain."""
        self._cursors.beat(self._system.monotonic_ns())
        self._thread.start()

    @property
    def was_started(self) -> bool:
        """Whether it ever ran."""
        return self._thread.ident is not None

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def request(self, seqno: int) -> None:
        """Ask that everything up to a seqno be synced now; 0 only wakes the thread."""
        self._wanted = max(self._wanted, seqno)
        self._wake.set()

    def end(self, timeout_s: float) -> bool:
        """Drain, sync, seal the segment as closed, and end the thread.

        Returns:
            Whether all of it happened in time.
        """
        self._ending.set()
        self._wake.set()
        if not self.was_started:
            self.start()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._cursors.is_stopped

    def abandon(self, timeout_s: float) -> None:
        """End the thread where it stands, as a crash would; waits at most so long."""
        self._abandoned.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        cursors = self._cursors
        try:
            while not (cursors.is_stopped or self._ending.is_set() or self._abandoned.is_set()):
                self._round()
            if self._ending.is_set() and not cursors.is_stopped:
                self._sink.drain(cursors.head)
                self._sink.seal(SealReason.CLOSED)
        except OSError as error:
            cursors.stop(RING_FLAG_POISONED, f"{cursors.phase.name.lower()}: {error}")
        except BaseException as error:
            cursors.stop(RING_FLAG_POISONED, f"the writer ended by {error!r}")
            raise
        finally:
            cursors.enter(Phase.STOPPED)
            self._sink.close()

    def _round(self) -> None:
        """Write what is due, sync what is due, wait."""
        now_ns = self._system.monotonic_ns()
        cursors = self._cursors
        cursors.beat(now_ns)
        self._wake.clear()
        head, drained, durable = cursors.head, cursors.drained, cursors.durable
        wanted = self._wanted > durable
        if not self._has_work(head, drained, durable) and not wanted:
            self._since_ns = now_ns  # what comes after this look waits from here
        elif wanted or self._is_due(now_ns):
            self._sink.drain(head)
            if wanted or self._durability is not Durability.NONE:
                self._sink.sync()
            self._since_ns = now_ns
        elif head - drained >= cursors.capacity // _BACKLOG_PARTS:
            self._sink.drain(head)
        self._sink.prepare()
        cursors.enter(Phase.WAITING)
        self._wake.wait(self._pause_s())

    def _has_work(self, head: int, drained: int, durable: int) -> bool:
        return head > (drained if self._durability is Durability.NONE else durable)

    def _is_due(self, now_ns: int) -> bool:
        return self._durability is Durability.ALWAYS or now_ns - self._since_ns >= self._interval_ns

    def _pause_s(self) -> float:
        """Until the next look: never past the moment when something could be due."""
        if self._durability is Durability.ALWAYS:
            return _SHORTEST_WAIT_S
        due_ns = self._since_ns + self._interval_ns - self._system.monotonic_ns()
        return min(max(due_ns / 1e9, _SHORTEST_WAIT_S), self._pause_limit_s)
