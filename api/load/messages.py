"""What the load and its engine process say to each other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kvstrata import Kind

from ..demo.messages import Failed, Opened
from .config import LoadConfig
from .talk import Talk

__all__ = ["Beat", "Counts", "Damage", "End", "Failed", "Flip", "Heard", "Open", "Opened", "Told"]


@dataclass(frozen=True)
class Open:
    """Open a manager and begin to serve; ``talks`` is what was said so far, by number."""

    config: LoadConfig
    talks: dict[int, Talk]


@dataclass
class Counts:
    """What happened in one life of the engine.

    Attributes:
        requests: answered.
        given_up: not answered, for want of room or time.
        prompt_tokens: of the answered ones.
        resumed_tokens: of those, not computed.
        suspended: times that a request was suspended and resumed later.
        deferred: times that a request was put off; one may be, again and again.
        evicted: pages.
        loads: from lower tiers, that ended.
        stored: objects written to lower tiers.
        failures: validations and objects that failed.
        quarantined: pages.
        drifted: samples of numeric drift that differed.
        commands: of operators, that ended.
    """

    requests: int = 0
    given_up: int = 0
    prompt_tokens: int = 0
    resumed_tokens: int = 0
    suspended: int = 0
    deferred: int = 0
    evicted: int = 0
    loads: int = 0
    stored: int = 0
    failures: int = 0
    quarantined: int = 0
    drifted: int = 0
    commands: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum of both."""
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Beat:
    """The engine lives: what it did so far, what runs and what waits."""

    counts: Counts
    running: int
    waiting: int
    seqno: int


@dataclass(frozen=True)
class Heard:
    """A turn of a conversation is over."""

    number: int
    talk: Talk


@dataclass(frozen=True)
class Flip:
    """Flip bits of a byte in a page of the kind that some request would reuse."""

    kind: Kind


@dataclass(frozen=True)
class Damage:
    """Flip bits of a byte in a stored object that some request would load."""


@dataclass(frozen=True)
class Told:
    """The answer to :class:`Flip` and :class:`Damage`: what was damaged, None where nothing."""

    what: str | None


@dataclass(frozen=True)
class End:
    """Close the manager and end."""
