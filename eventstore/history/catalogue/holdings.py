"""What lay in the directories of logs: layouts, segments, snapshots."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Table, select

from kvstrata.eventstore.log.chain import load_segments
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.formats import RECORD_BYTES, Footer
from kvstrata.eventstore.log.identity import Format
from kvstrata.eventstore.log.snapshot import SNAPSHOT_HEADER_BYTES, SnapshotHeader
from kvstrata.eventstore.log.watermark import read_watermark

from .rows import LayoutRow, SegmentRow, SnapshotRow
from .session import Session
from .tables import LAYOUTS, SEGMENTS, SNAPSHOTS

__all__ = ["Holdings", "look_at"]


class Holdings:
    """What one catalogue remembers of logs' directories, deleted files too."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def remember(
        self,
        layout: LayoutRow,
        segments: Sequence[SegmentRow],
        snapshots: Sequence[SnapshotRow],
    ) -> None:
        """Add what was seen, or bring it up to date; nothing is ever removed."""
        with self._session.writing() as connection:
            for table, rows in (
                (LAYOUTS, [layout]),
                (SEGMENTS, segments),
                (SNAPSHOTS, snapshots),
            ):
                if rows:
                    connection.execute(self._upsert(table), [row._asdict() for row in rows])

    def _upsert(self, table: Table) -> Any:
        insert = self._session.insert(table)
        keys = [column.name for column in table.primary_key]
        changed = {
            column.name: insert.excluded[column.name]
            for column in table.columns
            if column.name not in keys
        }
        return insert.on_conflict_do_update(index_elements=keys, set_=changed)

    def layouts(self) -> list[LayoutRow]:
        """Every layout seen, the latest first."""
        query = select(LAYOUTS).order_by(LAYOUTS.c.seen_s.desc())
        with self._session.reading() as connection:
            return [LayoutRow(*row) for row in connection.execute(query)]

    def segments(self, log_id: str) -> list[SegmentRow]:
        """Every segment seen of a log, oldest first."""
        query = select(SEGMENTS).where(SEGMENTS.c.log_id == log_id).order_by(SEGMENTS.c.segment_id)
        with self._session.reading() as connection:
            return [SegmentRow(*row) for row in connection.execute(query)]

    def snapshots(self, log_id: str) -> list[SnapshotRow]:
        """Every snapshot seen of a log, oldest first."""
        query = select(SNAPSHOTS).where(SNAPSHOTS.c.log_id == log_id).order_by(SNAPSHOTS.c.seqno)
        with self._session.reading() as connection:
            return [SnapshotRow(*row) for row in connection.execute(query)]


def look_at(directory: Path) -> tuple[LayoutRow, list[SegmentRow], list[SnapshotRow]]:
    """What lies in a log's directory now; reads headers and footers alone.

    Raises:
        ConfigError: not a log directory.
        UnknownSchema: written by another version.
        LogError: a segment's header is damaged.
    """
    paths = LogPaths(directory)
    identity = Format.read(paths)
    log_id, now_s = identity.log_id.hex(), time.time()
    name = str(identity.layout.get("name", ""))
    layout = LayoutRow(identity.layout_digest.hex(), name, identity.layout, now_s)
    mark, _ = read_watermark(paths.watermark)
    durable = mark.durable_seqno if mark is not None else 0
    loaded = load_segments(paths, identity)
    segments = []
    for number, segment in enumerate(loaded):
        header = segment.header
        following = loaded[number + 1].header.first_seqno if number + 1 < len(loaded) else None
        footer = _footer(segment.path)
        last = following - 1 if following is not None else durable
        segments.append(
            SegmentRow(
                log_id,
                header.segment_id,
                header.first_seqno,
                footer.last_seqno if footer is not None else max(last, header.first_seqno - 1),
                _size(segment.path),
                header.incarnation,
                footer is not None,
                header.realtime_ns / 1e9,
                now_s,
            )
        )
    return layout, segments, _snapshots(paths, log_id, now_s)


def _footer(path: Path) -> Footer | None:
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, 2)
        if size < RECORD_BYTES:
            return None
        file.seek(size - RECORD_BYTES)
        return Footer.unpack(file.read(RECORD_BYTES))


def _snapshots(paths: LogPaths, log_id: str, now_s: float) -> list[SnapshotRow]:
    found = []
    for path in paths.snapshot_files():
        try:
            with path.open("rb", buffering=0) as file:
                header = SnapshotHeader.unpack(file.read(SNAPSHOT_HEADER_BYTES))
        except FileNotFoundError:
            continue  # deleted meanwhile
        if header is not None:
            taken_s = header.realtime_ns / 1e9
            found.append(SnapshotRow(log_id, header.seqno, _size(path), taken_s, now_s))
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
