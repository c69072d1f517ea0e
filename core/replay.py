"""Replay: the same apply, fed from the log."""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .apply import apply
from .compile import compiled, helper
from .emit import references_after
from .events import PAGE_EVENTS_END, EventType
from .refusals import REFERENCES_DIFFER
from .views import COMPILES
from .words import (
    META_AT,
    META_NUM_HISTORY,
    META_REFUSAL,
    PAGE_WORDS,
    POOL_FIRST,
    POOL_WORDS,
    UNIT_WORDS,
    Arena,
)

__all__ = ["apply_events"]

_AHEAD: Final = 12
"""Events between looking at one and applying it: about the time memory takes to answer."""
_LINE_WORDS: Final = 8
_PAGE_SEALED: Final = int(EventType.PAGE_SEALED)
_MASK_32: Final = 0xFFFF_FFFF
_PAGES, _BLOCKS, _IMAGES, _AFTER_ROWS = META_AT + 1, META_AT + 2, META_AT + 5, 2


@intrinsic
def _prefetch(typingctx: Any, array: Any, place: Any) -> Any:
    """Ask memory for the line of one word; no word need be there."""
    signature = types.void(array, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.gep(view.data, [args[1]])
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        function = builder.module.globals.get("llvm.prefetch.p0")
        if function is None:
            function = ir.Function(builder.module, kind, "llvm.prefetch.p0")
        # to write, to keep in every cache, data
        builder.call(function, [pointer, word(1), word(3), word(1)])
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return signature, codegen


def plain_prefetch(array: Arena, place: int) -> None:
    """Python twin: nothing."""


prefetch: Any = _prefetch if COMPILES else plain_prefetch


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
    rows = _BLOCKS if group < arena[META_NUM_HISTORY] else _IMAGES
    unit = event[7] if kind == _PAGE_SEALED else event[5]
    row = arena[rows] + (unit & _MASK_32) * UNIT_WORDS
    prefetch(arena, row)
    prefetch(arena, row + _LINE_WORDS)
    if kind == _PAGE_SEALED:
        places, end = arena[rows + _AFTER_ROWS], arena[rows + _AFTER_ROWS + 1]
        both = event[4] ^ event[5]
        folded = (both ^ (both >> 32)) & _MASK_32
        prefetch(arena, places + (folded & (end - places - 1)))


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
        if index + _AHEAD < events.shape[0]:
            _look_ahead(arena, events[index + _AHEAD])
        code = apply(arena, event)
        if code == 0 and (event[2] >> 48) & 0xFFFF != references_after(arena, event):
            code = REFERENCES_DIFFER
        if code != 0:
            arena[META_REFUSAL] = code
            return index
    return events.shape[0]
