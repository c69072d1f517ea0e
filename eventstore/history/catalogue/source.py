"""Commands from a catalogue, as a manager takes them.

A command that an earlier life of the engine took and never answered is looked up in the log: where
it ended there, it is answered from there; where the log says that it was begun, that is said too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kvstrata.core.errors import SequenceGap, StoreError
from kvstrata.core.events import EventType, decode_payload
from kvstrata.eventstore.commands import CommandOutcome
from kvstrata.eventstore.log import read_events
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.identity import Format

from .catalogue import Catalogue
from .rows import Command, CommandState

__all__ = ["CatalogueCommands", "Offered"]

_STATES = {
    CommandOutcome.DONE: CommandState.DONE,
    CommandOutcome.REFUSED: CommandState.REFUSED,
    CommandOutcome.FAILED: CommandState.FAILED,
}


class Offered(NamedTuple):
    """A command as an engine takes it."""

    id: int
    kind: str
    arguments: Mapping[str, Any]
    who: str
    was_begun: bool


class _InLog(NamedTuple):
    """What a log says of a command."""

    was_begun: bool
    outcome: CommandOutcome
    changed: int
    seqno: int


class CatalogueCommands:
    """The commands of one log's engine, from a catalogue that may be away.

    The catalogue is opened at the first look, and again after it failed. One thread uses it.

    Args:
        url: the catalogue's.
        directory: the engine's log directory.
    """

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = Path(directory)
        self._catalogue: Catalogue | None = None
        self._log_id = ""
        self._looked_back = False

    def poll(self, incarnation: int, seqno: int, limit: int) -> list[Offered]:
        """Commands to carry out next: first what an earlier life left behind, then new ones.

        Args:
            incarnation: this life of the engine.
            seqno: the log's last event now.
            limit: at most so many.

        Raises:
            StoreError: the catalogue is away.
            LogError: the log cannot be read.
            ConfigError: no such URL, or no log in the directory.
        """
        commands = self._open().commands
        if not self._looked_back:
            found = self._left_behind(incarnation, limit)
            if found:
                return found
            self._looked_back = True
        taken = commands.claim(self._log_id, incarnation, seqno, limit, time.time())
        return [Offered(row.id, row.kind, row.arguments, row.who, False) for row in taken]

    def answer(self, command: int, outcome: str, text: str, changed: int, seqno: int) -> None:
        """Say how a command ended; saying it again changes nothing. Raises StoreError."""
        self._open().commands.end(command, outcome, text, changed, seqno, time.time())

    def close(self) -> None:
        """Close the catalogue."""
        if self._catalogue is not None:
            self._catalogue.close()

    def _open(self) -> Catalogue:
        if self._catalogue is not None and not self._catalogue.is_current:
            self.close()
            self._catalogue = None
        if self._catalogue is None:
            self._log_id = Format.read(LogPaths(self._directory)).log_id.hex()
            self._catalogue = Catalogue.open(self._url)
        return self._catalogue

    def _left_behind(self, incarnation: int, limit: int) -> list[Offered]:
        commands = self._open().commands
        offered: list[Offered] = []
        rows = commands.left_behind(self._log_id, incarnation)
        if not rows:
            return offered
        said = _look_up(self._directory, rows)
        for row in rows:
            if len(offered) == limit:
                break
            found = said[row.id]
            if found.outcome is not CommandOutcome.NONE:
                text = "the log says so; the engine died before it could answer"
                state = _STATES[found.outcome]
                commands.end(row.id, state, text, found.changed, found.seqno, time.time())
                continue
            try:
                is_mine = commands.take_over(row.id, incarnation)
            except StoreError:
                if offered:  # taken over already: nobody would be given them again
                    break
                raise
            if is_mine:
                offered.append(Offered(row.id, row.kind, row.arguments, row.who, found.was_begun))
        return offered


def _look_up(directory: Path, rows: list[Command]) -> dict[int, _InLog]:
    """What the log says of commands; where it no longer reaches back, they count as begun."""
    unheard = _InLog(False, CommandOutcome.NONE, 0, 0)
    said = {row.id: unheard for row in rows}
    first = min(row.taken_seqno for row in rows) + 1
    try:
        for events in read_events(directory, first):
            kinds = events["type"]
            about = (kinds == EventType.COMMAND_TAKEN) | (kinds == EventType.COMMAND_ENDED)
            for index in np.flatnonzero(about):
                payload = decode_payload(events[index])
                number = int(payload["command"])
                if number in said:
                    outcome = CommandOutcome(int(payload["outcome"]))
                    seqno = int(events[index]["seqno"])
                    said[number] = _InLog(True, outcome, int(payload["changed"]), seqno)
    except SequenceGap:
        return {number: unheard._replace(was_begun=True) for number in said}
    return said
