"""A whole plant: an engine in a process of its own, a follower, its exporter, and the servers."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kvstrata.dashboard.exporter import Exporter
from kvstrata.eventstore.history.follower import Follower
from tests.processes import free_port

from .stack import Prometheus, Webhook, serving, stack

REPOSITORY = Path(__file__).resolve().parents[3]
STOP_S = 20.0


class Plant:
    """What the tests break and mend.

    Attributes:
        prometheus: asks Prometheus.
        webhook: what Alertmanager told.
        began_s: Unix time at which it was whole.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        self.prometheus: Prometheus
        self.webhook: Webhook
        self.began_s = time.time()
        self._exporting = ExitStack()
        self._child: subprocess.Popen[str] | None = None
        self.start_engine()
        self.follower = Follower(root / "log", shared_memory_root=root / "shared")
        self._follows, self._ends = threading.Event(), threading.Event()
        self._follows.set()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        self.exporter = Exporter(self.follower, index_lag_interval_s=0.2)
        self.start_exporter()

    def start_engine(self) -> None:
        """A new life of the engine."""
        command = [sys.executable, "-m", "tests.dashboard.live.engine_child", str(self.root)]
        self._child = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer("ready")

    def tell(self, command: str) -> None:
        """Have the engine do something; returns when it is done."""
        assert self._child is not None
        assert self._child.stdin is not None
        self._child.stdin.write(f"{command}\n")
        self._child.stdin.flush()
        self._answer(f"{command} done")

    def _answer(self, expected: str) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        assert self._child.stdout.readline().strip() == expected

    def kill_engine(self) -> None:
        """As the kernel does when memory runs out."""
        assert self._child is not None
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()
        self._child = None

    def start_exporter(self) -> None:
        """Serve /metrics."""
        self._exporting.enter_context(serving(lambda _: self.exporter.render(), self.port))

    def stop_exporter(self) -> None:
        """Serve nothing any more."""
        self._exporting.close()

    def stop_follower(self) -> None:
        """Its thread stands still."""
        self._follows.clear()

    def start_follower(self) -> None:
        """It goes on where it stood."""
        self._follows.set()

    def _follow(self) -> None:
        while not self._ends.wait(0.02):
            if self._follows.is_set():
                self.follower.step()

    def close(self) -> None:
        """End what runs, the engine in order where it can."""
        self._exporting.close()
        self._ends.set()
        self._thread.join()
        self.follower.close()
        if self._child is not None:
            self.kill_engine()


@contextmanager
def plant() -> Iterator[Plant]:
    """A plant on tmpfs, with Prometheus scraping it."""
    root = Path("/dev/shm") / f"kvstrata-tests-{uuid.uuid4().hex}"
    for folder in ("shared", "disk", "servers"):
        (root / folder).mkdir(parents=True)
    try:
        made = Plant(root)
        try:
            with stack(root / "servers", made.port) as (made.prometheus, made.webhook):
                made.began_s = time.time()
                yield made
        finally:
            made.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
