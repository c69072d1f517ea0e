"""What every cache manager under measure looks like to the workloads.

A subject is one manager in its own process. Its verbs are those that any engine needs of any
manager; an adapter translates them and nothing else. What an engine would do outside the manager
(turning tokens into the form the manager takes, gathering a batch) has verbs of its own, so that
nobody's time includes it.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Geometry:
    """The memory that all subjects manage.

    Attributes:
        model: the geometry's name; every adapter builds DeepSeek-V4-Flash's groups from it.
        budget_bytes: of all pools together.
        max_sequences: running at once.
        max_tokens: of the longest sequence.
        checkpoint_share: part of the budget for window images, where a subject must split it.
    """

    model: str
    budget_bytes: int
    max_sequences: int
    max_tokens: int
    checkpoint_share: float = 0.25

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Subject(ABC):
    """One cache manager.

    Attributes:
        name: as the tables call it.
        version: of the package.
        differences: what remains unlike the others after all that could be made alike, one
            sentence each.
        settings: what a reader needs to know: block sizes, pages by group, flags.
    """

    name: str
    version: str
    differences: tuple[str, ...] = ()

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.settings: dict[str, Any] = {}

    @abstractmethod
    def prepare(self, tokens: npt.NDArray[np.int32]) -> Any:
        """Tokens in the form the manager takes. Not timed."""

    @abstractmethod
    def request(self, prepared: Any) -> Any:
        """The request with its keys, where the manager hashes. Timed as ``hash``."""

    @abstractmethod
    def match(self, request: Any) -> int:
        """Tokens of its prefix that are here; changes nothing that counts. Timed as ``match``."""

    @abstractmethod
    def begin(self, request: Any) -> tuple[Any, int]:
        """Match and pin: the running request and its hit in tokens. Timed as ``begin``."""

    @abstractmethod
    def extend(self, running: Any, num_tokens: int) -> None:
        """A prefill chunk: room for it, and publish it as computed. Timed as ``extend``."""

    @abstractmethod
    def batch(self, running: list[Any]) -> Any:
        """Running requests in the form a decode step takes. Not timed."""

    @abstractmethod
    def decode(self, batch: Any, tokens: Any) -> None:
        """One step of one token each: room, and publish. Timed as ``decode``.

        Args:
            batch: what :meth:`batch` gave.
            tokens: the ids computed, one a request, in the batch's order, as :meth:`prepare` gives.
        """

    @abstractmethod
    def finish(self, running: Any) -> None:
        """The request ends; what it computed stays findable. Timed as ``finish``."""

    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes of manager state that stand for what is cached now, measured, not computed."""

    @abstractmethod
    def close(self) -> None:
        """End; a subject that writes a log closes it."""
