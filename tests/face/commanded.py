"""A source of commands that tests hold in their hands, and engines that take them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvstrata import CacheManager, StoreError
from kvstrata.core.keys import words_key


class Asked(NamedTuple):
    id: int
    kind: str
    arguments: Mapping[str, Any]
    who: str = "ann"
    was_begun: bool = False


class Answer(NamedTuple):
    outcome: str
    text: str
    changed: int
    seqno: int


@dataclass
class Source:
    """Gives what it was given, and remembers answers."""

    asked: list[Asked] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)
    is_away: bool = False
    is_closed: bool = False
    num_polls: int = 0

    def ask(self, kind: str, was_begun: bool = False, **arguments: Any) -> int:
        number = len(self.answers) + len(self.asked) + 1
        self.asked.append(Asked(number, kind, arguments, was_begun=was_begun))
        return number

    def poll(self, incarnation: int, seqno: int, limit: int) -> list[Asked]:
        self.num_polls += 1
        self._check()
        taken, self.asked = self.asked[:limit], self.asked[limit:]
        return taken

    def answer(self, command: int, outcome: str, text: str, changed: int, seqno: int) -> None:
        self._check()
        self.answers[command] = Answer(outcome, text, changed, seqno)

    def close(self) -> None:
        self.is_closed = True

    def _check(self) -> None:
        if self.is_away:
            raise StoreError("catalogue: the database is away")


def until(holds: Callable[[], bool], cache: CacheManager, timeout_s: float = 60.0) -> None:
    """Let an engine make calls until something holds."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, cache.commands_status()
        cache.apply_completions()
        time.sleep(0.002)


def carry_out(cache: CacheManager, source: Source, kind: str, **arguments: Any) -> Answer:
    """Ask for something and let the engine make calls until it is answered."""
    number = source.ask(kind, **arguments)
    until(lambda: number in source.answers, cache)
    return source.answers[number]


def key_of(cache: CacheManager, wanted: Any, blocks: int) -> str:
    """The key of a request's first blocks, as operators write it."""
    first, second = wanted.keys(cache.layout.block_tokens)[blocks - 1].tolist()
    return words_key(first, second).hex()
