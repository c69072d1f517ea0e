"""The chain of segments: what must hold from one file to the next.

Everything here reads. A fault is a :class:`Damage` with file, offset and words; who calls
decides whether it is raised (recovery), skipped or listed (fsck).
"""

from dataclasses import dataclass
from pathlib import Path

from kvstrata.core.errors import CorruptSegment, LogError, UnknownSchema
from kvstrata.core.events import EVENT_BYTES, EVENT_SCHEMA_VERSION

from .directory import LogPaths
from .formats import FORMAT_VERSION, Footer, SegmentHeader
from .identity import Format, set_aside_hint
from .scan import read_header

__all__ = ["Damage", "Segment", "header_fault", "link_fault", "load_segments", "refusal"]


@dataclass(frozen=True)
class Damage:
    """Something that is not as it should be.

    Attributes:
        path: the file.
        offset: where in it, in bytes.
        decision: the row of a decision table, or the kind of fault.
        found: in words.
    """

    path: Path
    offset: int
    decision: str
    found: str

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.found} ({self.decision})"


@dataclass(frozen=True)
class Segment:
    """A segment's file and header."""

    path: Path
    header: SegmentHeader


def refusal(damage: Damage, expected: str) -> CorruptSegment:
    """The error for damage that only an explicit repair may touch."""
    return CorruptSegment(
        f"expected {expected}, found {damage.found} in {damage.path} at byte {damage.offset} "
        f"({damage.decision}); look with kvstrata fsck, then restore a copy, or cut the log "
        "there with kvstrata fsck --repair"
    )


def header_fault(path: Path, header: SegmentHeader | None, identity: Format) -> str:
    """What is wrong with a segment's header on its own, "" where nothing is.

    Raises:
        UnknownSchema: written by another version.
    """
    if header is None:
        return "a damaged header"
    versions = header.format_version, header.schema_version
    if versions != (FORMAT_VERSION, EVENT_SCHEMA_VERSION) or header.record_bytes != EVENT_BYTES:
        raise UnknownSchema(
            f"expected segments of format {FORMAT_VERSION} and event schema "
            f"{EVENT_SCHEMA_VERSION}, found {versions[0]} and {versions[1]} in {path}; "
            f"{set_aside_hint(path.parent.parent)}"
        )
    if header.log_id != identity.log_id:
        return "a segment of another log"
    if header.layout_digest != identity.layout_digest:
        return "a segment of another layout"
    if f"{header.first_seqno:020d}" != path.stem:
        return f"a segment that begins with event {header.first_seqno}"
    return ""


def link_fault(before: Segment | None, footer: Footer | None, header: SegmentHeader) -> str:
    """What is wrong between a segment and the one before, "" where nothing is.

    Args:
        before: the segment before; None where this is the first one kept.
        footer: its footer.
        header: this segment's.
    """
    if before is None:
        return ""
    if header.segment_id != before.header.segment_id + 1:
        return f"segment {header.segment_id} after segment {before.header.segment_id}"
    if header.incarnation < before.header.incarnation:
        return f"incarnation {header.incarnation} after {before.header.incarnation}"
    if footer is None:
        return "no footer in the segment before"
    if header.first_seqno != footer.last_seqno + 1:
        return f"event {header.first_seqno} after event {footer.last_seqno}"
    if header.previous_crc != footer.crc:
        return "a segment that does not continue the footer before it"
    return ""


def load_segments(paths: LogPaths, identity: Format) -> list[Segment]:
    """All segments with their headers, oldest first.

    Raises:
        CorruptSegment: a header is damaged or of another log.
        UnknownSchema: written by another version.
        LogError: a segment went away while reading.
    """
    segments = []
    for path in paths.segment_files():
        try:
            header = read_header(path)
        except FileNotFoundError as error:
            raise LogError(f"expected {path} to stay, found it gone; read again") from error
        fault = header_fault(path, header, identity)
        if fault or header is None:
            raise refusal(Damage(path, 0, "BAD_HEADER", fault), "a segment of this log")
        segments.append(Segment(path, header))
    return segments
