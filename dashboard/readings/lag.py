"""How far indexes are behind what they index."""

import time

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import Tables
from kvstrata.core.events import EventType
from kvstrata.core.groups import Kind
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    PAGE_STAMP,
    PAGE_STATE,
    POOL_FIRST,
    POOL_KIND,
    POOL_PARTNER,
    POOL_SLOTS,
    POOL_VERSION,
    STAMP_DIRTY,
    VERSION_MASK,
    Arena,
)

__all__ = ["IndexLag"]

_CAUSES = (EventType.PAGE_DIRTIED, EventType.MAPPING_REGISTERED)


class IndexLag:
    """Counts the sealed pages of INDEXER pools that no hit may adopt any more.

    Such a page was written after its sealing, or its entries were compressed by another mapping
    than is registered now. Only an event can make one, so where no such event came there is
    nothing to look at; where one did, the stamps of the indexes' pages are read, not more often
    than every few seconds.

    Args:
        interval_s: seconds between two looks.
    """

    def __init__(self, interval_s: float = 5.0) -> None:
        self._interval_s = interval_s
        self._looked_s = -interval_s
        self._found: Arena | None = None

    def look(self, tables: Tables, counts: npt.NDArray[np.int64]) -> Arena:
        """The pages that lag.

        Args:
            tables: of the follower, its lock held.
            counts: int64[64, groups + 1, 256], of its tally.

        Returns:
            int64[groups]; 0 for groups that are no index.
        """
        now_s = time.monotonic()
        found = self._found
        if found is not None and now_s - self._looked_s < self._interval_s:
            return found
        found = np.zeros(len(tables.pools), dtype=np.int64)
        if any(counts[cause].any() for cause in _CAUSES):
            for group, pool in enumerate(tables.pools):
                if pool[POOL_KIND] == Kind.INDEXER:
                    found[group] = _lagging(tables, pool)
        self._found, self._looked_s = found, now_s
        return found


def _lagging(tables: Tables, pool: Arena) -> int:
    first, slots = int(pool[POOL_FIRST]), int(pool[POOL_SLOTS])
    rows = tables.pages[first + 1 : first + slots]
    stamps = rows[rows[:, PAGE_STATE] == PageState.SEALED, PAGE_STAMP]
    partner = int(pool[POOL_PARTNER])
    version = int(tables.pools[partner - 1 if partner else 0, POOL_VERSION])
    dirty = (stamps & STAMP_DIRTY) != 0
    other = (stamps & VERSION_MASK) != version if partner else np.zeros(len(stamps), dtype=bool)
    return int(np.count_nonzero(dirty | other))
