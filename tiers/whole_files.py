"""Many files read whole in one call, without the interpreter's lock.

Reading a small file from Python gives the lock up and takes it again at every step; with several
threads most of the time is spent waiting for it. Here compiled code calls the C library by the
addresses of its functions: open, a seek that tells the size, one read into the caller's memory,
close. Where the kernel does not hold a file, it is told of some at a time, so that it reads ahead.
The checksums of a file's parts are computed at once, while the processor's cache holds them. A file
for which any of that is not plain success counts as not read, and the caller reads it the careful
way, which finds out why.
"""

import ctypes
import os
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.checksum import (
    GOLDEN,
    ROW_WORDS,
    SEED,
    page_sum,
    row_multipliers,
    word_multipliers,
)
from kvstrata.core.compile import compiled
from kvstrata.core.sha256 import call_by_address, call_with_five
from kvstrata.core.views import COMPILES, words_at
from kvstrata.core.words import Arena

__all__ = ["MAX_PARTS_READ", "read_whole_files"]

_NAMES: Final = ("open", "lseek", "preadv2", "close", "readahead")
_OPEN, _SEEK, _READ, _CLOSE, _READ_AHEAD = range(5)
MAX_PARTS_READ: Final = 1024
"""IOV_MAX on Linux: more parts than one call fills."""
_FILES_AHEAD: Final = 16
"""So many files are open at a time."""

# A C int comes back in the low half of a word.
_INT: Final = 0xFFFF_FFFF
_NEGATIVE: Final = 0x8000_0000
_HELD: Final = os.RWF_NOWAIT  # read what the kernel holds, and nothing else
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@lru_cache(maxsize=1)
def _functions() -> Arena | None:
    """Addresses of the C library's functions: int64[5], or None where they are not to be had."""
    if not COMPILES or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    try:
        library = ctypes.CDLL(None)
        pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _NAMES]
    except (AttributeError, OSError):
        return None
    return np.array(pointers, dtype=np.int64)


@compiled
def _read_all(
    functions: Arena,
    paths: Any,
    parts: Arena,
    num_bytes: int,
    flags: int,
    columns: Any,
    rows: Any,
    sums: Any,
    read: Arena,
) -> int:
    count, num_parts, reads_ahead = 0, parts.shape[1], False
    for index in range(read.shape[0]):
        if index % _FILES_AHEAD == 0:
            until, reads_ahead = min(index + _FILES_AHEAD, read.shape[0]), False
            for ahead in range(index, until):
                path = paths.ctypes.data + ahead * paths.shape[1]
                read[ahead] = call_by_address(functions[_OPEN], path, flags, 0) & _INT
        file = read[index]
        if file & _NEGATIVE:
            read[index] = 0
            continue
        found, vectors = 0, parts.ctypes.data + index * num_parts * 16
        if call_by_address(functions[_SEEK], file, 0, os.SEEK_END) == num_bytes:
            found = call_with_five(functions[_READ], file, vectors, num_parts, 0, _HELD)
            if found != num_bytes:
                for ahead in range(index, index if reads_ahead else until):
                    if not read[ahead] & _NEGATIVE:
                        call_by_address(functions[_READ_AHEAD], read[ahead], 0, num_bytes)
                reads_ahead = True
                found = call_with_five(functions[_READ], file, vectors, num_parts, 0, 0)
        read[index] = found == num_bytes
        call_by_address(functions[_CLOSE], file, 0, 0)
        if read[index]:
            for part in range(parts.shape[1]):
                address, length = parts[index, part, 0], parts[index, part, 1]
                # Memory at an address is told by its distance from an array.
                page = words_at(parts, (address - parts.ctypes.data) >> 3, length >> 3)
                empty = np.uint64(SEED) + np.uint64(length) * np.uint64(GOLDEN)
                sums[index, part] = empty + page_sum(page, columns, rows)
        count += read[index]
    return count


def read_whole_files(
    paths: list[str], parts: Arena, num_bytes: int, checksums: Arena
) -> npt.NDArray[np.bool_]:
    """Fill memory from files, the parts of each one after the other.

    Args:
        paths: n absolute paths.
        parts: int64[n, k, 2], address and length of each file's parts, both divisible by 8; the
            memory must stay where it is, and be nobody else's, until the call returns.
        num_bytes: of each file, the sum of its parts.
        checksums: int64[n, k], filled: the checksum of each part of a file that was read.

    Returns:
        bool[n], whether the file was there, was a file of just so many bytes, and was read. What
        the parts of the others hold is undefined.

    Mutates: the memory of the parts, checksums.
    """
    functions = _functions()
    if functions is None or parts.shape[1] > MAX_PARTS_READ or not paths:
        return np.zeros(len(paths), dtype=np.bool_)
    read = np.zeros(len(paths), dtype=np.int64)
    _read_all(
        functions,
        _strings(paths),
        np.ascontiguousarray(parts),
        num_bytes,
        _FLAGS,
        word_multipliers().view(np.uint64),
        row_multipliers(-(-int(parts[:, :, 1].max()) // (4 * ROW_WORDS))),
        checksums.view(np.uint64),
        read,
    )
    return read.astype(np.bool_)


def _strings(paths: list[str]) -> npt.NDArray[np.uint8]:
    """uint8[n, k]: C strings one after another, of one width, zeros at the end."""
    width = len(os.fsencode(paths[0])) + 1
    joined = np.frombuffer(bytearray(os.fsencode("\0".join([*paths, ""]))), dtype=np.uint8)
    if len(joined) == len(paths) * width and not joined[width - 1 :: width].any():
        return joined.reshape(len(paths), width)  # all are as long as the first
    encoded = np.array([os.fsencode(path) + b"\0" for path in paths])
    return encoded.view(np.uint8).reshape(len(paths), -1)
