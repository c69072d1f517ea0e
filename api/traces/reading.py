"""Reading a trace file: its format is told by its first line, and every line is checked."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from kvstrata import ConfigError

from . import agentic, mooncake, token_lines
from .numbers import BadLine, shown
from .trace import Trace, TraceRequest

__all__ = ["read_trace"]

Lines = Iterator[tuple[int, dict[str, Any]]]
Reader = Callable[[Lines], list[list[TraceRequest]]]

_FORMATS: dict[str, tuple[str, Reader]] = {
    "hash_ids": ("mooncake", mooncake.read),
    "requests": ("agentic", agentic.read),
    "tokens": ("tokens", token_lines.read),
}
"""Format and reader by the key that its first line must have."""


def read_trace(path: Path) -> Trace:
    """Read and check a whole trace, plain or compressed by gzip.

    Raises:
        ConfigError: a line is no request of its format; names it.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        compressed = file.peek(2)[:2] == b"\x1f\x8b"
        lines = _Lines(gzip.GzipFile(fileobj=file) if compressed else file)
        try:
            return _read(path.name, lines)
        except BadLine as error:
            raise ConfigError(f"{path} line {max(lines.number, 1)}: {error}") from None


def _read(name: str, lines: _Lines) -> Trace:
    first = next(lines, None)
    if first is None:
        raise BadLine("expected a trace of at least one request, found the end of the file")
    known = [key for key in _FORMATS if key in first[1]]
    if not known:
        raise BadLine(
            f"expected an object with one of {', '.join(_FORMATS)}, found "
            + (shown(", ".join(first[1])) if first[1] else "no key at all")
        )
    kind, reader = _FORMATS[known[0]]
    sessions = reader(chain([first], lines))
    if not sessions:
        raise BadLine("expected a trace of at least one request, found none up to here")
    return Trace(name, kind, lines.digest, sessions)


class _Lines:
    """Line numbers and objects of a file of JSON lines; blank lines are skipped.

    Attributes:
        number: of the line read last, from 1.
    """

    def __init__(self, file: BinaryIO | gzip.GzipFile) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.number = 0

    @property
    def digest(self) -> str:
        """Of what was read, 16 hexadecimal digits."""
        return self._hash.hexdigest()[:16]

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> tuple[int, dict[str, Any]]:
        while text := self._line():
            if text.strip():
                return self.number, _object(text)
        raise StopIteration

    def _line(self) -> bytes:
        try:
            text = self._file.readline()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.number += 1
            raise BadLine(f"expected a whole gzip file, found: {error}") from None
        self.number += bool(text)
        self._hash.update(text)
        return text


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.rstrip())
    except json.JSONDecodeError as error:
        raise BadLine(f"expected JSON, found at column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise BadLine("expected JSON, found lists or objects nested too deeply") from None
    except ValueError as error:
        raise BadLine(f"expected JSON, found: {error}") from None
    if not isinstance(value, dict):
        raise BadLine(f"expected a JSON object, found {shown(value)}")
    return value
