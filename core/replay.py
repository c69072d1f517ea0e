"""Replay: the same apply, fed from the log."""

from .apply import apply
from .compile import compiled
from .emit import references_after
from .refusals import REFERENCES_DIFFER
from .words import (
    META_REFUSAL,
    Arena,
)

__all__ = ["apply_events"]


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
        code = apply(arena, event)
        if code == 0 and (event[2] >> 48) & 0xFFFF != references_after(arena, event):
            code = REFERENCES_DIFFER
        if code != 0:
            arena[META_REFUSAL] = code
            return index
    return events.shape[0]
