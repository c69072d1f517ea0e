"""Prefix keys: a chain of hashes over blocks of tokens."""

import hashlib
import struct
from collections.abc import Mapping, Sequence


def block_key(parent: bytes, tokens: Sequence[int], extra: bytes = b"") -> bytes:
    """Key of the block that holds ``tokens`` and follows the prefix with the key ``parent``."""
    text = parent + struct.pack("<I", len(tokens))
    for token in tokens:
        text += struct.pack("<i", token)
    text += struct.pack("<I", len(extra)) + extra
    return hashlib.sha256(text).digest()[:16]


def chain(
    seed: bytes, tokens: Sequence[int], block_tokens: int, extras: Mapping[int, bytes]
) -> list[bytes]:
    """Keys of the whole blocks of ``tokens``, first to last."""
    keys: list[bytes] = []
    for block in range(len(tokens) // block_tokens):
        part = tokens[block * block_tokens : (block + 1) * block_tokens]
        keys.append(block_key(keys[-1] if keys else seed, part, extras.get(block, b"")))
    return keys


def key_at(
    seed: bytes,
    tokens: Sequence[int],
    block_tokens: int,
    extras: Mapping[int, bytes],
    position: int,
) -> bytes:
    """Key of the block that ends at a position, or the partial key at one inside a block."""
    whole, rest = divmod(position, block_tokens)
    parent = chain(seed, tokens[: whole * block_tokens], block_tokens, extras)[-1:] or [seed]
    if rest == 0:
        return parent[0]
    part = tokens[whole * block_tokens : position]
    return block_key(parent[0], part, extras.get(whole, b""))
