"""The format of the Mooncake traces: one request a line, ids of blocks of 512 tokens.

Format: github.com/kvcache-ai/Mooncake, FAST25-release/traces. ``timestamp`` in ms,
``input_length``, ``output_length``, ``hash_ids``: one id for each block of the prompt, the last of
which may not be full; equal ids stand for equal prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .numbers import BadLine, field, id_array, ranges_of, whole
from .trace import IdRequest, TraceRequest

__all__ = ["read"]

BLOCK_TOKENS = 512


def read(lines: Iterator[tuple[int, dict[str, Any]]]) -> list[list[TraceRequest]]:
    """Every request is a session of its own.

    Raises:
        BadLine: the line read last is no request.
    """
    sessions: list[list[TraceRequest]] = []
    for number, (line, value) in enumerate(lines):
        ids = id_array(field(value, "hash_ids"), "hash_ids")
        prompt = whole(field(value, "input_length"), "input_length", 1)
        output = whole(field(value, "output_length"), "output_length")
        wanted = -(-prompt // BLOCK_TOKENS)
        if len(ids) != wanted:
            raise BadLine(f"hash_ids: expected {wanted} for {prompt} tokens, found {len(ids)}")
        request = IdRequest(line, number, 0, prompt, max(output, 1), ranges_of(ids), BLOCK_TOKENS)
        sessions.append([request])
    return sessions
