"""The life of a page: its states, its events, and the one table of legal transitions.

FREE → RESERVED → WRITING ⇄ OPEN → SEALED → FREE; RESERVED → LOADING → SEALED;
any → DRAINING → FREE; SEALED | LOADING → QUARANTINED → FREE.

Live code, replay, tests and docs read :data:`TRANSITIONS`. What is not in it is illegal.
"""

from enum import IntEnum
from typing import Final

import numpy as np

from .events import EventType

__all__ = ["ILLEGAL", "NEXT_STATE", "TRANSITIONS", "PageState"]


class PageState(IntEnum):
    """State of one page (design: page lifecycle). Stable numbers, stored in the log."""

    FREE = 0
    """In its pool's free list; nobody may touch its bytes."""
    RESERVED = 1
    """Owned by a sequence; nothing valid in it."""
    WRITING = 2
    """A step that writes it is in flight; undefined until the step commits."""
    OPEN = 3
    """k of n entries valid, no step in flight: awaiting compression, filling."""
    SEALED = 4
    """Complete, immutable, checksummed."""
    LOADING = 5
    """Being filled from a lower tier."""
    DRAINING = 6
    """Freed while a step or I/O may still touch it."""
    QUARANTINED = 7
    """Failed validation; unfindable, freed when its last lease ends."""


_S, _E = PageState, EventType

TRANSITIONS: Final[dict[tuple[PageState, EventType], tuple[PageState, str]]] = {
    (_S.FREE, _E.PAGE_RESERVED): (_S.RESERVED, "a sequence takes it from its pool"),
    (_S.RESERVED, _E.PAGE_WRITING): (_S.WRITING, "the first step that writes it is in flight"),
    (_S.RESERVED, _E.PAGE_LOADING): (_S.LOADING, "a lower tier fills it"),
    (_S.WRITING, _E.PAGE_OPENED): (_S.OPEN, "the step ended; part of it is valid"),
    (_S.OPEN, _E.PAGE_WRITING): (_S.WRITING, "a later step writes it"),
    (_S.WRITING, _E.PAGE_SEALED): (_S.SEALED, "one step filled it and was committed"),
    (_S.OPEN, _E.PAGE_SEALED): (_S.SEALED, "the step that completed it was committed"),
    (_S.LOADING, _E.PAGE_SEALED): (_S.SEALED, "loaded whole, checksum right"),
    (_S.RESERVED, _E.PAGE_DRAINING): (_S.DRAINING, "given up before anything was written"),
    (_S.WRITING, _E.PAGE_DRAINING): (_S.DRAINING, "given up while a step may write it"),
    (_S.OPEN, _E.PAGE_DRAINING): (_S.DRAINING, "given up part-filled"),
    (_S.SEALED, _E.PAGE_DIRTIED): (_S.SEALED, "written behind its seal: no hit any more"),
    (_S.SEALED, _E.PAGE_DRAINING): (_S.DRAINING, "dropped while a reader may touch it"),
    (_S.LOADING, _E.PAGE_DRAINING): (_S.DRAINING, "the load was given up"),
    (_S.QUARANTINED, _E.PAGE_DRAINING): (_S.DRAINING, "bad, and a reader may still touch it"),
    (_S.SEALED, _E.PAGE_QUARANTINED): (_S.QUARANTINED, "failed validation"),
    (_S.LOADING, _E.PAGE_QUARANTINED): (_S.QUARANTINED, "what was loaded failed validation"),
    (_S.DRAINING, _E.PAGE_FREED): (_S.FREE, "nothing touches it any more"),
    (_S.SEALED, _E.PAGE_FREED): (_S.FREE, "evicted, or a duplicate whose sequence ended"),
    (_S.QUARANTINED, _E.PAGE_FREED): (_S.FREE, "its last lease ended"),
    (_S.RESERVED, _E.PAGE_LOST): (_S.FREE, "its incarnation died before writing it"),
    (_S.WRITING, _E.PAGE_LOST): (_S.FREE, "its incarnation died while writing it"),
    (_S.OPEN, _E.PAGE_LOST): (_S.FREE, "its incarnation died with it part-filled"),
    (_S.SEALED, _E.PAGE_LOST): (_S.FREE, "its bytes did not survive, or cannot be trusted"),
    (_S.LOADING, _E.PAGE_LOST): (_S.FREE, "its incarnation died while loading it"),
    (_S.DRAINING, _E.PAGE_LOST): (_S.FREE, "what might have touched it died"),
    (_S.QUARANTINED, _E.PAGE_LOST): (_S.FREE, "bad already; its leases died"),
}
"""(state, event) → (state after, meaning)."""

ILLEGAL: Final = -1


def _next_state_table() -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    table = np.full((len(PageState), 16), ILLEGAL, dtype=np.int64)
    for (state, event), (after, _) in TRANSITIONS.items():
        table[state, event] = after
    return table


NEXT_STATE: Final = _next_state_table()
"""int64[state, page event]: the state after, or :data:`ILLEGAL`. Frozen into compiled code."""
