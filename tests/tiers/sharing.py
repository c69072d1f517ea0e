"""A process that serves texts above shared tiers, on command; and the hold of its parent on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from kvstrata import CacheManager
from kvstrata.tiers.config import TierConfig

from . import spilling

ROOT = Path(__file__).parents[2]
ANSWER_S = 60.0


class Worker:
    """Carries out commands: a name of a method and its arguments."""

    def __init__(self) -> None:
        self.cache: CacheManager | None = None

    @property
    def opened(self) -> CacheManager:
        assert self.cache is not None
        return self.cache

    def open(self, root: Path, tiers: tuple[TierConfig, ...], **fields: Any) -> None:
        self.close()
        self.cache = spilling.Where(root).open(tiers, **fields)

    def close(self) -> None:
        if self.cache is not None:
            self.cache.check_integrity()
            self.cache.close()
            self.cache = None

    def serve(self, texts: list[int], length: int, max_resume: int | None = None) -> list[int]:
        """Serve texts, every page of a hit compared with what was written; where they resumed."""
        return [spilling.serve(self.opened, text, length, 0, max_resume) for text in texts]

    def prefetch(self, text: int, length: int) -> bool:
        return self.opened.prefetch(spilling.request(text, length))

    def stats(self) -> dict[str, dict[str, Any]]:
        """What each tier did, when all is settled."""
        assert self.opened.settle_tiers()
        found = self.opened.tier_stats()
        assert found is not None
        return found.tiers


class Process:
    """A worker in a process of its own.

    Args:
        environment: of the process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.tiers.sharing", str(theirs.fileno())],
                cwd=ROOT,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
            )

    def ask(self, method: str, *arguments: Any, **named: Any) -> None:
        """Send a command; its answer is to be taken later."""
        self._connection.send((method, arguments, named))

    def answer(self) -> Any:
        """The answer to the command sent before."""
        assert self._connection.poll(ANSWER_S), "the process does not answer"
        return self._connection.recv()

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Send a command and take its answer."""
        self.ask(method, *arguments, **named)
        return self.answer()

    def end(self) -> None:
        self._connection.close()
        try:
            self._process.wait(ANSWER_S)
        finally:
            self._process.kill()


@contextmanager
def processes(environment: Mapping[str, str]) -> Iterator[tuple[Process, Process]]:
    """Two processes at once."""
    first, second = Process(environment), Process(environment)
    try:
        yield first, second
    finally:
        first.end()
        second.end()


def main(connection: Connection) -> None:
    """Serve until the parent closes the connection; a failed check ends the process."""
    worker = Worker()
    while True:
        try:
            method, arguments, named = connection.recv()
        except EOFError:
            break
        connection.send(getattr(worker, method)(*arguments, **named))
    worker.close()


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
