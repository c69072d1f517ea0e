"""A request trace in memory: its requests by session, their tokens made when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

__all__ = ["IdRequest", "Stream", "Trace", "TraceRequest", "block_tokens", "stream_tokens"]

Tokens = npt.NDArray[np.int32]

_TOKEN_BITS = 30


class Stream(IntEnum):
    """What tokens are made for; those of two streams have nothing in common."""

    IDS = 0
    """Blocks by id, numbered by the session where ids are local to one."""
    TAIL = 1
    """What no id covers of a prompt, numbered by request."""
    OUTPUT = 2
    """What a model answers, numbered by request."""


class TraceRequest(ABC):
    """One request of a trace.

    Attributes:
        line: of the file it stands in, from 1.
        prompt_tokens: length of its prompt.
        output_tokens: how many tokens the model answers, at least 1.
    """

    line: int
    prompt_tokens: int
    output_tokens: int

    @abstractmethod
    def prompt(self) -> Tokens:
        """int32[prompt_tokens]."""

    @abstractmethod
    def output(self) -> Tokens:
        """int32[output_tokens]."""


@dataclass(frozen=True)
class IdRequest(TraceRequest):
    """A request that names its prompt by the ids of its blocks.

    Equal ids stand for equal tokens. What no id covers, and all output, is like no other request's.

    Attributes:
        number: the request's place in the trace.
        session: its session, where ids are local to one; 0 where they are global.
        ranges: int64[n, 2], its blocks' ids in order: first id and how many, range after range.
        block: tokens an id stands for.
    """

    line: int
    number: int
    session: int
    prompt_tokens: int
    output_tokens: int
    ranges: npt.NDArray[np.int64]
    block: int

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """int64[blocks], ids of its blocks in order."""
        starts, counts = self.ranges.T
        ends = np.cumsum(counts)
        return np.repeat(starts - ends + counts, counts) + np.arange(counts.sum())

    def prompt(self) -> Tokens:
        """int32[prompt_tokens]."""
        block = min(self.block, self.prompt_tokens)  # of a long one no more than is wanted
        tokens = block_tokens(self.ids, block, Stream.IDS, self.session)
        missing = self.prompt_tokens - len(tokens)
        if missing > 0:
            return np.concatenate([tokens, stream_tokens(Stream.TAIL, self.number, missing)])
        return tokens[: self.prompt_tokens]

    def output(self) -> Tokens:
        """int32[output_tokens]."""
        return stream_tokens(Stream.OUTPUT, self.number, self.output_tokens)


@dataclass(frozen=True)
class Trace:
    """A whole trace.

    Attributes:
        name: of the file.
        kind: of the format.
        digest: of the file's bytes once decompressed, 16 hexadecimal digits.
        sessions: the requests of each session in order; a session's next request follows the answer
            to the one before.
    """

    name: str
    kind: str
    digest: str
    sessions: Sequence[Sequence[TraceRequest]]

    @property
    def num_requests(self) -> int:
        """Requests of all sessions."""
        return sum(len(session) for session in self.sessions)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, output included; 0 where there is none."""
        lengths = (one.prompt_tokens + one.output_tokens for one in self.requests())
        return max(lengths, default=0)

    def requests(self) -> Iterable[TraceRequest]:
        """All requests, session by session."""
        return (request for session in self.sessions for request in session)


def block_tokens(
    ids: npt.NDArray[np.int64], block: int, stream: Stream = Stream.IDS, number: int = 0
) -> Tokens:
    """Tokens of blocks that are known by ids only: int32[len(ids) * block], below 2**30.

    Every token is a mix of its stream, its block's id and its place, so that equal ids of one
    stream give equal tokens and others do not.
    """
    origin = np.array([stream << 40 | number], dtype=np.uint64)
    blocks = _mixed(_mixed(origin) + ids.astype(np.uint64))
    places: npt.NDArray[np.uint64] = np.arange(block, dtype=np.uint64)
    tokens = _mixed(blocks[:, None] + places)
    return (tokens >> np.uint64(64 - _TOKEN_BITS)).astype(np.int32).reshape(-1)


def stream_tokens(stream: Stream, number: int, count: int) -> Tokens:
    """Tokens that no other stream of that kind has: int32[count]."""
    return block_tokens(np.zeros(1, dtype=np.int64), count, stream, number)


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64 (Steele, Lea and Flood 2014): numbers that look random, others for each word."""
    mixed = words * np.uint64(0x9E37_79B9_7F4A_7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D0_49BB_1331_11EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
