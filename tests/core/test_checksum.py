"""The page checksum: equal to its definition in plain integers, and what it is sure to find."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstrata.core.checksum import (
    ROW_WORDS,
    checksum_bytes,
    checksum_pages,
    row_multipliers,
    word_multipliers,
)
from kvstrata.core.errors import InvariantViolation

MASK = (1 << 64) - 1


def mix(value: int) -> int:
    z = (value + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def by_definition(data: bytes) -> int:
    """docs/checksum.md in plain integers, word by word."""
    total = 0x6B76737472617461 + len(data) * 0x9E3779B97F4A7C15
    data += b"\0" * (-len(data) % 4)
    for index in range(len(data) // 4):
        word = int.from_bytes(data[4 * index : 4 * index + 4], "little")
        row, column = divmod(index, 4096)
        total += (mix(2**32 + row) | 1) * word * ((mix(column) >> 32) | 1)
    total &= MASK
    return total - 2**64 if total >= 2**63 else total


def pages(num_slots: int, page_bytes: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.integers(0, 2**64, (num_slots, page_bytes // 8), dtype=np.uint64)


def golden(size: int) -> bytes:
    return bytes(i * 7 % 251 for i in range(size))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 7743503553282536545),
        (b"\0" * 64, -480510958414825055),
        (golden(64), 2568704232451992888),
        (golden(20_000), 5620179570841800556),
        (b"\xff" * 65_536, -2551418074066616667),
    ],
    ids=["empty", "zeros", "one-line", "two-rows", "ones"],
)
def test_golden_values(data: bytes, expected: int) -> None:
    """Stored pages carry these values: they never change."""
    assert by_definition(data) == expected
    assert checksum_bytes(data) == expected


def test_golden_constants() -> None:
    assert word_multipliers()[:4].tolist() == [3793791033, 2433363437, 2539140575, 487265509]
    assert row_multipliers(2).tolist() == [mix(2**32) | 1, mix(2**32 + 1) | 1]
    assert len(np.unique(word_multipliers())) == ROW_WORDS
    assert (word_multipliers() & 1).all()
    assert len(np.unique(row_multipliers(1 << 16))) == 1 << 16


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_length_equals_the_definition(data: bytes) -> None:
    assert checksum_bytes(data) == by_definition(data)


@pytest.mark.parametrize("page_bytes", [64, 192, 16_384, 16_448, 50_048])
def test_compiled_equals_the_definition(page_bytes: int) -> None:
    words = pages(4, page_bytes, seed=page_bytes)
    slots = np.array([3, 0, 3, 1], dtype=np.int32)
    expected = [by_definition(words[slot].tobytes()) for slot in slots]
    assert checksum_pages(words, slots).tolist() == expected
    assert checksum_pages(words, slots[:0]).tolist() == []


def test_equal_with_the_compiler_off() -> None:
    code = (
        "import numpy as np; from kvstrata.core.checksum import checksum_pages as c\n"
        "w = np.arange(3 * 2056, dtype=np.uint64).reshape(3, -1) * np.uint64(2654435761)\n"
        "print(c(w, np.array([2, 0])).tolist())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for disabled in ("0", "1")
    }
    assert len(printed) == 1
    assert printed.pop().count(",") == 1


def test_every_single_bit_flip_is_found() -> None:
    """All bits of a page of one full row and a bit more, at once: one flipped page a slot."""
    page_bytes = 16_384 + 64
    page = pages(1, page_bytes)[0]
    original = checksum_pages(page[None], np.array([0]))[0]
    bits = np.uint64(1) << np.arange(64, dtype=np.uint64)
    for word in range(page_bytes // 8):
        flipped = np.repeat(page[None], 64, axis=0)
        flipped[:, word] ^= bits
        found = checksum_pages(flipped, np.arange(64))
        assert (found != original).all()
        assert len(np.unique(found)) == 64


def test_any_two_bit_flips_in_a_row_are_found() -> None:
    """Flips of different bits cannot cancel; of equal bits, bit 31 has the least room to show."""
    multipliers = word_multipliers().astype(np.uint64) << np.uint64(31)
    differences = np.concatenate([multipliers, np.uint64(0) - multipliers])
    assert len(np.unique(differences)) == 2 * ROW_WORDS
    assert (differences != 0).all()


@settings(max_examples=60, deadline=None)
@given(index=st.integers(0, 6_000), value=st.integers(0, 2**32 - 1), data=st.data())
def test_any_changed_word_is_found(index: int, value: int, data: st.DataObject) -> None:
    page = pages(1, 24_064, seed=data.draw(st.integers(0, 9)))
    changed = page.copy()
    changed.view(np.uint32)[0, index] = value
    same = page.view(np.uint32)[0, index] == value
    slot = np.array([0])
    assert (checksum_pages(page, slot) == checksum_pages(changed, slot)).all() == same


@settings(max_examples=60, deadline=None)
@given(first=st.integers(0, 6_000), second=st.integers(0, 6_000), length=st.integers(1, 16))
def test_swapped_words_are_found(first: int, second: int, length: int) -> None:
    page = pages(1, 24_064)
    swapped = page.copy()
    a, b = (slice(i, i + length) for i in (first, max(second, first + length) % 6_000))
    halves = swapped.view(np.uint32)[0]
    halves[a], halves[b] = halves[b].copy(), halves[a].copy()
    slot = np.array([0])
    if not np.array_equal(page, swapped):
        assert checksum_pages(page, slot) != checksum_pages(swapped, slot)


def test_length_is_part_of_the_checksum() -> None:
    assert len({checksum_bytes(b"\0" * size) for size in range(200)}) == 200


@pytest.mark.parametrize("slot", [-1, 2], ids=["below", "above"])
def test_a_slot_outside_the_pool_is_refused(slot: int) -> None:
    with pytest.raises(InvariantViolation, match=rf"slots in \[0, 2\), found {slot}"):
        checksum_pages(pages(2, 64), np.array([0, slot]))
