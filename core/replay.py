"""Replay: the same apply, fed from the log."""

from typing import Final

from .apply import apply
from .compile import compiled, helper
from .emit import references_after
from .events import PAGE_EVENTS_END, EventType
from .prefetch import AHEAD, prefetch, prefetch_place, prefetch_unit
from .refusals import REFERENCES_DIFFER
from .words import (
    META_AT,
    META_NUM_HISTORY,
    META_REFUSAL,
    PAGE_WORDS,
    POOL_FIRST,
    POOL_WORDS,
    Arena,
)

__all__ = ["apply_events"]

_PAGE_SEALED: Final = int(EventType.PAGE_SEALED)
_MASK_32: Final = 0xFFFF_FFFF
_PAGES: Final = META_AT + 1


@helper
def _look_ahead(arena: Arena, event: Arena) -> None:
    """Ask memory for what applying a page's event will touch: its page, its unit, its key."""
    head = event[2]
    kind = head & 0xFF
    if kind >= PAGE_EVENTS_END:
        return
    group = (head >> 8) & 0xFF
    first = arena[arena[META_AT] + group * POOL_WORDS + POOL_FIRST]
    prefetch(arena, arena[_PAGES] + (first + (event[3] & _MASK_32)) * PAGE_WORDS)
    is_block = group < arena[META_NUM_HISTORY]
    unit = event[7] if kind == _PAGE_SEALED else event[5]
    prefetch_unit(arena, is_block, unit & _MASK_32)
    if kind == _PAGE_SEALED:
        prefetch_place(arena, is_block, event[4], event[5])


@compiled
def apply_events(arena: Arena, events: Arena) -> int:
    """Apply events in order.

    Args:
        arena: the arena; mutated.
        events: int64[n, 8], a view of stored events.

    Returns:
        n where all were applied, else the index of the first one refused, whose refusal code is
        then in ``arena[META_REFUSAL]``.

    Mutates:
        arena.
    """
    for index in range(events.shape[0]):
        event = events[index]
        if index + AHEAD < events.shape[0]:
            _look_ahead(arena, events[index + AHEAD])
        code = apply(arena, event)
        if code == 0 and (event[2] >> 48) & 0xFFFF != references_after(arena, event):
            code = REFERENCES_DIFFER
        if code != 0:
            arena[META_REFUSAL] = code
            return index
    return events.shape[0]
