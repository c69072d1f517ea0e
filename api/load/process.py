"""A load's hold on its processes: started apart from the terminal, and never left behind."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import Final

from ..children import ChildProcess, ConnectedProcess
from .config import LoadConfig
from .messages import Open
from .talk import Talk

__all__ = ["EngineProcess", "ServerProcess"]

_END_S: Final = 20.0
_KVSTRATA: Final = "from kvstrata.api.cli import main; main()"


class EngineProcess(ConnectedProcess):
    """One life of the engine: it imports what it needs, and waits until it is opened."""

    def __init__(self) -> None:
        super().__init__("kvstrata.api.load.engine")

    def open(self, config: LoadConfig, talks: dict[int, Talk]) -> None:
        """Have it open its manager and serve.

        Args:
            config: of the load.
            talks: what was said so far, by number.
        """
        self.send(Open(config, talks))

    def send(self, command: object) -> None:
        """Tell it something; a dead one hears nothing."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(command)

    def receive(self, timeout_s: float) -> object | None:
        """What it says next, None where it says nothing in that time.

        Raises:
            EOFError: it is dead, and has said all it said.
        """
        if not self._connection.poll(timeout_s):
            return None
        try:
            found: object = self._connection.recv()
        except ConnectionResetError as error:
            raise EOFError from error
        return found

    def ended(self) -> int:
        """Wait until it has ended; returns its exit code."""
        with suppress(EOFError):
            while self.receive(_END_S) is not None:
                pass  # what it still says is not needed any more
        code = self.wait(_END_S)
        self._connection.close()
        return code


class ServerProcess(ChildProcess):
    """The admin API over a log directory.

    Args:
        config: of the load, with ``serve``.
    """

    def __init__(self, config: LoadConfig) -> None:
        serve = config.serve
        if serve is None:
            raise RuntimeError("expected a load with an API")
        arguments = [str(config.place), *serve.arguments]
        arguments += ["--shared-memory-root", str(config.shared_memory_root)]
        super().__init__([sys.executable, "-c", _KVSTRATA, "serve", *arguments])

    def end(self) -> int:
        """Ask it to end, and wait; returns its exit code."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait(_END_S)
