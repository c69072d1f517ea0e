"""Compiled ways through a commit and through hashing give what the plain definitions give."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager, ConfigError, Request, Sequence
from kvstrata.core.keys import chain_seed, hash_block, hash_blocks, key_words
from kvstrata.core.words import HOLDER_SEALED, UNIT_KEY_0, UNIT_KEY_1

from .support import LAYOUT, Tokens, check_sums, memory_manager, tokens_of

SIZE = LAYOUT.block_tokens


def forms() -> dict[str, Callable[[Tokens], Any]]:
    """The same tokens as callers may hold them."""

    def read_only(tokens: Tokens) -> Tokens:
        copy = tokens.copy()
        copy.setflags(write=False)
        return copy

    return {
        "array": lambda tokens: tokens,
        "list": lambda tokens: tokens.tolist(),
        "read only": read_only,
        "wide": lambda tokens: tokens.astype(np.int64),
        "byte-swapped": lambda tokens: tokens.astype(">i4"),
        "every other": lambda tokens: np.repeat(tokens, 2)[::2],
        "reversed": lambda tokens: tokens[::-1].copy()[::-1],
    }


def check_keys(cache: CacheManager, sequence: Sequence, tokens: list[int]) -> None:
    """Every sealed block has the key of the tokens that were committed to it."""
    row = sequence.id & 0xFFFF
    request = sequence.plan.request
    key = request.seed(SIZE)
    for index in range(int(cache.tables.holders[row, HOLDER_SEALED])):
        part = np.array(tokens[index * SIZE : (index + 1) * SIZE], dtype=np.int32)
        key = hash_block(key, part, (request.extras or {}).get(index, b""))
        block = cache.tables.blocks.rows[int(cache.tables.holder_blocks[row, index])]
        assert (int(block[UNIT_KEY_0]), int(block[UNIT_KEY_1])) == key_words(key), index


def grow(
    cache: CacheManager, batch: dict[Sequence, list[int]], rng: random.Random, form: Any
) -> None:
    """Some steps of all sequences at once: whole or in part, all tokens given."""
    for _ in range(12):
        wanted = [rng.choice([1, 2, SIZE, 3 * SIZE]) for _ in batch]
        step = cache.reserve([sequence.id for sequence in batch], wanted)
        given = []
        for (sequence, tokens), start, count in zip(
            batch.items(), step.start, step.num_tokens, strict=True
        ):
            prompt = sequence.plan.request.tokens[start : start + count].tolist()
            given.append(prompt + [rng.randrange(9) for _ in range(count - len(prompt))])
            del tokens[start:]
        ids = np.array([token for part in given for token in part], dtype=np.int32)
        some = None
        if rng.random() < 0.3:  # what was written in place may be given back
            some = [max(int(count) - 1, 0) for count in step.num_tokens]
        step.commit(accepted=some, tokens=form(ids))
        for tokens, part, kept in zip(batch.values(), given, step.accepted, strict=True):
            tokens.extend(part[:kept])
        for sequence, tokens in batch.items():
            check_keys(cache, sequence, tokens)


@pytest.mark.parametrize("form", forms().values(), ids=forms())
@pytest.mark.parametrize("extras", [None, {2: b"image"}], ids=["no extras", "extras"])
def test_sealed_blocks_have_the_keys_of_their_tokens(form: Any, extras: Any) -> None:
    rng = random.Random(1)
    with memory_manager(slots={"full": 200, "swa": 40}, max_tokens_per_sequence=4096) as cache:
        batch: dict[Sequence, list[int]] = {}
        for name, length in (("one", 5), ("two", 40), ("three", 48)):
            wanted = Request(tokens_of(name, length), "m", extras=extras)
            batch[cache.begin(cache.match(wanted))] = []
        grow(cache, batch, rng, form)
        first = next(iter(batch))
        batch[first.fork()] = list(batch[first])
        grow(cache, batch, rng, form)
        check_sums(cache)


def test_tokens_that_contradict_a_prompt_change_nothing() -> None:
    with memory_manager() as cache:
        done, inside = (
            cache.begin(cache.match(Request(tokens_of(name, 20), "m"))) for name in ("a", "b")
        )
        cache.reserve([done.id], [20]).commit()
        step = cache.reserve([done.id, inside.id], [3, 20])
        right = np.concatenate([[1, 2, 3], tokens_of("b", 20)])
        tables = (cache.arena, cache._steps, cache._prompts.open_tokens)
        before = [table.copy() for table in tables]
        for place in (3, 10, 22):
            wrong = right.copy()
            wrong[place] += 1
            for tokens in (wrong, right[:-1], None):
                with pytest.raises(ConfigError):
                    step.commit(tokens=tokens)
                assert not step.accepted.any()
                assert not step.ended
                assert all(map(np.array_equal, tables, before))
        step.commit(tokens=right)
        assert (done.position, inside.position) == (23, 20)


@pytest.mark.parametrize("size", [1, 3, 16, 64])
@pytest.mark.parametrize("form", ["array", "read only", "byte-swapped", "every other", "reversed"])
def test_keys_are_those_of_hash_block(size: int, form: str) -> None:
    tokens = tokens_of("keys", 7 * size + size // 2) - 500
    extras = {0: b"", 1: b"x" * 5000, 3: b"y", 6: b"z" * 64, 7: b"past the last whole block"}
    key = seed = chain_seed("m", "", "", b"", size)
    expected = []
    for index in range(7):
        key = hash_block(key, tokens[index * size : (index + 1) * size], extras.get(index, b""))
        expected.append(key_words(key))
    found = hash_blocks(seed, forms()[form](tokens), size, extras)
    assert list(map(tuple, found.tolist())) == expected
