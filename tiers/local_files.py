"""The file calls of a local store, with loops over short ones and reasons for failed ones."""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.events import Reason
from kvstrata.core.words import Arena
from kvstrata.eventstore.log.system import System

from .fields import Bytes
from .store import StoreFault
from .syncing import SyncQueues
from .whole_files import read_whole_files

__all__ = ["Files", "fault_of", "read_all", "write_all"]

MAX_VECTORS: Final = 1024  # IOV_MAX on Linux
_START_WRITING: Final = 2  # SYNC_FILE_RANGE_WRITE

_READ_REASONS: Final = {
    errno.ENOENT: Reason.OBJECT_MISSING,
    errno.EACCES: Reason.OBJECT_FORBIDDEN,
    errno.EPERM: Reason.OBJECT_FORBIDDEN,
    errno.EISDIR: Reason.OBJECT_NOT_A_FILE,
    errno.ENOTDIR: Reason.OBJECT_NOT_A_FILE,
    errno.ELOOP: Reason.OBJECT_NOT_A_FILE,
    errno.ENXIO: Reason.OBJECT_NOT_A_FILE,
    errno.ETIMEDOUT: Reason.STORE_TIMEOUT,
}
_WRITE_REASONS: Final = {
    errno.ENOSPC: Reason.STORE_FULL,
    errno.EDQUOT: Reason.STORE_FULL,
    errno.EFBIG: Reason.STORE_FULL,
    errno.EACCES: Reason.OBJECT_FORBIDDEN,
    errno.EPERM: Reason.OBJECT_FORBIDDEN,
    errno.EEXIST: Reason.OBJECT_NOT_A_FILE,
    errno.EISDIR: Reason.OBJECT_NOT_A_FILE,
    errno.ENOTDIR: Reason.OBJECT_NOT_A_FILE,
    errno.ELOOP: Reason.OBJECT_NOT_A_FILE,
    errno.ETIMEDOUT: Reason.STORE_TIMEOUT,
}
_OUTAGES: Final = frozenset(
    {Reason.STORE_FULL, Reason.STORE_TIMEOUT, Reason.STORE_FAILED, Reason.OBJECT_UNREADABLE}
)


class Files(System):
    """The machine as a local store sees it: a log's calls and some more."""

    def preadv(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        """Fill buffers one after the other from an offset; returns the bytes read."""
        return os.preadv(descriptor, buffers, offset)

    def read_whole(
        self, paths: list[str], parts: Arena, num_bytes: int, checksums: Arena
    ) -> npt.NDArray[np.bool_]:
        """See :func:`.whole_files.read_whole_files`."""
        return read_whole_files(paths, parts, num_bytes, checksums)

    def start_writing(self, descriptor: int) -> None:
        """Have the kernel begin to write a file out; whatever fails shows when it is synced."""
        _sync_file_range()(descriptor, 0, 0, _START_WRITING)

    def sync_all(self, queues: SyncQueues, descriptors: Sequence[int], data_only: bool) -> None:
        """See :meth:`.SyncQueues.sync`."""
        queues.sync(descriptors, data_only)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError where the name is taken."""
        os.link(source, target, follow_symlinks=False)


def fault_of(error: OSError, name: str, is_write: bool) -> StoreFault:
    """The fault that a failed file call means.

    Args:
        error: as raised by the call.
        name: of the object.
        is_write: whether the object was being stored; a missing folder is then no missing object.
    """
    reasons = _WRITE_REASONS if is_write else _READ_REASONS
    other = Reason.STORE_FAILED if is_write else Reason.OBJECT_UNREADABLE
    reason = reasons.get(error.errno or 0, other)
    what = "storing" if is_write else "reading"
    return StoreFault(reason, f"{what} {name}: {error}", reason in _OUTAGES)


@lru_cache(maxsize=1)
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    """The system call that Python has no name for; nothing where the C library has none either."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return lambda descriptor, offset, num_bytes, flags: 0
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


def _bytes_of(parts: Sequence[Bytes]) -> list[memoryview]:
    return [view for view in (memoryview(part).cast("B") for part in parts) if len(view)]


def _advance(views: list[memoryview], num_bytes: int) -> None:
    """Drop so many bytes from the front."""
    while views and num_bytes >= len(views[0]):
        num_bytes -= len(views.pop(0))
    if num_bytes:
        views[0] = views[0][num_bytes:]


def write_all(files: Files, descriptor: int, parts: Sequence[Bytes]) -> None:
    """Write all parts from the file's beginning. Raises OSError."""
    views = _bytes_of(parts)
    offset = 0
    while views:
        written = files.pwritev(descriptor, views[:MAX_VECTORS], offset)
        if written <= 0:
            raise OSError(errno.EIO, "nothing was written")
        offset += written
        _advance(views, written)


def read_all(files: Files, descriptor: int, parts: Sequence[memoryview]) -> int:
    """Fill all parts from the file's beginning.

    Returns:
        Bytes read, fewer than asked for where the file ends before.

    Raises:
        OSError: as the kernel says.
    """
    views = _bytes_of(parts)
    offset = 0
    while views:
        found = files.preadv(descriptor, views[:MAX_VECTORS], offset)
        if found <= 0:
            break
        offset += found
        _advance(views, found)
    return offset
