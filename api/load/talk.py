"""A conversation, as the load keeps it while its engine is killed."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..demo.messages import Tokens

__all__ = ["Talk"]


@dataclass(frozen=True)
class Talk:
    """One conversation.

    Attributes:
        topic: what it is about.
        serial: how often it began anew.
        turn: turns answered since then.
        tokens: what was said, the last answer included.
    """

    topic: str
    serial: int
    turn: int
    tokens: Tokens = field(repr=False)
