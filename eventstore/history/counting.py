"""One pass over a batch of events: counts, and which of them need more than that."""

from typing import Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.compile import compiled
from kvstrata.core.events import WITH_CHECKPOINT, EventType

__all__ = ["BLOCK_UNITS", "IMAGE_UNITS", "OTHERS", "count_events"]

Words = npt.NDArray[np.int64]

BLOCK_UNITS: Final = 0
IMAGE_UNITS: Final = 1
OTHERS: Final = 2
"""Rows of ``found``: what units of blocks go through, units of images, and other types."""

_SEALED: Final = int(EventType.PAGE_SEALED)
_FREED: Final = int(EventType.PAGE_FREED)
_LOST: Final = int(EventType.PAGE_LOST)
_GRANTED: Final = int(EventType.LEASE_GRANTED)


@compiled
def count_events(
    words: Words,
    counts: Words,
    has_group: Words,
    is_other: Words,
    first_groups: Words,
    found: Words,
    sizes: Words,
) -> int:
    """Count events by type, group and reason, and sort out those that need more.

    Args:
        words: int64[n, 8], the events.
        counts: int64[types, groups + 1, reasons]; the last group is of events about none.
        has_group: int64[256], 1 for types whose group says something.
        is_other: int64[256], 1 for types that go to :data:`OTHERS`.
        first_groups: int64[2], the first group of blocks and of images, -1 for none.
        found: int64[3, n], filled from the left with places in ``words``.
        sizes: int64[3], how many there are of each.

    Returns:
        n.

    Mutates:
        counts, found, sizes.
    """
    none = counts.shape[1] - 1
    num_types = counts.shape[0]
    for place in range(words.shape[0]):
        head = words[place, 2]
        kind, group = head & 0xFF, (head >> 8) & 0xFF
        shown = min(group, none) if has_group[kind] != 0 else none
        counts[kind % num_types, shown, (head >> 32) & 0xFF] += 1
        if kind in (_SEALED, _FREED, _LOST):
            if group == first_groups[0]:
                found[0, sizes[0]] = place
                sizes[0] += 1
            elif group == first_groups[1]:
                found[1, sizes[1]] = place
                sizes[1] += 1
        elif kind == _GRANTED:
            found[0, sizes[0]] = place
            sizes[0] += 1
            if (head >> 40) & WITH_CHECKPOINT != 0:
                found[1, sizes[1]] = place
                sizes[1] += 1
        elif is_other[kind] != 0:
            found[2, sizes[2]] = place
            sizes[2] += 1
    return int(words.shape[0])
