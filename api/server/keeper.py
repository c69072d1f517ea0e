"""Keeps the catalogue: opens incidents for what the follower finds, notes what lies in the log.

A thread of the server. Where the catalogue is away, what was found is kept, one entry per kind and
subject, until it is back.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import KvstrataError
from kvstrata.core.events import EventType, Reason, decode_payload
from kvstrata.eventstore.history.catalogue import Catalogue, Who
from kvstrata.eventstore.history.catalogue.holdings import look_at

if TYPE_CHECKING:
    from .state import ServerState

__all__ = ["Finding", "Keeper"]

_LOOK_S: Final = 1.0
_HOLDINGS_S: Final = 30.0
_MOST: Final = 1000
_FOLLOWER: Final = Who("follower", "rule")
_WATCHED: Final = (
    int(EventType.VALIDATION_FAILED),
    int(EventType.SCRUBBED),
    int(EventType.NUMERIC_DRIFT),
)


@dataclass(frozen=True)
class Finding:
    """Something an incident is to be opened for.

    Attributes:
        kind: of incident.
        subject: what it is about.
        what: in words.
        opened_by: the rule.
        first_seqno: first event that it is about.
        last_seqno: last one.
    """

    kind: str
    subject: str
    what: str
    opened_by: str
    first_seqno: int
    last_seqno: int


class Keeper:
    """See the module.

    Args:
        server: the server's parts.
    """

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], Finding] = {}
        self._num_drifts = 0
        self._holdings_s = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error = ""
        """What the catalogue said last; empty while it answers."""
        server.follower.add_listener(self._went_by)

    def start(self) -> None:
        """Begin; starting twice is allowed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kvstrata-keeper", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what is left, and stop."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self.look()
        self.look()

    def look(self) -> None:
        """Write down what was found since the last look, where the catalogue answers."""
        if not self._server.follower.is_open:
            return
        self._drifts()
        self._log_is_well()
        with self._lock:
            found, self._found = self._found, {}
        try:
            catalogue = self._server.catalogue.get()
            for key in list(found):
                self._write(catalogue, found[key])
                del found[key]
            if time.monotonic() - self._holdings_s > _HOLDINGS_S or not self._holdings_s:
                catalogue.holdings.remember(*look_at(self._server.directory))
                self._holdings_s = time.monotonic()
            self.error = ""
        except (KvstrataError, OSError) as error:
            self.error = str(error)
            for finding in found.values():
                self._add(finding, is_older=True)

    def _write(self, catalogue: Catalogue, finding: Finding) -> None:
        log_id, now_s = self._server.follower.position().epoch, time.time()
        catalogue.incidents.report(
            log_id,
            finding.kind,
            finding.subject,
            finding.what,
            finding.opened_by,
            finding.first_seqno,
            finding.last_seqno,
            now_s,
        )
        if finding.kind == "projection_drift":
            slice_number = int(finding.subject.rpartition(" ")[2]) if " " in finding.subject else 0
            arguments = {
                "first_seqno": finding.first_seqno,
                "last_seqno": finding.last_seqno,
                "slice": max(slice_number, 0),
            }
            key = f"{finding.subject} {finding.first_seqno} {finding.last_seqno}"
            catalogue.commands.submit(log_id, "report_divergence", arguments, _FOLLOWER, now_s, key)

    def _add(self, finding: Finding, is_older: bool = False) -> None:
        key = finding.kind, finding.subject
        with self._lock:
            known = self._found.get(key)
            if known is None:
                if len(self._found) < _MOST:
                    self._found[key] = finding
                return
            newer = known if is_older else finding
            self._found[key] = replace(
                newer,
                first_seqno=min(known.first_seqno, finding.first_seqno),
                last_seqno=max(known.last_seqno, finding.last_seqno),
            )

    # what is found

    def _drifts(self) -> None:
        follower = self._server.follower
        count = follower.drifts_found
        new = count - self._num_drifts
        for drift in follower.drift[-new:] if new > 0 else []:
            subject = {"slice": f"slice {drift.slice}", "state": "tables"}.get(drift.kind, "event")
            what = (
                f"the follower's tables differ from the engine's: expected {drift.expected}, found "
                f"{drift.found or 'it refused'}; something between events {drift.first_seqno} and "
                f"{drift.last_seqno} is not in the log, or one of both applied it otherwise"
            )
            self._add(
                Finding(
                    "projection_drift",
                    subject,
                    what,
                    "drift",
                    drift.first_seqno,
                    drift.last_seqno,
                )
            )
        self._num_drifts = count

    def _log_is_well(self) -> None:
        status = self._server.follower.status()
        if status is None:
            return
        for subject, holds in (("poisoned", status.poisoned), ("unlogged", status.unlogged)):
            if holds:
                what = f"the engine's log is {subject}: what it does is not kept, a restart is cold"
                self._add(
                    Finding("log", subject, what, "status page", status.durable, status.durable)
                )

    def _went_by(self, events: npt.NDArray[np.void]) -> None:
        watched = events[np.isin(events["type"], _WATCHED)]
        for event in watched[-_MOST:]:
            finding = _judged(event, self._group_name(int(event["group"])))
            if finding is not None:
                self._add(finding)

    def _group_name(self, number: int) -> str:
        groups = self._server.follower.layout.groups
        return groups[number].name if number < len(groups) else str(number)


def _judged(event: np.void, group: str) -> Finding | None:
    kind, reason, seqno = int(event["type"]), int(event["reason"]), int(event["seqno"])
    page = int(event["page"])
    if kind == EventType.VALIDATION_FAILED and reason == Reason.CHECKSUM_MISMATCH:
        what = f"{group} page {page}: its bytes are not what was sealed; it was quarantined"
        return Finding("byte_drift", group, what, "drift", seqno, seqno)
    if kind == EventType.VALIDATION_FAILED and reason == Reason.TOPOLOGY_MOVED:
        what = "a pool is no longer where it was sealed; the engine mutates no more"
        return Finding("topology", "pools", what, "validation", seqno, seqno)
    if kind == EventType.NUMERIC_DRIFT and reason == Reason.DRIFTED:
        said = decode_payload(event)
        what = (
            f"{group} page {page}, layer {said['layer']}: computed again it differs by up to "
            f"{said['max_abs']:.3g} (cosine {said['cosine']:.6f}), more than the tolerance of "
            f"{said['tolerance']:.3g}"
        )
        subject = f"{group} layer {said['layer']}"
        return Finding("numeric_drift", subject, what, "drift", seqno, seqno)
    return None
