"""Snapshots: a stored arena, and which segments it makes dispensable.

A snapshot is written only when its seqno is durable, whole or not at all. One that does not hold
is skipped with a report, and an older one or the log from its start takes its place.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from kvstrata.core.events import EVENT_SCHEMA_VERSION

from .directory import LogPaths
from .formats import FORMAT_VERSION, Buffer, checksum, is_whole, seal_record
from .identity import Format
from .projection import Projection, Words
from .system import System, replace_file

__all__ = [
    "SNAPSHOT_HEADER_BYTES",
    "Snapshot",
    "SnapshotHeader",
    "newest_snapshot",
    "read_snapshot",
    "write_snapshot",
]

SNAPSHOT_MAGIC: Final = b"kvs-snap"
SNAPSHOT_HEADER_BYTES: Final = 4096
_SNAPSHOT: Final = struct.Struct("<8sIIIIQQ16s16s16sq")
_PIECE_BYTES: Final = 1 << 26


@dataclass(frozen=True)
class SnapshotHeader:
    """The first 4096 bytes of a snapshot; the arena's bytes follow."""

    seqno: int
    arena_bytes: int
    arena_crc: int
    log_id: bytes
    layout_digest: bytes
    projection_digest: bytes
    realtime_ns: int
    schema_version: int
    format_version: int = FORMAT_VERSION

    def pack(self) -> bytes:
        """The 4096 bytes."""
        fields = _SNAPSHOT.pack(
            SNAPSHOT_MAGIC, 0, self.format_version, self.schema_version, self.arena_crc,
            self.seqno, self.arena_bytes, self.log_id, self.layout_digest,
            self.projection_digest, self.realtime_ns,
        )  # fmt: skip
        return seal_record(fields, 8, SNAPSHOT_HEADER_BYTES)

    @classmethod
    def unpack(cls, data: Buffer) -> Self | None:
        """The header in ``data``, or None where it is not whole."""
        if bytes(data[:8]) != SNAPSHOT_MAGIC or not is_whole(data, 8, SNAPSHOT_HEADER_BYTES):
            return None
        _, _, version, schema, arena_crc, seqno, size, log_id, layout, projection, at_ns = (
            _SNAPSHOT.unpack_from(data)
        )
        return cls(seqno, size, arena_crc, log_id, layout, projection, at_ns, schema, version)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that holds."""

    path: Path
    seqno: int
    arena: Words


def write_snapshot(
    system: System, paths: LogPaths, identity: Format, arena: Words, seqno: int
) -> Path:
    """Store an arena.

    Args:
        system: the machine.
        paths: the directory.
        identity: its format.
        arena: as of ``seqno``; not changed by anyone until this returns.
        seqno: durable already.

    Raises:
        OSError: it was not stored.
    """
    data = np.ascontiguousarray(arena).data.cast("B")
    header = SnapshotHeader(
        seqno, data.nbytes, checksum(data), identity.log_id, identity.layout_digest,
        identity.projection_digest, system.realtime_ns(), EVENT_SCHEMA_VERSION,
    )  # fmt: skip
    pieces = [data[at : at + _PIECE_BYTES] for at in range(0, data.nbytes, _PIECE_BYTES)]
    path = paths.snapshot(seqno)
    replace_file(system, path, [header.pack(), *pieces])
    return path


def read_snapshot(path: Path, identity: Format) -> Snapshot | str:
    """A snapshot, or in words why it does not hold."""
    with path.open("rb", buffering=0) as file:
        header = SnapshotHeader.unpack(file.read(SNAPSHOT_HEADER_BYTES))
        if header is None:
            return "a damaged header"
        versions = header.format_version, header.schema_version
        if versions != (FORMAT_VERSION, EVENT_SCHEMA_VERSION):
            return f"format and schema version {versions}"
        if (header.log_id, header.layout_digest) != (identity.log_id, identity.layout_digest):
            return "another log's snapshot"
        if header.projection_digest != identity.projection_digest:
            return "tables of another shape"
        if f"{header.seqno:020d}" != path.stem:
            return f"a snapshot at event {header.seqno}"
        size = os.fstat(file.fileno()).st_size - SNAPSHOT_HEADER_BYTES
        if size != header.arena_bytes or size % 8:
            return f"{size} bytes of tables, not {header.arena_bytes}"
        arena: Words = np.empty(size // 8, dtype=np.int64)
        view = arena.data.cast("B")
        at = 0
        while at < size and (read := file.readinto(view[at : at + _PIECE_BYTES])):
            at += read
    if at != size or checksum(view) != header.arena_crc:
        return "tables with a wrong checksum"
    return Snapshot(path, header.seqno, arena)


def newest_snapshot(
    paths: LogPaths, identity: Format, at_most: int | None = None
) -> tuple[Snapshot | None, list[tuple[Path, str]]]:
    """The newest snapshot that holds.

    Args:
        paths: the directory.
        identity: its format.
        at_most: the highest seqno wanted; None for any.

    Returns:
        The snapshot or None, and the newer ones that do not hold with the reason.
    """
    skipped: list[tuple[Path, str]] = []
    for path in reversed(paths.snapshot_files()):
        if at_most is not None and int(path.stem) > at_most:
            continue
        try:
            found = read_snapshot(path, identity)
        except FileNotFoundError:
            continue  # a writer deleted it meanwhile
        if isinstance(found, Snapshot):
            return found, skipped
        skipped.append((path, found))
    return None, skipped


def fresh_or_snapshot(projection: Projection, snapshot: Snapshot | None) -> tuple[Words, int]:
    """The arena to replay onto, and the seqno it stands at."""
    if snapshot is None:
        return projection.fresh(), 0
    return snapshot.arena, snapshot.seqno
