"""The format of the agentic coding traces: one conversation a line.

``requests`` holds rows of time, prompt tokens, output tokens, type, API time, think time, ``keep``
and ranges ``[[start, n], ...]``: the ids of a request are the first ``keep`` of the one before,
then the ranges. ``block_size`` is what an id stands for; what remains of a prompt has no id. With
``hash_id_scope`` ``local`` (and without it) equal ids of two conversations have nothing in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .numbers import BadLine, field, shown, whole
from .trace import IdRequest, TraceRequest

__all__ = ["read"]

_COLUMNS = 8
_SCOPES = ("local", "global")

Ranges = npt.NDArray[np.int64]


def read(lines: Iterator[tuple[int, dict[str, Any]]]) -> list[list[TraceRequest]]:
    """Every conversation is a session; one without requests is left out.

    Raises:
        BadLine: the line read last is no conversation.
    """
    sessions: list[list[TraceRequest]] = []
    first = 0
    for line, value in lines:
        session = _conversation(line, value, first, len(sessions) + 1)
        if session:
            sessions.append(session)
            first += len(session)
    return sessions


def _conversation(line: int, value: dict[str, Any], first: int, session: int) -> list[TraceRequest]:
    block = whole(field(value, "block_size"), "block_size", 1)
    scope = value.get("hash_id_scope", _SCOPES[0])
    if scope not in _SCOPES:
        raise BadLine(f"hash_id_scope: expected {' or '.join(_SCOPES)}, found {shown(scope)}")
    rows = field(value, "requests")
    if not isinstance(rows, list):
        raise BadLine(f"requests: expected a list of rows, found {shown(rows)}")
    requests: list[TraceRequest] = []
    ranges: Ranges = np.zeros((0, 2), dtype=np.int64)
    for place, row in enumerate(rows):
        try:
            prompt, output, ranges = _row(row, ranges, block)
        except BadLine as error:
            raise BadLine(f"request {place}: {error}") from None
        scoped = session if scope == "local" else 0
        requests.append(IdRequest(line, first + place, scoped, prompt, output, ranges, block))
    return requests


def _row(row: Any, before: Ranges, block: int) -> tuple[int, int, Ranges]:
    """Tokens of prompt and output of a row, and the ranges of its ids."""
    if not isinstance(row, list) or len(row) != _COLUMNS:
        raise BadLine(f"expected a row of {_COLUMNS} columns, found {shown(row)}")
    prompt, output = whole(row[1], "prompt tokens", 1), whole(row[2], "output tokens")
    ranges = np.concatenate([_kept(before, whole(row[6], "keep")), _own(row[7])])
    num_ids, most = int(ranges[:, 1].sum()), -(-prompt // block)
    if num_ids > most:
        raise BadLine(
            f"expected at most {most} ids of {block} tokens for a prompt of {prompt}, "
            f"found {num_ids}"
        )
    return prompt, max(output, 1), ranges


def _kept(before: Ranges, keep: int) -> Ranges:
    """Ranges of the first ``keep`` ids."""
    ends = np.cumsum(before[:, 1])
    most = int(ends[-1]) if len(ends) else 0
    if keep > most:
        raise BadLine(f"keep: expected at most the {most} ids of the request before, found {keep}")
    if keep == 0:
        return before[:0]
    kept = before[: int(np.searchsorted(ends, keep)) + 1].copy()
    kept[-1, 1] -= int(ends[len(kept) - 1]) - keep
    return kept


def _own(ranges: Any) -> Ranges:
    if not isinstance(ranges, list):
        raise BadLine(f"ranges: expected a list of [start, n], found {shown(ranges)}")
    for one in ranges:
        if not isinstance(one, list) or len(one) != 2:
            raise BadLine(f"ranges: expected [start, n], found {shown(one)}")
    own = [(whole(start, "start"), whole(count, "n", 1)) for start, count in ranges]
    return np.array(own, dtype=np.int64).reshape(-1, 2)
