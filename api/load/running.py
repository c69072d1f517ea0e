"""A load from its start to its end: the engine and the API are kept alive, faults are injected."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from kvstrata import InvariantViolation, Recovery
from kvstrata.eventstore.log.tmpfs import place_of

from . import messages as m
from .config import LoadConfig
from .faults import Fault, FaultPlan
from .process import EngineProcess, ServerProcess
from .screen import Screen
from .talk import Talk

__all__ = ["Load", "run_load"]

_STATUS_S: Final = 1.0
_YOUNG_S: Final = 20.0
_MOST_YOUNG_DEATHS: Final = 3
"""Engines that died unasked, each soon after its start: then something is wrong for good."""


def run_load(config: LoadConfig, screen: Screen, stopped: Callable[[], bool]) -> m.Counts:
    """Keep an engine at work.

    Args:
        config: of the load.
        screen: where to show it.
        stopped: whether to end; asked often.

    Returns:
        What was done, in all lives of the engine.

    Raises:
        ConfigError: the engine cannot be opened as it is called.
        InvariantViolation: the API ended, or the engine dies again and again.
    """
    with ExitStack() as stack:
        if config.directory is None:
            config = replace(config, directory=stack.enter_context(_place_of_the_moment(config)))
        load = stack.enter_context(closing(Load(config, screen)))
        load.run(stopped)
    return load.counts


@contextmanager
def _place_of_the_moment(config: LoadConfig) -> Iterator[Path]:
    """A place for the log, its catalogue and its memory, all of it removed at the end."""
    with tempfile.TemporaryDirectory(prefix="kvstrata-load-") as folder:
        directory = Path(folder) / "log"
        try:
            yield directory
        finally:
            shutil.rmtree(place_of(directory, config.shared_memory_root).root, ignore_errors=True)


class Load:
    """A load under way.

    Args:
        config: what it was called with.
        screen: where to show it.
    """

    def __init__(self, config: LoadConfig, screen: Screen) -> None:
        self._config = config
        self._screen = screen
        self._talks: dict[int, Talk] = {}
        self._before = m.Counts()
        self._beat: m.Beat | None = None
        self._server: ServerProcess | None = None
        self._began_s = time.monotonic()
        self._life_s = self._began_s
        self._lives = 0
        self._young_deaths = 0
        self._is_killed = self._is_open = False
        has_folder = "://" not in config.tier_urls[0]
        self._faults = FaultPlan(config.fault_every_s, has_folder, self._began_s)
        self._heir: EngineProcess | None = None
        self._engine = self._born()

    @property
    def counts(self) -> m.Counts:
        """What was done so far, in all lives."""
        return self._before if self._beat is None else self._before.plus(self._beat.counts)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Until it is stopped, or its time is over.

        Raises:
            KvstrataError: it cannot go on; see :func:`run_load`.
        """
        status_s = 0.0
        while not stopped() and not self._is_over():
            try:
                self._hear(self._engine.receive(0.05))
            except EOFError:
                self._bury()
            now_s = time.monotonic()
            if now_s >= status_s:
                elapsed_s = now_s - self._began_s
                self._screen.status(elapsed_s, self.counts, self._beat, self._lives)
                status_s = now_s + _STATUS_S
                self._look_after_server()
            if self._beat is not None:
                self._inject(self._faults.due(now_s))

    def close(self) -> None:
        """End the engine in order, then the API; one that does not serve yet is killed."""
        try:
            if self._is_open:
                self._engine.send(m.End())
                self._engine.ended()
        finally:
            for process in (self._engine, self._heir):
                if process is not None:
                    process.kill()
            if self._server is not None:
                self._server.end()
        self._screen.end()

    def _is_over(self) -> bool:
        duration_s = self._config.duration_s
        return duration_s is not None and time.monotonic() - self._began_s >= duration_s

    def _born(self) -> EngineProcess:
        self._lives += 1
        self._life_s = time.monotonic()
        self._is_killed = self._is_open = False
        engine = EngineProcess() if self._heir is None else self._heir
        engine.open(self._config, self._talks)
        # Who is going to be killed has an heir that need not import anything first.
        self._heir = None if self._config.fault_every_s is None else EngineProcess()
        return engine

    def _hear(self, message: object | None) -> None:
        match message:
            case m.Opened():
                self._is_open = True
                self._say_opened(message.recovery)
            case m.Beat():
                self._beat = message
            case m.Heard():
                self._talks[message.number] = message.talk
            case m.Told(what=None):
                self._faults.not_yet(time.monotonic())
            case m.Told():
                self._screen.say("fault", f"fault: bits flipped in {message.what}")
                self._faults.done(time.monotonic())
            case m.Failed():
                raise message.error

    def _say_opened(self, recovery: Recovery | None) -> None:
        if self._lives == 1:
            self._screen.say(
                "engine", f"engine: process {self._engine.pid} serves", pid=self._engine.pid
            )
        elif recovery is not None:
            kept, lost = recovery.pages_kept, sum(recovery.pages_lost.values())
            seconds = time.monotonic() - self._life_s
            self._screen.say(
                "recovered",
                f"engine: process {self._engine.pid} recovered {kept:,} pages, {lost:,} are lost; "
                f"serves again after {seconds:.1f} s",
                pages_kept=kept,
                pages_lost=lost,
                seconds=round(seconds, 3),
                pid=self._engine.pid,
            )
        if self._config.serve is not None and self._server is None:
            self._server = ServerProcess(self._config)
            where = f"http://{self._config.serve.host}:{self._config.serve.port}"
            self._screen.say("server", f"server: process {self._server.pid} at {where}", url=where)

    def _bury(self) -> None:
        """The engine is dead: count what it said last, and start the next one."""
        code = self._engine.ended()
        if not self._is_killed:
            is_young = time.monotonic() - self._life_s < _YOUNG_S
            self._young_deaths = self._young_deaths + 1 if is_young else 0
            self._screen.say("died", f"engine: died unasked with exit code {code}", exit_code=code)
            if self._young_deaths >= _MOST_YOUNG_DEATHS:
                raise InvariantViolation(
                    f"load: expected the engine to live, found it dead {self._young_deaths} times "
                    f"within {_YOUNG_S:g} s of its start; what it printed says why"
                )
        self._before, self._beat = self.counts, None
        self._faults.not_yet(time.monotonic())
        self._engine = self._born()

    def _inject(self, fault: Fault | None) -> None:
        match fault:
            case Fault.PAGE:
                self._engine.send(m.Flip(self._faults.kind()))
            case Fault.OBJECT:
                self._engine.send(m.Damage())
            case Fault.KILL:
                self._screen.say("fault", f"fault: kill -9 {self._engine.pid}")
                self._is_killed = True
                self._engine.kill()
                self._faults.done(time.monotonic())

    def _look_after_server(self) -> None:
        if self._server is not None and (code := self._server.exit_code) is not None:
            raise InvariantViolation(
                f"load: expected the API to go on, found it ended with exit code {code}; what it "
                "printed says why"
            )
