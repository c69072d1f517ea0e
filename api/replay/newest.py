"""Events just logged, read where they lie: in the ring of a manager of this process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kvstrata import CacheManager, ConfigError, InvariantViolation
from kvstrata.core.events import EVENT_DTYPE, EVENT_WORDS
from kvstrata.core.ring import RING_CAPACITY, RING_HEADER_WORDS
from kvstrata.core.words import META_LAST_SEQNO

__all__ = ["newest_events"]


def newest_events(cache: CacheManager, seqno: int) -> Iterator[npt.NDArray[np.void]]:
    """What was logged after an event; to be read before the manager is called again.

    Args:
        cache: the manager.
        seqno: of the event, 0 for none.

    Yields:
        EVENT_DTYPE arrays, consecutive across arrays; views of the ring.

    Raises:
        ConfigError: the manager has no log.
        InvariantViolation: so much was logged meanwhile that the first of them is gone.
    """
    if cache.log is None:
        raise ConfigError("expected a manager with a log, found one without")
    ring, head = cache.log.ring, int(cache.arena[META_LAST_SEQNO])
    capacity = int(ring[RING_CAPACITY])
    if head - seqno > capacity:
        raise InvariantViolation(
            f"expected event {seqno + 1} in a ring of {capacity}, found it overwritten by {head}"
        )
    rows = ring[RING_HEADER_WORDS:].reshape(-1, EVENT_WORDS)
    while seqno < head:
        first = seqno % capacity
        count = min(head - seqno, capacity - first)
        yield rows[first : first + count].view(EVENT_DTYPE)[:, 0]
        seqno += count
