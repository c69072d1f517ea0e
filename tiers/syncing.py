"""Many files synced at once: the kernel is handed all of them in one call, and works side by side.

Syncs one after another each wait for a commit and a flush of the disk of their own; at the same
time they share them. The kernel's queue for this (Linux ``io_submit``) has no function in Python
or the C library, so it is called by number. Where that is not to be had, files are synced one
after another.
"""

import ctypes
import os
import platform
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

__all__ = ["SyncQueues"]

_NUMBERS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""By machine: io_setup, io_destroy, io_getevents, io_submit."""
_SETUP, _DESTROY, _GET_EVENTS, _SUBMIT = range(4)

_REQUEST: Final = Struct("<QIIHhIQQqQII")
"""struct iocb: data, key, flags, operation, priority, file and what a sync does not need."""
_EVENT: Final = Struct("<QQqq")
"""struct io_event: data, its request, result and another."""
_FSYNC, _FDATASYNC = 2, 3
_MOST: Final = 64
"""Files that one queue takes at a time."""


@lru_cache(maxsize=1)
def _syscall() -> Any | None:
    """The C library's ``syscall``, or None where its numbers are not known."""
    if platform.machine() not in _NUMBERS or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).syscall
    except (AttributeError, OSError):
        return None
    function.restype = ctypes.c_long
    return function


def _call(which: int, *arguments: Any) -> int:
    """One of the four calls: its result, or -1 where there is none to be had."""
    function = _syscall()
    if function is None:
        return -1
    return int(function(ctypes.c_long(_NUMBERS[platform.machine()][which]), *arguments))


class SyncQueues:
    """The queues of one store, made as they are needed; safe to use from any thread.

    A forked child does not have its parent's queues: there files are synced one after another.
    """

    def __init__(self) -> None:
        self._idle: list[ctypes.c_ulong] = []

    def sync(self, descriptors: Sequence[int], data_only: bool) -> None:
        """Sync files or folders, all of them.

        Args:
            descriptors: of the files.
            data_only: as ``fdatasync``, not ``fsync``.

        Raises:
            OSError: one of them failed; nothing is known of the others.
        """
        for start in range(0, len(descriptors), _MOST):
            some = descriptors[start : start + _MOST]
            if len(some) == 1 or not self._sync_together(some, data_only):
                for descriptor in some:
                    (os.fdatasync if data_only else os.fsync)(descriptor)

    def close(self) -> None:
        """Give the queues back."""
        while self._idle:
            _call(_DESTROY, self._idle.pop())

    def _sync_together(self, descriptors: Sequence[int], data_only: bool) -> bool:
        """Whether the kernel took the files; raises as :meth:`sync`."""
        queue = self._take()
        if queue is None:
            return False
        count, operation = len(descriptors), _FDATASYNC if data_only else _FSYNC
        requests = ctypes.create_string_buffer(count * _REQUEST.size)
        for number, descriptor in enumerate(descriptors):
            fields = (number, 0, 0, operation, 0, descriptor, 0, 0, 0, 0, 0, 0)
            _REQUEST.pack_into(requests, number * _REQUEST.size, *fields)
        first = ctypes.addressof(requests)
        pointers = (ctypes.c_void_p * count)(
            *range(first, first + count * _REQUEST.size, _REQUEST.size)
        )
        try:
            taken = _call(_SUBMIT, queue, ctypes.c_long(count), pointers)
            results = self._wait(queue, taken) if taken > 0 else []
        except BaseException:  # what is under way in it is nobody's
            _call(_DESTROY, queue)
            raise
        self._idle.append(queue)
        for result in results:
            if result < 0:
                raise OSError(-result, os.strerror(-result))
        return taken == count

    def _wait(self, queue: ctypes.c_ulong, count: int) -> list[int]:
        """What became of so many requests: 0, or an error number below it."""
        results: list[int] = []
        events = ctypes.create_string_buffer(count * _EVENT.size)
        while len(results) < count:
            left = ctypes.c_long(count - len(results))
            found = max(_call(_GET_EVENTS, queue, left, left, events, None), 0)
            told = events.raw[: found * _EVENT.size]
            results += [result for _, _, result, _ in _EVENT.iter_unpack(told)]
        return results

    def _take(self) -> ctypes.c_ulong | None:
        try:
            return self._idle.pop()
        except IndexError:
            queue = ctypes.c_ulong(0)
            return queue if _call(_SETUP, ctypes.c_long(_MOST), ctypes.byref(queue)) == 0 else None
