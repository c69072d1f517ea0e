"""What tells requests apart tells their keys apart; and a key is the same in every process."""

import hashlib
import os
import struct
import subprocess
import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager, ConfigError, Request

from .support import FULL, LAYOUT, config, hit, request, serve, tokens_of

TELLS_APART: dict[str, dict[str, Any]] = {
    "as it is": {},
    "model": {"model": "m2"},
    "weights": {"weights": "step 2"},
    "adapter": {"adapter": "lora"},
    "tenant": {"tenant": b"tenant"},
    "adapter is no tenant": {"tenant": b"lora"},
    "model runs into weights": {"model": "mstep", "weights": " 2"},
    "extra of block 0": {"extras": {0: b"image"}},
    "extra of block 1": {"extras": {1: b"image"}},
    "another extra": {"extras": {0: b"imagf"}},
    "a longer extra": {"extras": {0: b"image\0"}},
    "an extra of two blocks": {"extras": {0: b"image", 1: b"image"}},
    "one token": {"tokens": tokens_of("keys", 40) + np.eye(1, 40, 0, dtype=np.int32)[0]},
}

SAME_START = [
    {"as it is", "extra of block 1"},
    {"extra of block 0", "an extra of two blocks"},
]
"""What differs in block 1 alone."""


def keys_of(fields: dict[str, Any]) -> set[tuple[int, int]]:
    keys = request("keys", 40, **fields).keys(LAYOUT.block_tokens)
    return {(int(first), int(second)) for first, second in keys}


@pytest.mark.parametrize("pair", list(combinations(TELLS_APART, 2)), ids=" / ".join)
def test_no_two_share_a_key(pair: tuple[str, str]) -> None:
    """Not one block's key; an extra in block 1 leaves block 0 as it was."""
    first, second = (keys_of(TELLS_APART[name]) for name in pair)
    assert len(first) == len(second) == 2
    assert len(first & second) == (1 if set(pair) in SAME_START else 0)


def test_block_sizes_do_not_share_keys() -> None:
    wanted = request("keys", 64)
    assert not {*wanted.keys(16).reshape(-1)} & {*wanted.keys(32).reshape(-1)}


@pytest.mark.parametrize("name", [name for name in TELLS_APART if name != "as it is"])
def test_none_is_served_the_pages_of_another(cache: CacheManager, name: str) -> None:
    serve(cache, request("keys", 40))
    serve(cache, request("keys", 40))
    assert hit(cache, request("keys", 40)) == (32, 32)
    other = request("keys", 40, **TELLS_APART[name])
    assert hit(cache, other) == (0, 16 if name == "extra of block 1" else 0)
    serve(cache, other)
    assert hit(cache, other) == (32, 32)
    assert hit(cache, request("keys", 40)) == (32, 32)


def test_an_extra_of_a_block_that_output_completes(cache: CacheManager) -> None:
    """Tokens and extras of the block decide, whether a prompt or an output wrote it."""
    extras = {2: b"image"}
    serve(cache, request("keys", 40, extras=extras), num_output=8)
    whole = np.concatenate([tokens_of("keys", 40), np.arange(9, dtype=np.int32)])
    assert hit(cache, request("", tokens=whole, extras=extras)) == (48, 48)
    assert hit(cache, request("", tokens=whole)) == (32, 32)


def test_output_and_prompt_agree_on_keys() -> None:
    cache = CacheManager.open(FULL, config(slots={"full": 40}))
    serve(cache, request("keys", 40), num_output=40)
    whole = np.concatenate([tokens_of("keys", 40), np.arange(40, dtype=np.int32)])
    assert hit(cache, request("", tokens=whole)) == (64, 80)


def key_by_the_rule(parent: bytes, tokens: np.ndarray[Any, Any], extra: bytes) -> bytes:
    """The key as design and docs/rules.md say it, with nothing of kvstrata."""
    body = parent + struct.pack("<I", len(tokens)) + tokens.astype("<i4").tobytes()
    return hashlib.sha256(body + struct.pack("<I", len(extra)) + extra).digest()[:16]


def test_keys_follow_the_written_rule() -> None:
    seed = hashlib.sha256(b"kvstrata chain 1")
    for field in (b"m", b"w", b"a", b"t"):
        seed.update(struct.pack("<I", len(field)) + field)
    seed.update(struct.pack("<I", 16))
    tokens = tokens_of("keys", 40)
    first = key_by_the_rule(seed.digest()[:16], tokens[:16], b"")
    second = key_by_the_rule(first, tokens[16:32], b"x")
    wanted = Request(tokens, "m", "w", "a", b"t", {1: b"x"})
    assert wanted.keys(16).astype("<i8").tobytes() == first + second


_CHILD = """
import numpy as np
from kvstrata import Request
wanted = Request(np.arange(512), "m", "w", "a", b"t", {3: b"image"}), Request(np.arange(512), "m")
print(b"".join(each.keys(16).tobytes() for each in wanted).hex())
"""


def test_three_processes_agree() -> None:
    """DSK-05: processes with other hash seeds find each other's entries."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for seed in ("0", "1", "random")
    ]
    found = {child.communicate()[0].strip() for child in children}
    assert [child.returncode for child in children] == [0, 0, 0]
    wanted = (
        Request(np.arange(512, dtype=np.int32), "m", "w", "a", b"t", {3: b"image"}),
        Request(np.arange(512, dtype=np.int32), "m"),
    )
    here = b"".join(each.keys(16).tobytes() for each in wanted).hex()
    assert found == {here.encode()}
    assert len(here) == 2 * 2 * 32 * 16


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (np.zeros(0, dtype=np.int32), r"int32 of shape \(0,\)"),
        (np.zeros((2, 2), dtype=np.int32), r"shape \(2, 2\)"),
        (np.zeros(4), "float64"),
        (np.array([1, 2**31]), "larger ones"),
        (np.array([2**31], dtype=np.uint32), "larger ones"),
        (np.array(["a"]), "<U1"),
    ],
    ids=["empty", "two dimensions", "fractions", "33 bits", "unsigned", "words"],
)
def test_tokens_that_are_none(tokens: Any, found: str) -> None:
    with pytest.raises(ConfigError, match=f"tokens: expected .*{found}"):
        Request(tokens, "m")


def test_a_request_does_not_change_with_its_buffer() -> None:
    tokens = np.arange(40, dtype=np.int32)
    wanted = Request(tokens, "m")
    before = wanted.keys(16).tobytes()
    tokens[:] = 7
    assert wanted.keys(16).tobytes() == before
