"""Machines that fail, stall, or lose power."""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from kvstrata.eventstore.log.formats import Buffer
from kvstrata.eventstore.log.system import System


class FailingSystem(System):
    """Fails the calls of one kind from some moment on.

    Attributes:
        fails: the call's name; "" while everything works.
        error: errno of the failure, or 0 for a short write.
        num_failures: calls that failed.
    """

    def __init__(self) -> None:
        self.fails = ""
        self.error = errno.EIO
        self.num_failures = 0

    def fail(self, call: str, error: int) -> None:
        """From now on."""
        self.error = error
        self.fails = call

    def _maybe(self, call: str) -> bool:
        if self.fails != call:
            return False
        self.num_failures += 1
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return True

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self._maybe("pwritev"):
            whole = b"".join(bytes(buffer) for buffer in buffers)
            return super().pwritev(descriptor, [whole[: len(whole) // 2]], offset)
        return super().pwritev(descriptor, buffers, offset)

    def fdatasync(self, descriptor: int) -> None:
        self._maybe("fdatasync")
        super().fdatasync(descriptor)

    def fallocate(self, descriptor: int, size: int) -> None:
        self._maybe("fallocate")
        super().fallocate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        self._maybe("rename")
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._maybe("sync_directory")
        super().sync_directory(path)


class StallingSystem(System):
    """Every sync hangs while the gate is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()

    def fdatasync(self, descriptor: int) -> None:
        self.gate.wait()
        super().fdatasync(descriptor)


class HookedSystem(System):
    """Calls a hook before each call that changes a file, with the call's name."""

    def __init__(self, hook: Callable[[str], None]) -> None:
        self._hook = hook

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._hook("pwritev")
        return super().pwritev(descriptor, buffers, offset)

    def fdatasync(self, descriptor: int) -> None:
        self._hook("fdatasync")
        super().fdatasync(descriptor)

    def fallocate(self, descriptor: int, size: int) -> None:
        self._hook("fallocate")
        super().fallocate(descriptor, size)

    def truncate(self, descriptor: int, size: int) -> None:
        self._hook("truncate")
        super().truncate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        self._hook("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._hook("unlink")
        super().unlink(path)

    def sync_directory(self, path: Path) -> None:
        self._hook("sync_directory")
        super().sync_directory(path)
