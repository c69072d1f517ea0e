"""Asking memory ahead: a table's line is on its way while the work before it is done."""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .compile import helper
from .index import folded_key
from .views import COMPILES
from .words import META_AT, UNIT_WORDS, Arena

__all__ = [
    "AHEAD",
    "prefetch",
    "prefetch_head",
    "prefetch_place",
    "prefetch_unit",
    "unit_in_place",
]

AHEAD: Final = 12
"""Steps of a loop between asking and use: about the time memory takes to answer."""
LINE_WORDS: Final = 8
BLOCKS_AT, IMAGES_AT, _AFTER_ROWS = META_AT + 2, META_AT + 5, 2
_MASK_32: Final = 0xFFFF_FFFF


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
def prefetch_head(arena: Arena, is_block: bool, unit: int) -> None:
    """Ask for the first line of a unit's row."""
    prefetch(arena, arena[BLOCKS_AT if is_block else IMAGES_AT] + unit * UNIT_WORDS)


@helper
def prefetch_unit(arena: Arena, is_block: bool, unit: int) -> None:
    """Ask for a unit's row."""
    row = arena[BLOCKS_AT if is_block else IMAGES_AT] + unit * UNIT_WORDS
    prefetch(arena, row)
    prefetch(arena, row + LINE_WORDS)


@helper
def _place_of(arena: Arena, is_block: bool, key_0: int, key_1: int) -> int:
    """Where in the arena a key's search begins."""
    rows = BLOCKS_AT if is_block else IMAGES_AT
    places, end = arena[rows + _AFTER_ROWS], arena[rows + _AFTER_ROWS + 1]
    return places + (folded_key(key_0, key_1) & (end - places - 1))


@helper
def prefetch_place(arena: Arena, is_block: bool, key_0: int, key_1: int) -> None:
    """Ask for where a key's search in the index begins."""
    prefetch(arena, _place_of(arena, is_block, key_0, key_1))


@helper
def unit_in_place(arena: Arena, is_block: bool, key_0: int, key_1: int) -> int:
    """The unit that stands where a key's search begins: most often the key's own; or 0."""
    return arena[_place_of(arena, is_block, key_0, key_1)] & _MASK_32
