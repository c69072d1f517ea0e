"""Operator commands: rows that an engine's service thread takes up and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from .audit import write_audit
from .rows import Command, CommandState, Who
from .session import Session
from .tables import COMMANDS

__all__ = ["Commands"]

_COLUMNS = COMMANDS.c
_ENDED = (CommandState.DONE, CommandState.REFUSED, CommandState.FAILED)


class Commands:
    """The commands of one catalogue. Every method raises `StoreError` where the database fails."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def submit(
        self,
        log_id: str,
        kind: str,
        arguments: Mapping[str, Any],
        who: Who,
        now_s: float,
        idempotency_key: str | None = None,
    ) -> tuple[Command, bool]:
        """Ask for something; it and its audit row are written together.

        Args:
            log_id: the log whose engine is to do it.
            kind: what.
            arguments: JSON values by name.
            who: who asks.
            now_s: seconds of the Unix epoch.
            idempotency_key: where this asker has used it before for this log, nothing is written.

        Returns:
            The command, and whether it is new.
        """
        row = {
            "log_id": log_id,
            "kind": kind,
            "arguments": dict(arguments),
            "who": who.name,
            "idempotency_key": idempotency_key,
            "state": CommandState.PENDING,
            "outcome": "",
            "changed": 0,
            "incarnation": 0,
            "taken_seqno": 0,
            "ended_seqno": 0,
            "created_s": now_s,
        }
        once = ["log_id", "who", "idempotency_key"]
        insert = self._session.insert(COMMANDS).on_conflict_do_nothing(index_elements=once)
        with self._session.writing() as connection:
            number = connection.execute(
                insert.values(row).returning(_COLUMNS.id)
            ).scalar_one_or_none()
            if number is not None:
                subject = f"command {number}"
                write_audit(connection, log_id, now_s, who, kind, subject, "asked for", arguments)
                return _one(connection, number), True
            same = select(_COLUMNS.id).where(
                _COLUMNS.log_id == log_id,
                _COLUMNS.who == who.name,
                _COLUMNS.idempotency_key == idempotency_key,
            )
            return _one(connection, connection.execute(same).scalar_one()), False

    def get(self, log_id: str, number: int) -> Command | None:
        """One command of a log, or None."""
        query = select(COMMANDS).where(_COLUMNS.id == number, _COLUMNS.log_id == log_id)
        with self._session.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else Command(*row)

    def rows(
        self,
        log_id: str,
        state: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Command]:
        """Commands of a log, newest first.

        Args:
            log_id: of the log.
            state: only in this state.
            before: only with a smaller number.
            limit: at most so many.
        """
        found = self._session.newest(COMMANDS, log_id, before, limit, state=state)
        return [Command(*row) for row in found]

    def num_waiting(self, log_id: str) -> int:
        """Commands of a log that no engine has taken yet."""
        query = select(func.count()).where(
            _COLUMNS.log_id == log_id, _COLUMNS.state == CommandState.PENDING
        )
        with self._session.reading() as connection:
            return int(connection.execute(query).scalar_one())

    # what an engine's command source calls

    def claim(
        self, log_id: str, incarnation: int, seqno: int, limit: int, now_s: float
    ) -> list[Command]:
        """Take waiting commands, oldest first; each is given to one caller.

        Args:
            log_id: of the engine's log.
            incarnation: this life of the engine, at least 1.
            seqno: the log's last event now: what it will say of them comes after.
            limit: at most so many.
            now_s: seconds of the Unix epoch.
        """
        waiting = (
            select(_COLUMNS.id)
            .where(_COLUMNS.log_id == log_id, _COLUMNS.state == CommandState.PENDING)
            .order_by(_COLUMNS.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        values = {
            "state": CommandState.TAKEN,
            "incarnation": incarnation,
            "taken_seqno": seqno,
            "taken_s": now_s,
        }
        with self._session.writing() as connection:
            numbers = list(connection.execute(waiting).scalars())
            if not numbers:
                return []
            connection.execute(COMMANDS.update().where(_COLUMNS.id.in_(numbers)).values(values))
            query = select(COMMANDS).where(_COLUMNS.id.in_(numbers)).order_by(_COLUMNS.id)
            return [Command(*row) for row in connection.execute(query)]

    def left_behind(self, log_id: str, incarnation: int) -> list[Command]:
        """Commands that an earlier life of a log's engine took and never answered, oldest first."""
        query = (
            select(COMMANDS)
            .where(
                _COLUMNS.log_id == log_id,
                _COLUMNS.state == CommandState.TAKEN,
                _COLUMNS.incarnation < incarnation,
            )
            .order_by(_COLUMNS.id)
        )
        with self._session.reading() as connection:
            return [Command(*row) for row in connection.execute(query)]

    def take_over(self, number: int, incarnation: int) -> bool:
        """A command left behind is this life's now; whether it was there to be taken."""
        with self._session.writing() as connection:
            done = connection.execute(
                COMMANDS.update()
                .where(
                    _COLUMNS.id == number,
                    _COLUMNS.state == CommandState.TAKEN,
                    _COLUMNS.incarnation < incarnation,
                )
                .values(incarnation=incarnation)
            )
            return done.rowcount == 1

    def end(
        self, number: int, state: str, outcome: str, changed: int, seqno: int, now_s: float
    ) -> bool:
        """Answer a command that was taken; its answer and its audit row are written together.

        Args:
            number: of the command.
            state: done, refused or failed.
            outcome: in words.
            changed: what it changed.
            seqno: the event that ended it, 0 for none.
            now_s: seconds of the Unix epoch.

        Returns:
            False where it had been answered before, and nothing was written.
        """
        if state not in _ENDED:
            raise ValueError(f"state: expected one of {', '.join(_ENDED)}, found {state!r}")
        values = {
            "state": state,
            "outcome": outcome,
            "changed": changed,
            "ended_seqno": seqno,
            "ended_s": now_s,
        }
        taken = (_COLUMNS.id == number) & (_COLUMNS.state == CommandState.TAKEN)
        with self._session.writing() as connection:
            done = connection.execute(COMMANDS.update().where(taken).values(values))
            if done.rowcount != 1:
                return False
            command = _one(connection, number)
            engine = Who(f"engine {command.incarnation}", "engine")
            detail = {"changed": changed, "seqno": seqno}
            write_audit(
                connection, command.log_id, now_s, engine, command.kind, f"command {number}",
                f"{state}: {outcome}", detail,
            )  # fmt: skip
            return True


def _one(connection: Connection, number: int) -> Command:
    return Command(*connection.execute(select(COMMANDS).where(_COLUMNS.id == number)).one())
