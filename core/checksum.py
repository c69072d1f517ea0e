"""The page checksum: 64 bits, order-sensitive, the same in numpy, torch and compiled code.

Definition, fixed for good (``docs/checksum.md`` says why and how strong). All arithmetic is
modulo 2**64. A page of ``nbytes`` bytes, zero-padded to a multiple of 4, is words ``w[i]``, each
a little-endian 32-bit unsigned integer; word ``i`` stands in column ``j = i % 4096`` of row
``b = i // 4096``::

    mix(x)   = splitmix64: z = x + 0x9E3779B97F4A7C15
                           z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
                           z = (z ^ (z >> 27)) * 0x94D049BB133111EB
                           z ^ (z >> 31)
    c[j]     = (mix(j) >> 32) | 1           odd, 32 bits, pairwise distinct
    d[b]     = mix(2**32 + b) | 1           odd, 64 bits
    h[b]     = sum over j of w[4096*b + j] * c[j]
    checksum = SEED + nbytes * 0x9E3779B97F4A7C15 + sum over b of d[b] * h[b]

reported as a signed 64-bit integer. ``splitmix64`` is from Steele, Lea and Flood, "Fast
splittable pseudorandom number generators" (OOPSLA 2014).
"""

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .compile import compiled, helper
from .errors import InvariantViolation

__all__ = [
    "GOLDEN",
    "ROW_WORDS",
    "SEED",
    "checksum_bytes",
    "checksum_pages",
    "page_sum",
    "row_multipliers",
    "word_multipliers",
]

SEED: Final = 0x6B76_7374_7261_7461
GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
ROW_WORDS: Final = 4096
ROW_STREAM: Final = 1 << 32

_LANES: Final = ROW_WORDS // 2
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HALF: Final = np.uint64(32)
_MASK: Final = (1 << 64) - 1


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = values + np.uint64(GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return z ^ (z >> np.uint64(31))


@lru_cache(maxsize=1)
def word_multipliers() -> NDArray[np.uint32]:
    """The constants ``c``: one odd multiplier per column.

    Returns:
        uint32[4096], read-only.
    """
    mixed = _mix(np.arange(ROW_WORDS, dtype=np.uint64)) >> _HALF
    multipliers = (mixed | np.uint64(1)).astype(np.uint32)
    multipliers.setflags(write=False)
    return multipliers


@lru_cache(maxsize=64)
def row_multipliers(num_rows: int) -> NDArray[np.uint64]:
    """The constants ``d``: one odd multiplier per row.

    Args:
        num_rows: rows of 4096 words, the last one perhaps partly filled.

    Returns:
        uint64[num_rows], read-only.
    """
    multipliers = _mix(np.arange(num_rows, dtype=np.uint64) + np.uint64(ROW_STREAM)) | np.uint64(1)
    multipliers.setflags(write=False)
    return multipliers


def _start(num_bytes: int) -> int:
    return (SEED + num_bytes * GOLDEN) & _MASK


@helper
def page_sum(page: Any, columns: Any, rows: Any) -> Any:
    """What a page adds to the checksum of an empty one of its length, from compiled code.

    Args:
        page: uint64[n] or int64[n], contiguous: its bytes.
        columns: uint64[2048], of :func:`word_multipliers`.
        rows: uint64[at least n / 2048], of :func:`row_multipliers`.
    """
    # Two words a lane: both products are 32x32->64 multiplies, which vectorise. The slices let
    # the compiler see that lane and column advance together.
    total = np.uint64(0)
    for row in range(-(-page.shape[0] // _LANES)):
        part = page[row * _LANES : (row + 1) * _LANES]
        column = columns[: part.shape[0]]
        row_sum = np.uint64(0)
        for lane in range(part.shape[0]):
            word, factor = np.uint64(part[lane]), column[lane]
            row_sum += (word & _LOW) * (factor & _LOW) + (word >> _HALF) * (factor >> _HALF)
        total += row_sum * rows[row]
    return total


@compiled
def _sum_pages(
    words: NDArray[np.uint64],
    slots: NDArray[np.int64],
    columns: NDArray[np.uint64],
    rows: NDArray[np.uint64],
    start: np.uint64,
    out: NDArray[np.uint64],
) -> int:
    # Returns the index of the first slot outside the pool, -1 if there is none.
    for index in range(slots.shape[0]):
        slot = slots[index]
        if slot < 0 or slot >= words.shape[0]:
            return index
        out[index] = start + page_sum(words[slot], columns, rows)
    return -1


_IS_COMPILED: Final = hasattr(_sum_pages, "py_func")


def _sum_pages_numpy(
    words: NDArray[np.uint64],
    slots: NDArray[np.int64],
    start: int,
    out: NDArray[np.uint64],
) -> int:
    outside = np.flatnonzero((slots < 0) | (slots >= words.shape[0]))
    if outside.size:
        return int(outside[0])
    halves, columns = words.view(np.uint32), word_multipliers()
    rows = row_multipliers(-(-halves.shape[1] // ROW_WORDS))
    out[:] = np.uint64(start)
    for row, multiplier in enumerate(rows):
        part = halves[slots, row * ROW_WORDS : (row + 1) * ROW_WORDS].astype(np.uint64)
        out += (part * columns[: part.shape[1]]).sum(axis=1, dtype=np.uint64) * multiplier
    return -1


def checksum_pages(words: NDArray[np.uint64], slots: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Checksum pages of a pool at memory speed, without holding the interpreter lock.

    Args:
        words: uint64[num_slots, page_bytes // 8], C-contiguous: the pool's bytes.
        slots: integers[n], each in ``[0, num_slots)``.

    Returns:
        int64[n], the checksum of each page.

    Raises:
        InvariantViolation: a slot outside the pool.
    """
    wanted = np.ascontiguousarray(slots, dtype=np.int64)
    out = np.empty(wanted.shape[0], dtype=np.uint64)
    start = _start(words.shape[1] * 8)
    if _IS_COMPILED:
        columns = word_multipliers().view(np.uint64)
        rows = row_multipliers(-(-words.shape[1] // _LANES))
        refused = _sum_pages(words, wanted, columns, rows, np.uint64(start), out)
    else:
        refused = _sum_pages_numpy(words, wanted, start, out)
    if refused >= 0:
        raise InvariantViolation(
            f"checksum: expected slots in [0, {words.shape[0]}), found {wanted[refused]}"
        )
    return out.view(np.int64)


def checksum_bytes(data: bytes | bytearray | memoryview) -> int:
    """Checksum bytes of any length, straight from the definition, in numpy.

    Args:
        data: the bytes of a page, or any others.

    Returns:
        The checksum as a signed 64-bit integer.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    num_rows = -(-raw.size // (4 * ROW_WORDS))
    padded = np.zeros(num_rows * 4 * ROW_WORDS, dtype=np.uint8)
    padded[: raw.size] = raw
    words = padded.view("<u4").astype(np.uint64).reshape(num_rows, ROW_WORDS)
    row_sums = (words * word_multipliers()).sum(axis=1, dtype=np.uint64)
    total = int((row_sums * row_multipliers(num_rows)).sum(dtype=np.uint64))
    checksum = (_start(raw.size) + total) & _MASK
    return checksum - (1 << 64) if checksum >> 63 else checksum
