"""Prefix keys: a chain of hashes over tokens, the same in every process and on every machine.

``key_i = sha256(key_{i-1} ‖ count u32 ‖ tokens int32 ‖ extra length u32 ‖ extra)[:16]``, all little
endian; the chain starts at a seed over model, weights, adapter, tenant and block size. The token
chain is a prefix's only identity: the bytes of its pages depend on how they were computed.
"""

import hashlib
import struct
import sys
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .sha256 import KEY_BYTES, hash_chain, openssl_functions, scratch
from .words import Arena

__all__ = ["chain_seed", "hash_block", "hash_blocks", "key_words", "words_key"]


@lru_cache(maxsize=256)
def chain_seed(model: str, weights: str, adapter: str, tenant: bytes, block_tokens: int) -> bytes:
    """First link of a key chain: what is shared by all prefixes that may share pages.

    Args:
        model: name of the model.
        weights: identity of its weights; another value shares nothing.
        adapter: name of the adapter, empty for none.
        tenant: the tenant's salt, empty for none.
        block_tokens: tokens of a block.

    Returns:
        16 bytes.
    """
    digest = hashlib.sha256(b"kvstrata chain 1")
    for field in (model.encode(), weights.encode(), adapter.encode(), tenant):
        digest.update(struct.pack("<I", len(field)) + field)
    digest.update(struct.pack("<I", block_tokens))
    return digest.digest()[:KEY_BYTES]


def hash_block(parent: bytes, tokens: npt.NDArray[np.int32], extra: bytes = b"") -> bytes:
    """Key of one block.

    Args:
        parent: key of the block before, or the chain seed; 16 bytes.
        tokens: int32[n], the block's tokens.
        extra: what tokens do not say (images, audio).

    Returns:
        16 bytes.
    """
    head = parent + struct.pack("<I", len(tokens))
    tail = struct.pack("<I", len(extra)) + extra
    return hashlib.sha256(head + tokens.astype("<i4", copy=False).tobytes() + tail).digest()[:16]


def hash_blocks(
    seed: bytes,
    tokens: npt.NDArray[np.int32],
    block_tokens: int,
    extras: Mapping[int, bytes] | None = None,
) -> npt.NDArray[np.int64]:
    """Keys of every whole block of a prompt, in one pass.

    Args:
        seed: the chain seed.
        tokens: int32[n].
        block_tokens: tokens of a block.
        extras: block index → extra bytes.

    Returns:
        int64[n // block_tokens, 2], each key as two little-endian words; read only.
    """
    count = len(tokens) // block_tokens
    keys = np.empty((count, 2), dtype="<i8")
    functions = openssl_functions()
    if functions is None or sys.byteorder != "little":
        _hash_each(seed, tokens, block_tokens, extras, keys)
    else:
        _hash_compiled(functions, seed, tokens, block_tokens, extras, keys)
    keys.setflags(write=False)
    return keys


def _hash_compiled(
    functions: Arena,
    seed: bytes,
    tokens: npt.NDArray[np.int32],
    block_tokens: int,
    extras: Mapping[int, bytes] | None,
    keys: npt.NDArray[np.int64],
) -> None:
    """All blocks in one compiled call.

    Mutates:
        keys.
    """
    count = len(keys)
    work = scratch()
    work[:2] = key_words(seed)
    lengths = np.zeros(count, dtype=np.int64)
    parts = []
    for index in sorted(extras or ()):
        if extras and index < count:
            lengths[index] = len(extras[index])
            parts.append(extras[index])
    joined = np.frombuffer(b"".join(parts), dtype=np.uint8)
    body = np.ascontiguousarray(tokens, dtype=np.int32).view()
    body.setflags(write=False)  # as a request's tokens are: one compiled form
    hash_chain(functions, keys, body, block_tokens, lengths, joined, work)


def _hash_each(
    seed: bytes,
    tokens: npt.NDArray[np.int32],
    block_tokens: int,
    extras: Mapping[int, bytes] | None,
    keys: npt.NDArray[np.int64],
) -> None:
    """The same, block by block in Python.

    Mutates:
        keys.
    """
    key = seed
    for index in range(len(keys)):
        block = tokens[index * block_tokens : (index + 1) * block_tokens]
        key = hash_block(key, block, (extras or {}).get(index, b""))
        keys[index] = key_words(key)


def key_words(key: bytes) -> tuple[int, int]:
    """A key as the two words tables hold."""
    first, second = struct.unpack("<qq", key)
    return first, second


def words_key(first: int, second: int) -> bytes:
    """The key that two table words stand for."""
    return struct.pack("<qq", first, second)
