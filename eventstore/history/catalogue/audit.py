"""Who did what, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from .rows import AuditRow, Who
from .session import Session
from .tables import AUDIT

__all__ = ["Audit", "write_audit"]


def write_audit(
    connection: Connection,
    log_id: str,
    at_s: float,
    who: Who,
    action: str,
    subject: str,
    outcome: str,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Add a row in the transaction of what it is about: there is none of them without the other."""
    row = {
        "log_id": log_id,
        "at_s": at_s,
        "who": who.name,
        "role": who.role,
        "action": action,
        "subject": subject,
        "outcome": outcome,
        "detail": dict(detail or {}),
    }
    connection.execute(AUDIT.insert().values(row))


class Audit:
    """The audit trail of one catalogue."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self,
        log_id: str,
        at_s: float,
        who: Who,
        action: str,
        subject: str,
        outcome: str,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a row about something that left no other row: an attempt that was refused."""
        with self._session.writing() as connection:
            write_audit(connection, log_id, at_s, who, action, subject, outcome, detail)

    def rows(self, log_id: str, before: int | None = None, limit: int = 100) -> list[AuditRow]:
        """Rows of a log, newest first.

        Args:
            log_id: of the log.
            before: only rows with a smaller number.
            limit: at most so many.
        """
        return [AuditRow(*row) for row in self._session.newest(AUDIT, log_id, before, limit)]
