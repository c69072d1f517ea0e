"""Commands and servers that tests start as processes of their own."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path

KVSTRATA = [sys.executable, "-c", "from kvstrata.api.cli import main; main()"]


def children_of(pid: int) -> list[int]:
    """Ids of the processes that a process started and that are still there."""
    tasks = Path(f"/proc/{pid}/task")
    return [
        int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()
    ]


def heed_interrupts() -> None:
    """As in a terminal; whoever runs the tests in the background may have SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def free_port() -> int:
    """One that nobody listened at just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
