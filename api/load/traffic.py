"""Who says what: conversations that share a system prompt, each with turns, without an end."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

import numpy as np

from kvstrata.engines.transformers.model import ASSISTANT_TOKEN, USER_TOKEN

from ..demo.dialogue import system_prompt
from ..demo.messages import Tokens
from ..demo.texts import docstring, licence, pieces
from .talk import Talk

__all__ = ["MAX_TOKENS", "NEW_TOKENS", "Schedule", "Traffic"]

NEW_TOKENS: Final = 10
MAX_TOKENS: Final = 1280
"""Tokens of a conversation, after which it begins anew with other words."""
_TOPICS: Final = (
    "statistics", "argparse", "json", "hashlib", "heapq", "textwrap", "shlex", "pickle",
    "collections", "datetime", "threading", "subprocess", "tempfile", "typing", "zipfile", "csv",
)  # fmt: skip
_MESSAGE_BYTES: Final = 110


class Traffic:
    """All conversations; the same turns heard give the same prompts.

    Args:
        said: what was said before, by the conversation's number.
    """

    def __init__(self, said: Mapping[int, Talk] | None = None) -> None:
        self._system = system_prompt()
        self._messages: dict[str, list[str]] = {}
        self.talks = [Talk(topic, 0, 0, self._system) for topic in _TOPICS]
        for number, talk in (said or {}).items():
            self.talks[number] = talk

    def prompt(self, number: int) -> Tokens:
        """The next prompt of a conversation: all that was said, and a message."""
        talk = self.talks[number]
        said = self._said(talk.topic)
        message = f"{talk.topic} {talk.serial}: {said[(talk.turn + talk.serial) % len(said)]}"
        ids = np.frombuffer(message.encode()[: 2 * _MESSAGE_BYTES], dtype=np.uint8)
        return _join(talk.tokens, [USER_TOKEN], ids, [ASSISTANT_TOKEN])

    def hear(self, number: int, prompt: Tokens, answer: Tokens) -> None:
        """A prompt was answered, or given up with no answer.

        Mutates: the conversations; one that is long begins anew.
        """
        talk = self.talks[number]
        said = _join(prompt, answer)
        self.talks[number] = Talk(talk.topic, talk.serial, talk.turn + 1, said)
        next_tokens = len(self.prompt(number)) + NEW_TOKENS
        if next_tokens > MAX_TOKENS or len(answer) == 0:
            self.talks[number] = Talk(talk.topic, talk.serial + 1, 0, self._system)

    def _said(self, topic: str) -> list[str]:
        if topic not in self._messages:
            found = pieces(docstring(topic), _MESSAGE_BYTES)
            self._messages[topic] = found or pieces(licence(), _MESSAGE_BYTES)
        return self._messages[topic]


class Schedule:
    """Who speaks next: at random, now and then all who are silent at once.

    Args:
        num_talks: conversations.
        requests_per_s: on the average, as long as all are answered at once.
        seed: of chance.
    """

    _FIRST_RUSH_S: Final = 3.0
    _RUSH_EVERY_S: Final = 15.0

    def __init__(self, num_talks: int, requests_per_s: float, seed: int) -> None:
        self._random = Random(seed)
        self._mean_s = num_talks / requests_per_s
        self._due_s = {number: self._pause_s() for number in range(num_talks)}
        self._rush_s = self._FIRST_RUSH_S

    def due(self, now_s: float) -> list[int]:
        """Conversations whose turn has come, soonest first; each is named once."""
        if now_s >= self._rush_s:
            self._rush_s = now_s + self._RUSH_EVERY_S
            for number in self._due_s:
                self._due_s[number] = min(self._due_s[number], now_s)
        found = sorted((due, number) for number, due in self._due_s.items() if due <= now_s)
        for _, number in found:
            del self._due_s[number]
        return [number for _, number in found]

    def answered(self, number: int, now_s: float) -> None:
        """A conversation may speak again, after a pause."""
        self._due_s[number] = now_s + self._pause_s()

    def _pause_s(self) -> float:
        return self._random.expovariate(1.0 / self._mean_s)


def _join(*parts: Tokens | list[int] | np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Tokens:
    return np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])
