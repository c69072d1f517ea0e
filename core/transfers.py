"""Transfers: something outside a step (I/O, a remote writer) touches a sequence's open pages."""

from .commit import settle
from .compile import compiled, helper
from .ring import publish
from .room import DONE, RING_FULL, last_seqno_of_call, quarter_is_free
from .steps import STEP_IN_FLIGHT
from .words import META_LAST_SEQNO, Arena

__all__ = ["begin_transfer", "end_transfer", "settle_transfer"]


@helper
def _settle(arena: Arena, steps: Arena, ring: Arena, row: int, now_ns: int) -> int:
    code = settle(arena, steps, ring, row, last_seqno_of_call(arena, ring), now_ns)
    publish(arena, ring)
    return code


@compiled
def begin_transfer(steps: Arena, row: int) -> None:
    """One more thing is in flight for a sequence: until it ends its pages only drain.

    Mutates:
        steps.
    """
    steps[row, STEP_IN_FLIGHT] += 1


@compiled
def end_transfer(arena: Arena, steps: Arena, ring: Arena, row: int, now_ns: int) -> int:
    """It has ended; with nothing else in flight the sequence's pages are OPEN again.

    Returns:
        DONE, MORE (see :func:`settle_transfer`), RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, steps, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    steps[row, STEP_IN_FLIGHT] -= 1
    if steps[row, STEP_IN_FLIGHT] != 0:
        return DONE
    return _settle(arena, steps, ring, row, now_ns)


@compiled
def settle_transfer(arena: Arena, steps: Arena, ring: Arena, row: int, now_ns: int) -> int:
    """Go on where :func:`end_transfer` was cut.

    Returns:
        DONE, MORE, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, steps, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    return _settle(arena, steps, ring, row, now_ns)
