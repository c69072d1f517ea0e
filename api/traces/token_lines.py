"""kvstrata's own format: one request a line, with its token ids.

``{"tokens": [1, 2, 3], "output": [7, 8], "session": "a"}``. ``output`` is a list of ids or a number
of tokens, 1 if absent. ``session`` is any string or whole number; requests of one session follow
each other, and a request without one has a session of its own. Further keys are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .numbers import BadLine, field, id_array, shown, whole
from .trace import Stream, TraceRequest, stream_tokens

__all__ = ["read"]


@dataclass(frozen=True)
class TokenRequest(TraceRequest):
    """A request that holds its tokens.

    Attributes:
        number: the request's place in the trace.
        tokens: int32[prompt_tokens].
        answer: int32[output_tokens], or None for tokens like no other request's.
    """

    line: int
    number: int
    output_tokens: int
    tokens: npt.NDArray[np.int32]
    answer: npt.NDArray[np.int32] | None

    @property
    def prompt_tokens(self) -> int:  # type: ignore[override]
        """Length of its prompt."""
        return len(self.tokens)

    def prompt(self) -> npt.NDArray[np.int32]:
        """int32[prompt_tokens]."""
        return self.tokens

    def output(self) -> npt.NDArray[np.int32]:
        """int32[output_tokens]."""
        if self.answer is not None:
            return self.answer
        return stream_tokens(Stream.OUTPUT, self.number, self.output_tokens)


def read(lines: Iterator[tuple[int, dict[str, Any]]]) -> list[list[TraceRequest]]:
    """Requests by session, sessions in order of their first requests.

    Raises:
        BadLine: the line read last is no request.
    """
    sessions: dict[Any, list[TraceRequest]] = {}
    for number, (line, value) in enumerate(lines):
        tokens, answer = _ids("tokens", field(value, "tokens")), None
        output = value.get("output", 1)
        if isinstance(output, list):
            answer = _ids("output", output)
            output = len(answer)
        request = TokenRequest(line, number, whole(output, "output", 1), tokens, answer)
        name = value.get("session")
        if name is not None and type(name) not in (str, int):
            raise BadLine(f"session: expected a string or a whole number, found {shown(name)}")
        key = ("", line) if name is None else name
        sessions.setdefault(key, []).append(request)
    return list(sessions.values())


def _ids(name: str, values: Any) -> npt.NDArray[np.int32]:
    ids = id_array(values, name)
    if len(ids) == 0:
        raise BadLine(f"{name}: expected at least one id, found none")
    return ids.astype(np.int32)
