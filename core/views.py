"""Views of an arena's tables inside compiled code, at the price of a few integer operations.

Compiled functions pass the arena itself and look at the table they need through these: slicing and
reshaping would check and normalise, and passing views around would cost an argument for each of
their fields. A view owns nothing and holds no reference. Under ``NUMBA_DISABLE_JIT=1`` each name is
its plain Python twin.
"""

from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from .words import (
    HOLDER_WORDS,
    META_AT,
    META_BLOCK_WIDTH,
    META_MAX_BLOCKS,
    META_NUM_BLOCKS,
    META_NUM_GROUPS,
    META_NUM_HOLDERS,
    META_NUM_PAGES,
    META_NUM_STORED,
    PAGE_WORDS,
    POOL_WORDS,
    STORED_WORDS,
    UNIT_WORDS,
)

__all__ = [
    "COMPILES",
    "holder_blocks",
    "holder_table",
    "page_table",
    "pool_table",
    "stored_places",
    "stored_rows",
    "unit_pages",
    "unit_places",
    "unit_rows",
    "words_at",
]

COMPILES: bool = not getattr(numba.config, "DISABLE_JIT", 0)
"""Whether numba compiles; False under ``NUMBA_DISABLE_JIT=1``."""

_WORD_BYTES = 8
_POOLS, _PAGES, _UNIT_ROWS, _UNIT_PAGES, _UNIT_PLACES, _HOLDERS, _HOLDER_BLOCKS, _STORED = (
    0, 1, 2, 3, 4, 8, 9, 10,
)  # fmt: skip
_STORED_PLACES = _STORED + 1
_IMAGES_AFTER = 3
"""The tables of images follow those of blocks by so many places, their sizes by one word."""


class _Builder:
    """Emits the instructions of one view."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self._context = context
        self._builder = builder
        self._result = signature.return_type
        make: Any = make_array
        self._source = make(signature.args[0])(context, builder, args[0])

    def constant(self, value: int) -> Any:
        return self._context.get_constant(types.intp, value)

    def word(self, place: Any) -> Any:
        """The arena's word at a place."""
        if isinstance(place, int):
            place = self.constant(place)
        return self._builder.load(self._builder.gep(self._source.data, [place]))

    def pick(self, is_block: Any, at: int, step: int) -> Any:
        """The arena's word at a place for blocks, ``step`` further on for images."""
        place = self._builder.select(is_block, self.constant(at), self.constant(at + step))
        return self.word(place)

    def view(self, start: Any, shape: list[Any]) -> Any:
        """The view itself: words from ``start`` on, one or two dimensions."""
        make: Any = make_array
        populate: Any = populate_array
        null: Any = cgutils.get_null_value
        result = make(self._result)(self._context, self._builder)
        word = self.constant(_WORD_BYTES)
        strides = [word] if len(shape) == 1 else [self._builder.mul(shape[1], word), word]
        populate(
            result,
            data=self._builder.gep(self._source.data, [start]),
            shape=shape,
            strides=strides,
            itemsize=word,
            meminfo=null(result.meminfo.type),
        )
        return result._getvalue()

    def add(self, value: Any, number: int) -> Any:
        return self._builder.add(value, self.constant(number))

    def subtract(self, value: Any, other: Any) -> Any:
        return self._builder.sub(value, other)


_VECTOR = types.Array(types.int64, 1, "C")
_MATRIX = types.Array(types.int64, 2, "C")


