"""Processes that a command starts: apart from the terminal, and never left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from multiprocessing.connection import Pipe

__all__ = ["ChildProcess", "ConnectedProcess"]


class ChildProcess:
    """A process of a group of its own, so that Ctrl-C in the terminal reaches its parent alone.

    Args:
        command: the program and its arguments.
        pass_fds: descriptors that it inherits.
    """

    def __init__(self, command: list[str], pass_fds: tuple[int, ...] = ()) -> None:
        self._process = subprocess.Popen(
            command,
            pass_fds=pass_fds,
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where one ended it."""
        return self._process.poll()

    def kill(self) -> int:
        """Send SIGKILL, if it still runs; returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        return self._process.wait()

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; it is killed where that takes longer. Returns its exit code."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()


class ConnectedProcess(ChildProcess):
    """A module that runs with one end of a pipe; it ends by itself when the other end is gone.

    Args:
        module: its name; it is given the descriptor of its end as its only argument.
    """

    def __init__(self, module: str) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            super().__init__([sys.executable, "-m", module, str(number)], (number,))
