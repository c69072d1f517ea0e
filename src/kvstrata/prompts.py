"""Prompts and open tokens of running sequences: where the keys of sealed blocks come from."""

from collections.abc import Sequence as Items

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import Tables
from kvstrata.core.errors import ConfigError
from kvstrata.core.keys import hash_block, key_words, words_key
from kvstrata.core.sha256 import openssl_functions, scratch
from kvstrata.core.steps import (
    FITS,
    ID,
    ROW,
    START,
    STATUS,
    STEP_POSITION,
    TOKENS,
    WORK_INDEX,
    WORK_KEY_0,
    WORK_KEY_1,
    WORK_ROW,
    WORK_STEP,
)
from kvstrata.core.tokens import hash_outputs
from kvstrata.core.words import (
    HOLDER_SEED_0,
    HOLDER_SEED_1,
    UNIT_KEY_0,
    UNIT_KEY_1,
    Arena,
)

from .integers import int32s
from .requests import Plan

__all__ = ["NO_IDS", "Prompts"]

NO_IDS: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)


class Prompts:
    """Tokens by sequence row.

    Args:
        num_rows: 1 + sequences.
        block_tokens: tokens of a block.
        max_blocks: of the longest sequence.
    """

    def __init__(self, num_rows: int, block_tokens: int, max_blocks: int) -> None:
        self._block_tokens = block_tokens
        self._plans: dict[int, Plan] = {}
        self._inside: set[int] = set()
        self.lengths: Arena = np.zeros(num_rows, dtype=np.int64)
        """int64[rows], length of each prompt."""
        self.open_tokens: npt.NDArray[np.int32] = np.zeros((num_rows, block_tokens), dtype=np.int32)
        """int32[rows, block_tokens], tokens of the block being filled, by position modulo block."""
        self.keys: Arena = np.zeros((num_rows, max_blocks, 2), dtype=np.int64)
        """int64[rows, max_blocks, 2], keys of each prompt's whole blocks."""
        self._with_extras: set[int] = set()
        functions = openssl_functions()
        self.functions: Arena = np.zeros(3, dtype=np.int64) if functions is None else functions
        """Where compiled code finds the hash; zeros where it cannot."""
        self.scratch = scratch()

    @property
    def can_hash_outputs(self) -> bool:
        """Whether compiled code can make the keys of output blocks: none has extras."""
        return not self._with_extras and bool(self.functions[0])

    @property
    def some_inside(self) -> bool:
        """Whether a sequence is inside its prompt."""
        return bool(self._inside)

    def begin(self, row: int, plan: Plan) -> None:
        """A sequence begins; the tokens of its last, partial prompt block are known already."""
        self._plans[row] = plan
        self._inside.add(row)
        self.lengths[row] = plan.prompt_tokens
        self.keys[row, : len(plan.keys)] = plan.keys[: self.keys.shape[1]]
        if plan.request.extras:
            self._with_extras.add(row)
        rest = plan.prompt_tokens % self._block_tokens
        if rest:
            self.open_tokens[row, :rest] = plan.request.tokens[-rest:]

    def fork(self, row: int, parent: int) -> None:
        """A sequence begins as a copy of another."""
        self._plans[row] = self._plans[parent]
        if parent in self._inside:
            self._inside.add(row)
        if parent in self._with_extras:
            self._with_extras.add(row)
        self.lengths[row] = self.lengths[parent]
        known = len(self._plans[row].keys)
        self.keys[row, :known] = self.keys[parent, :known]
        self.open_tokens[row] = self.open_tokens[parent]

    def key_inside(self, row: int, position: int, before: bytes) -> tuple[int, int]:
        """Key at a position inside a block; ``before`` is the key of the block before."""
        index, inside = divmod(position, self._block_tokens)
        filled = self.open_tokens[row, :inside].copy()
        request = self._plans[row].request
        in_prompt = request.tokens[index * self._block_tokens : position]
        filled[: len(in_prompt)] = in_prompt
        extra = (request.extras or {}).get(index, b"")
        return key_words(hash_block(before, filled, extra))

    def passed(self, rows: Arena, steps: Arena) -> None:
        """After a commit: forget which sequences have left their prompts."""
        if not self._inside:
            return
        for row in rows[:, ROW].tolist():
            if row in self._inside and steps[row, STEP_POSITION] >= self.lengths[row]:
                self._inside.discard(row)

    def end(self, row: int) -> None:
        """A sequence ended."""
        self._plans.pop(row, None)
        self._inside.discard(row)
        self._with_extras.discard(row)
        self.lengths[row] = 0

    def rows(self) -> list[int]:
        """Rows of the sequences that run or drain, ascending."""
        return sorted(self._plans)

    def plan(self, row: int) -> Plan:
        """The plan a row's sequence began on."""
        return self._plans[row]

    def ids(self, rows: Arena, tokens: npt.ArrayLike | Items[int] | None) -> npt.NDArray[np.int32]:
        """The step's tokens as one array; inside a prompt they must be the prompt's.

        Raises:
            ConfigError: they are no list of numbers, or they contradict a prompt.
        """
        if tokens is None:
            return NO_IDS
        ids = int32s("tokens", tokens)
        if self._inside:
            counts = np.where(rows[:, STATUS] == FITS, rows[:, TOKENS], 0)
            self._check_inside(rows, ids, np.cumsum(counts) - counts)
        return ids

    def _check_inside(
        self, rows: Arena, ids: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
    ) -> None:
        for number in range(len(rows)):
            row, start = int(rows[number, ROW]), int(rows[number, START])
            if rows[number, STATUS] != FITS or row not in self._inside:
                continue
            prompt = self._plans[row].request.tokens
            if start >= len(prompt):
                continue
            expected = prompt[start : start + int(rows[number, TOKENS])]
            at = int(offsets[number])
            if not np.array_equal(ids[at : at + len(expected)], expected):
                raise ConfigError(
                    f"tokens: sequence {int(rows[number, ID]):#x} is inside its prompt: expected "
                    f"the prompt's tokens from position {start} on, found others"
                )

    def hash_outputs(
        self, arena: Arena, rows: Arena, ids: npt.NDArray[np.int32], work: Arena, tables: Tables
    ) -> None:
        """Fill in the keys of the blocks a commit seals that no prompt covers.

        Args:
            arena: the arena.
            rows: the step.
            ids: int32[...], the step's tokens, or empty.
            work: int64[m, ...], what the commit seals, with the keys of the prompts' blocks.
            tables: the arena's tables.

        Mutates:
            work.
        """
        if not len(ids):
            return
        if self.can_hash_outputs:
            hash_outputs(self.functions, arena, rows, ids, self.open_tokens, work, self.scratch)
            return
        for place in np.flatnonzero((work[:, WORK_KEY_0 : WORK_KEY_1 + 1] == 0).all(axis=1)):
            number = int(work[place, WORK_STEP])
            at = int(rows[:number, TOKENS][rows[:number, STATUS] == FITS].sum())
            self._hash_output(work, int(place), int(rows[number, START]), ids[at:], tables)

    def _hash_output(
        self, part: Arena, place: int, start: int, ids: npt.NDArray[np.int32], tables: Tables
    ) -> None:
        row, index = int(part[place, WORK_ROW]), int(part[place, WORK_INDEX])
        begin, end = index * self._block_tokens, (index + 1) * self._block_tokens
        before = self.open_tokens[row, : max(start - begin, 0)]
        filled = np.concatenate([before, ids[max(begin - start, 0) : end - start]])
        request = self._plans[row].request
        in_prompt = request.tokens[begin:end]
        extra = (request.extras or {}).get(index, b"")
        filled[: len(in_prompt)] = in_prompt
        part[place, WORK_KEY_0 : WORK_KEY_1 + 1] = key_words(
            hash_block(self._parent_key(part, place, row, index, tables), filled, extra)
        )

    @staticmethod
    def _parent_key(part: Arena, place: int, row: int, index: int, tables: Tables) -> bytes:
        if index == 0:
            seed = tables.holders[row, HOLDER_SEED_0 : HOLDER_SEED_1 + 1]
            return words_key(int(seed[0]), int(seed[1]))
        if place and part[place - 1, [WORK_ROW, WORK_INDEX]].tolist() == [row, index - 1]:
            return words_key(int(part[place - 1, WORK_KEY_0]), int(part[place - 1, WORK_KEY_1]))
        block = tables.blocks.rows[int(tables.holder_blocks[row, index - 1])]
        return words_key(int(block[UNIT_KEY_0]), int(block[UNIT_KEY_1]))
