"""The demo's conversations: one system prompt, a topic each, messages of real text, as tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kvstrata.engines.transformers.model import ASSISTANT_TOKEN, BOS_TOKEN, USER_TOKEN

from .messages import Tokens
from .texts import docstring, licence, pieces

__all__ = ["Conversation", "conversations", "system_prompt"]

_TOPICS = ("statistics", "argparse", "json", "hashlib")
_SYSTEM_TOKENS = 376
_MESSAGE_BYTES = 220


@dataclass
class Conversation:
    """A dialogue with the model.

    Attributes:
        topic: the module whose docstring the user sends, piece by piece.
        tokens: what was said, the last turn's answer included.
        turn: turns answered.
    """

    topic: str
    tokens: Tokens = field(repr=False)
    messages: list[str] = field(repr=False)
    turn: int = 0

    @property
    def label(self) -> str:
        """Names the next turn."""
        return f"{self.topic}, turn {self.turn + 1}"

    def prompt(self) -> Tokens:
        """The next turn's prompt: everything said, and the next message."""
        message = f"{self.topic}: {self.messages[self.turn % len(self.messages)]}"
        return _join(self.tokens, [USER_TOKEN], _bytes(message), [ASSISTANT_TOKEN])

    def hear(self, prompt: Tokens, answer: Tokens) -> None:
        """The model answered the prompt."""
        self.tokens = _join(prompt, answer)
        self.turn += 1


def system_prompt() -> Tokens:
    """The prompt that all conversations begin with: the first lines of Python's licence.

    Its length leaves half a block, so that no block but whole ones of the system prompt is the
    same in two conversations; what two requests computed by different steps differs by rounding.
    """
    text = _bytes(licence())
    return _join([BOS_TOKEN], np.resize(text, _SYSTEM_TOKENS - 1))


def conversations() -> list[Conversation]:
    """The conversations, nothing said yet but the system prompt."""
    system = system_prompt()
    return [
        Conversation(topic, system, pieces(docstring(topic) or licence(), _MESSAGE_BYTES))
        for topic in _TOPICS
    ]


def _join(*parts: npt.ArrayLike) -> Tokens:
    return np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])


def _bytes(text: str) -> Tokens:
    return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)
