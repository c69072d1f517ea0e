"""The directory's lock: one writer, known by its process id."""

import fcntl
import os
import time
from typing import Final

from kvstrata.core.errors import DirectoryBusy

from .directory import LogPaths

__all__ = ["DirectoryLock", "is_locked"]

_LOCK_ATTEMPTS: Final = 5
_LOCK_PAUSE_S: Final = 0.02


class DirectoryLock:
    """The writer's lock: held until released or until the process is gone.

    Raises:
        DirectoryBusy: another writer holds it; names its process.
    """

    def __init__(self, paths: LogPaths) -> None:
        self._descriptor = os.open(paths.lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # A reader that asks whether the lock is held takes it for an instant: try again.
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 == _LOCK_ATTEMPTS:
                    holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
                    os.close(self._descriptor)
                    raise DirectoryBusy(
                        f"expected to be the only writer, found process {holder or 'unknown'} "
                        f"writing {paths.root}; stop it, or choose another directory"
                    ) from None
                time.sleep(_LOCK_PAUSE_S)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others write; a second release does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_locked(paths: LogPaths) -> bool:
    """Whether a writer lives."""
    try:
        descriptor = os.open(paths.lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
