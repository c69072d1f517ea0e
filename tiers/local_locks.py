"""The locks of a local store (``flock``): a live writer's temporary, and a claim on a name.

The kernel lets go of a lock when its holder is gone, however it went.
"""

import errno
import fcntl
import os
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .local_files import Files

__all__ = ["READ_FLAGS", "lock_within", "remove_if_dead", "temporary_file"]

READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Never waits and follows nothing, whatever stands in a file's place."""

_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.02


@contextmanager
def temporary_file(files: Files, folder: Path) -> Iterator[tuple[Path, int]]:
    """A temporary that is locked as long as the context lasts, and gone after it.

    Yields:
        Its path and a descriptor to write to.

    Raises:
        OSError: as the kernel says.
    """
    path, descriptor = _begin_temporary(files, folder)
    try:
        yield path, descriptor
    finally:
        # Unlinked before it is unlocked: nobody may take it for a dead writer's.
        with suppress(OSError):
            files.unlink(path)
        os.close(descriptor)


def _begin_temporary(files: Files, folder: Path) -> tuple[Path, int]:
    while True:
        path = folder / f"{os.getpid()}.{uuid.uuid4().hex}"
        descriptor = files.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
        except BlockingIOError:
            pass  # between open and lock a collector took it for a dead writer's
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def remove_if_dead(files: Files, path: Path, before_s: float) -> bool:
    """Remove a temporary that nobody holds.

    Args:
        files: the machine.
        path: of the temporary.
        before_s: seconds since 1970; what was written to later stays.

    Returns:
        Whether it was removed.
    """
    try:
        descriptor = files.open(path, READ_FLAGS)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_mtime > before_s:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files.unlink(path)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def lock_within(descriptor: int, timeout_s: float) -> bool:
    """Lock a file, or give up when the time is over.

    Raises:
        OSError: the file system knows no locks, or another error.
    """
    deadline_s = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
