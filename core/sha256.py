"""SHA-256 from compiled code: the OpenSSL that Python's own hashlib uses, without Python calls.

A call of hashlib costs more than hashing one block does. Here compiled code calls the library's
functions by their addresses. Where they cannot be found (another OpenSSL, a static build) or do
not give hashlib's digests, ``openssl_functions`` is None and :mod:`.keys` uses hashlib.
"""

import ctypes
import hashlib
from functools import lru_cache
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .compile import compiled, helper
from .views import COMPILES
from .words import Arena

__all__ = [
    "HEAD",
    "KEY_BYTES",
    "call_by_address",
    "call_with_five",
    "context_of",
    "end_block",
    "hash_chain",
    "openssl_functions",
    "scratch",
    "start_block",
]

KEY_BYTES: Final = 16

_NAMES: Final = ("SHA256_Init", "SHA256_Update", "SHA256_Final")
HEAD, TAIL, DIGEST, CONTEXT = 0, 3, 4, 8
"""Words of :func:`scratch`: parent key and number of tokens, number of extra bytes, the digest, and
OpenSSL's context."""
_CONTEXT_WORDS: Final = 64
"""More than any OpenSSL's context (112 bytes in 1.1 and 3)."""


@lru_cache(maxsize=1)
def openssl_functions() -> Arena | None:
    """Addresses of OpenSSL's init, update and final: int64[3], or None where there are none."""
    if not COMPILES:
        return None
    try:
        import _hashlib

        library = ctypes.CDLL(_hashlib.__file__)
        pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _NAMES]
    except (ImportError, AttributeError, OSError):
        return None
    functions: Arena = np.array(pointers, dtype=np.int64)
    return functions if _agrees_with_hashlib(functions) else None


def _agrees_with_hashlib(functions: Arena) -> bool:
    tokens = np.arange(300, dtype=np.int32)
    tokens.setflags(write=False)
    none = np.zeros(0, dtype=np.uint8)
    none.setflags(write=False)
    keys: Arena = np.zeros((3, 2), dtype=np.int64)
    hash_chain(functions, keys, tokens, 100, np.zeros(3, np.int64), none, scratch())
    key = bytes(16)
    for block in tokens.reshape(3, 100):
        text = key + (100).to_bytes(4, "little") + block.astype("<i4").tobytes() + bytes(4)
        key = hashlib.sha256(text).digest()[:16]
    return keys[2].astype("<i8").tobytes() == key


def scratch() -> Arena:
    """Working memory of :func:`hash_chain`, which starts with the parent of the first block."""
    work: Arena = np.zeros(CONTEXT + _CONTEXT_WORDS, dtype=np.int64)
    return work


def _caller(num_words: int) -> Any:
    """Signature and code of a call of a C function of so many words."""
    signature = types.int64(*[types.int64] * (1 + num_words))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word] * num_words)
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return signature, generate


def _call(typing_context: Any, function: Any, first: Any, second: Any, third: Any) -> Any:
    return _caller(3)


def _call_with_five(
    typing_context: Any, function: Any, first: Any, second: Any, third: Any, fourth: Any, fifth: Any
) -> Any:
    return _caller(5)


call_by_address: Any = intrinsic(_call)
"""call_by_address(function, first, second, third): calls a C function of three words."""
call_with_five: Any = intrinsic(_call_with_five)
"""The same of five words."""


@compiled
def hash_chain(
    functions: Arena,
    keys: Arena,
    tokens: Any,
    block_tokens: int,
    extra_lengths: Arena,
    extras: Any,
    work: Arena,
) -> int:
    """Keys of all whole blocks of a prompt, each over the one before.

    Args:
        functions: int64[3], see :func:`openssl_functions`.
        keys: int64[n, 2], filled.
        tokens: int32[at least n * block_tokens], contiguous.
        block_tokens: tokens of a block.
        extra_lengths: int64[n], bytes of extras of each block.
        extras: uint8[sum of them], one after another.
        work: int64[...] of :func:`scratch`; its first two words are the seed.

    Returns:
        0.

    Mutates:
        keys, work.
    """
    text, extra = tokens.ctypes.data, extras.ctypes.data
    for index in range(len(keys)):
        length = extra_lengths[index]
        start_block(functions, work, block_tokens)
        call_by_address(functions[1], context_of(work), text, block_tokens * 4)
        end_block(functions, work, extra, length)
        text += block_tokens * 4
        extra += length
        keys[index, 0], keys[index, 1] = work[HEAD], work[HEAD + 1]
    return 0


@helper
def context_of(work: Arena) -> Any:
    """Address of OpenSSL's context in the scratch."""
    return work.ctypes.data + CONTEXT * 8


@helper
def start_block(functions: Arena, work: Arena, block_tokens: int) -> None:
    """Begin a block's hash: its head is the parent's key, in the scratch, and u32 tokens."""
    work[HEAD + 2] = block_tokens
    call_by_address(functions[0], context_of(work), 0, 0)
    call_by_address(functions[1], context_of(work), work.ctypes.data, KEY_BYTES + 4)


@helper
def end_block(functions: Arena, work: Arena, extra: Any, num_bytes: int) -> None:
    """End it with u32 extra bytes and those; the key takes the parent's place in the scratch."""
    work[TAIL] = num_bytes
    call_by_address(functions[1], context_of(work), work.ctypes.data + TAIL * 8, 4)
    if num_bytes:
        call_by_address(functions[1], context_of(work), extra, num_bytes)
    call_by_address(functions[2], work.ctypes.data + DIGEST * 8, context_of(work), 0)
    work[HEAD], work[HEAD + 1] = work[DIGEST], work[DIGEST + 1]
