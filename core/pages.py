"""Copying whole pages inside a pool, compiled: at memory speed, and without temporary copies."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compile import compiled
from .errors import InvariantViolation

__all__ = ["copy_pages"]


@compiled
def _copy(words: NDArray[np.uint64], sources: NDArray[np.int64], targets: NDArray[np.int64]) -> int:
    for index in range(sources.shape[0]):
        source = words[sources[index]]
        target = words[targets[index]]
        for word in range(source.shape[0]):
            target[word] = source[word]
    return 0


def copy_pages(
    words: NDArray[np.uint64],
    sources: NDArray[np.integer[Any]],
    targets: NDArray[np.integer[Any]],
) -> None:
    """Copy page ``sources[i]`` to page ``targets[i]`` for every ``i``.

    Args:
        words: uint64[num_slots, page_bytes // 8], C-contiguous: the pool's bytes.
        sources: integers[n], slots to read; a slot may be read many times.
        targets: integers[n], slots to write; none twice, and none that is read.

    Raises:
        InvariantViolation: a slot outside the pool, or a target that is read or written twice.

    Mutates: the target pages, only if nothing is raised.
    """
    read = np.ascontiguousarray(sources, dtype=np.int64)
    written = np.ascontiguousarray(targets, dtype=np.int64)
    if read.shape != written.shape:
        raise InvariantViolation(
            f"copy: expected as many targets as sources, found {written.size} and {read.size}"
        )
    if not read.size:
        return
    distinct = np.unique(read)
    touched = np.unique(np.concatenate((distinct, written)))
    if touched[0] < 0 or touched[-1] >= words.shape[0]:
        raise InvariantViolation(
            f"copy: expected slots in [0, {words.shape[0]}), found {touched[0]} to {touched[-1]}"
        )
    if touched.size != distinct.size + written.size:
        raise InvariantViolation(
            f"copy: expected targets that are neither read nor written twice, "
            f"found sources {read.tolist()} and targets {written.tolist()}"
        )
    _copy(words, read, written)
