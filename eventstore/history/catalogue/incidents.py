"""Incidents: what a person should know of, and what was done about it.

Open → acknowledged → resolved, or open → resolved. What was resolved stays so; when the same is
seen again, a new incident is opened.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from kvstrata.core.errors import StaleLease

from .audit import write_audit
from .rows import Incident, IncidentState, NoteRow, Who
from .session import Session
from .tables import INCIDENTS, NOTES

__all__ = ["Incidents"]

_COLUMNS = INCIDENTS.c


class Incidents:
    """The incidents of one catalogue. Every method raises `StoreError` where the database fails."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def report(
        self,
        log_id: str,
        kind: str,
        subject: str,
        what: str,
        opened_by: str,
        first_seqno: int,
        last_seqno: int,
        now_s: float,
    ) -> tuple[Incident, bool]:
        """Say what was found: it opens an incident, or adds to the one that is not resolved.

        Saying the same again, also from another process or after a restart, changes nothing: what
        lies inside an incident's range of events is part of it, resolved or not.

        Args:
            log_id: of the log.
            kind: of what sort.
            subject: what it is about.
            what: in words.
            opened_by: the rule or person.
            first_seqno: first event that it is about.
            last_seqno: last one.
            now_s: seconds of the Unix epoch.

        Returns:
            The incident, and whether it is new.
        """
        row = {
            "log_id": log_id,
            "kind": kind,
            "subject": subject,
            "what": what,
            "state": IncidentState.OPEN,
            "opened_by": opened_by,
            "first_seqno": first_seqno,
            "last_seqno": last_seqno,
            "occurrences": 1,
            "opened_s": now_s,
        }
        same = (_COLUMNS.log_id == log_id) & (_COLUMNS.kind == kind) & (_COLUMNS.subject == subject)
        with self._session.writing() as connection:
            latest = _first(connection, select(INCIDENTS).where(same).order_by(_COLUMNS.id.desc()))
            if latest is not None and last_seqno <= latest.last_seqno:
                return latest, False
            if latest is not None and latest.state != IncidentState.RESOLVED:
                connection.execute(
                    INCIDENTS.update()
                    .where(_COLUMNS.id == latest.id, _COLUMNS.last_seqno < last_seqno)
                    .values(last_seqno=last_seqno, occurrences=_COLUMNS.occurrences + 1)
                )
                return _one(connection, latest.id), False
            once = ["log_id", "kind", "subject", "first_seqno"]
            insert = self._session.insert(INCIDENTS).on_conflict_do_nothing(index_elements=once)
            number = connection.execute(
                insert.values(row).returning(_COLUMNS.id)
            ).scalar_one_or_none()
            if number is None:
                again = select(INCIDENTS).where(same, _COLUMNS.first_seqno == first_seqno)
                return Incident(*connection.execute(again).one()), False
            rule = Who(opened_by, "rule")
            write_audit(connection, log_id, now_s, rule, "open", f"incident {number}", what)
            return _one(connection, number), True

    def get(self, log_id: str, number: int) -> Incident | None:
        """One incident of a log, or None."""
        query = select(INCIDENTS).where(_COLUMNS.id == number, _COLUMNS.log_id == log_id)
        with self._session.reading() as connection:
            return _first(connection, query)

    def rows(
        self,
        log_id: str,
        state: str | None = None,
        kind: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Incident]:
        """Incidents of a log, newest first.

        Args:
            log_id: of the log.
            state: only in this state.
            kind: only of this kind.
            before: only with a smaller number.
            limit: at most so many.
        """
        found = self._session.newest(INCIDENTS, log_id, before, limit, state=state, kind=kind)
        return [Incident(*row) for row in found]

    def notes(self, number: int) -> list[NoteRow]:
        """What was written about an incident, oldest first."""
        query = select(NOTES).where(NOTES.c.incident == number).order_by(NOTES.c.id)
        with self._session.reading() as connection:
            return [NoteRow(*row) for row in connection.execute(query)]

    def add_note(self, log_id: str, number: int, who: Who, text: str, now_s: float) -> bool:
        """Write something about an incident; False where there is no such."""
        with self._session.writing() as connection:
            query = select(INCIDENTS).where(_COLUMNS.id == number, _COLUMNS.log_id == log_id)
            if _first(connection, query) is None:
                return False
            row = {"incident": number, "who": who.name, "at_s": now_s, "text": text}
            connection.execute(NOTES.insert().values(row))
            write_audit(connection, log_id, now_s, who, "note", f"incident {number}", "written")
            return True

    def acknowledge(self, log_id: str, number: int, who: Who, now_s: float) -> Incident | None:
        """Somebody has seen it and is at it.

        Returns:
            The incident, or None where there is no such.

        Raises:
            StaleLease: it is resolved.
        """
        values = {"acknowledged_by": who.name, "acknowledged_s": now_s}
        return self._move(log_id, number, who, IncidentState.ACKNOWLEDGED, values, now_s)

    def resolve(self, log_id: str, number: int, who: Who, now_s: float) -> Incident | None:
        """It is over; None where there is no such incident."""
        values = {"resolved_by": who.name, "resolved_s": now_s}
        return self._move(log_id, number, who, IncidentState.RESOLVED, values, now_s)

    def _move(
        self,
        log_id: str,
        number: int,
        who: Who,
        to: IncidentState,
        values: dict[str, Any],
        now_s: float,
    ) -> Incident | None:
        query = select(INCIDENTS).where(_COLUMNS.id == number, _COLUMNS.log_id == log_id)
        with self._session.writing() as connection:
            found = _first(connection, query.with_for_update())
            if found is None or found.state == to:
                return found
            if found.state == IncidentState.RESOLVED:
                raise StaleLease(
                    f"incident {number}: expected it open, found it resolved by "
                    f"{found.resolved_by}; when it is seen again, a new one is opened"
                )
            connection.execute(
                INCIDENTS.update().where(_COLUMNS.id == number).values(state=to, **values)
            )
            write_audit(connection, log_id, now_s, who, str(to), f"incident {number}", found.what)
            return _one(connection, number)


def _first(connection: Connection, query: Any) -> Incident | None:
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else Incident(*row)


def _one(connection: Connection, number: int) -> Incident:
    return Incident(*connection.execute(select(INCIDENTS).where(_COLUMNS.id == number)).one())