def _fixed_table(table: int, rows_at: int, columns: int) -> Any:
    """A table whose columns are a constant (or, below 0, a word of the header)."""

    @intrinsic
    def look(typingctx: Any, arena: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            build = _Builder(context, builder, signature, args)
            width = build.constant(columns) if columns > 0 else build.word(-columns)
            return build.view(build.word(META_AT + table), [build.word(rows_at), width])

        return _MATRIX(arena), codegen

    def plain(arena: Any) -> Any:
        width = columns if columns > 0 else int(arena[-columns])
        start = int(arena[META_AT + table])
        return arena[start : start + int(arena[rows_at]) * width].reshape(-1, width)

    return look if COMPILES else plain


pool_table = _fixed_table(_POOLS, META_NUM_GROUPS, POOL_WORDS)
"""pool_table(arena) → int64[groups, POOL_WORDS]."""
page_table = _fixed_table(_PAGES, META_NUM_PAGES, PAGE_WORDS)
"""page_table(arena) → int64[pages of all pools, PAGE_WORDS]."""
holder_table = _fixed_table(_HOLDERS, META_NUM_HOLDERS, HOLDER_WORDS)
"""holder_table(arena) → int64[1 + sequences + leases, HOLDER_WORDS]."""
holder_blocks = _fixed_table(_HOLDER_BLOCKS, META_NUM_HOLDERS, -META_MAX_BLOCKS)
"""holder_blocks(arena) → int64[1 + sequences + leases, blocks of the longest sequence]."""
stored_rows = _fixed_table(_STORED, META_NUM_STORED, STORED_WORDS)
"""stored_rows(arena) → int64[1 + stored objects, STORED_WORDS]."""


@intrinsic
def _unit_rows(typingctx: Any, arena: Any, is_block: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        build = _Builder(context, builder, signature, args)
        rows = build.add(build.pick(args[1], META_NUM_BLOCKS, 1), 3)
        start = build.pick(args[1], META_AT + _UNIT_ROWS, _IMAGES_AFTER)
        return build.view(start, [rows, build.constant(UNIT_WORDS)])

    return _MATRIX(arena, types.boolean), codegen


@intrinsic
def _unit_pages(typingctx: Any, arena: Any, is_block: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        build = _Builder(context, builder, signature, args)
        rows = build.add(build.pick(args[1], META_NUM_BLOCKS, 1), 1)
        start = build.pick(args[1], META_AT + _UNIT_PAGES, _IMAGES_AFTER)
        return build.view(start, [rows, build.pick(args[1], META_BLOCK_WIDTH, 1)])

    return _MATRIX(arena, types.boolean), codegen


@intrinsic
def _unit_places(typingctx: Any, arena: Any, is_block: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        build = _Builder(context, builder, signature, args)
        start = build.pick(args[1], META_AT + _UNIT_PLACES, _IMAGES_AFTER)
        end = build.pick(args[1], META_AT + _UNIT_PLACES + 1, _IMAGES_AFTER)
        return build.view(start, [build.subtract(end, start)])

    return _VECTOR(arena, types.boolean), codegen


@intrinsic
def _stored_places(typingctx: Any, arena: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        build = _Builder(context, builder, signature, args)
        start = build.word(META_AT + _STORED_PLACES)
        end = build.word(META_AT + _STORED_PLACES + 1)
        return build.view(start, [build.subtract(end, start)])

    return _VECTOR(arena), codegen


@intrinsic
def _words_at(typingctx: Any, array: Any, start: Any, size: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _Builder(context, builder, signature, args).view(args[1], [args[2]])

    return _VECTOR(array, types.intp, types.intp), codegen


def plain_unit_rows(arena: Any, is_block: bool) -> Any:
    """Python twin of :data:`unit_rows`."""
    start = int(arena[META_AT + _UNIT_ROWS + (0 if is_block else _IMAGES_AFTER)])
    rows = int(arena[META_NUM_BLOCKS + (0 if is_block else 1)]) + 3
    return arena[start : start + rows * UNIT_WORDS].reshape(rows, UNIT_WORDS)


def plain_unit_pages(arena: Any, is_block: bool) -> Any:
    """Python twin of :data:`unit_pages`."""
    start = int(arena[META_AT + _UNIT_PAGES + (0 if is_block else _IMAGES_AFTER)])
    rows = int(arena[META_NUM_BLOCKS + (0 if is_block else 1)]) + 1
    width = int(arena[META_BLOCK_WIDTH + (0 if is_block else 1)])
    return arena[start : start + rows * width].reshape(rows, width)


def plain_unit_places(arena: Any, is_block: bool) -> Any:
    """Python twin of :data:`unit_places`."""
    place = META_AT + _UNIT_PLACES + (0 if is_block else _IMAGES_AFTER)
    return arena[int(arena[place]) : int(arena[place + 1])]


def plain_stored_places(arena: Any) -> Any:
    """Python twin of :data:`stored_places`."""
    place = META_AT + _STORED_PLACES
    return arena[int(arena[place]) : int(arena[place + 1])]


def plain_words_at(array: Any, start: int, size: int) -> Any:
    """Python twin of :data:`words_at`."""
    return array[start : start + size]


unit_rows: Any = _unit_rows if COMPILES else plain_unit_rows
"""unit_rows(arena, is_block) → int64[1 + units + 2, UNIT_WORDS], of blocks or images."""
unit_pages: Any = _unit_pages if COMPILES else plain_unit_pages
"""unit_pages(arena, is_block) → int64[1 + units, groups of that side]."""
unit_places: Any = _unit_places if COMPILES else plain_unit_places
"""unit_places(arena, is_block) → int64[places of that side's index]."""
stored_places: Any = _stored_places if COMPILES else plain_stored_places
"""stored_places(arena) → int64[places of the index of stored objects]."""
words_at: Any = _words_at if COMPILES else plain_words_at
"""words_at(array, start, size) → int64[size] of an array's words."""
