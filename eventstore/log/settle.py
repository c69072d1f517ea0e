"""Recovery, the writing half: make the directory what the reading half found.

Each step leaves a directory that can be recovered again: first what must not be believed is
marked, then the end is cut, then the ring's events are appended, then the segment is sealed.
"""

from dataclasses import dataclass

from kvstrata.core.events import EVENT_SCHEMA_VERSION

from .chain import Segment
from .decisions import Decision
from .directory import LogPaths, Marker
from .formats import RECORD_BYTES, SEGMENT_HEADER_BYTES, SealReason, SegmentHeader
from .identity import Format
from .projection import Words
from .recovery import Replayed
from .scan import Tail, TailKind
from .segments import SegmentFile, prepare_segment
from .system import System, replace_file
from .watermark import WatermarkFile

__all__ = ["LogEnd", "keep_copy", "new_header", "settle_log"]


@dataclass(frozen=True)
class LogEnd:
    """Where the next incarnation goes on.

    Attributes:
        last_seqno: of the log, durable.
        next_segment_id: id of the next segment.
        previous_crc: footer CRC of the last segment that holds events, 0 if none does.
        incarnation: the highest so far.
    """

    last_seqno: int
    next_segment_id: int
    previous_crc: int
    incarnation: int


def new_header(
    system: System, identity: Format, end: LogEnd, incarnation: int, rank: int
) -> SegmentHeader:
    """The header of the segment that follows ``end``."""
    return SegmentHeader(
        segment_id=end.next_segment_id,
        first_seqno=end.last_seqno + 1,
        previous_crc=end.previous_crc,
        rank=rank,
        incarnation=incarnation,
        boot_id=system.boot_id(),
        realtime_ns=system.realtime_ns(),
        monotonic_ns=system.monotonic_ns(),
        log_id=identity.log_id,
        layout_digest=identity.layout_digest,
        abi_digest=bytes(16),
        schema_version=EVENT_SCHEMA_VERSION,
    )


def settle_log(
    system: System, paths: LogPaths, identity: Format, replayed: Replayed, rank: int
) -> LogEnd:
    """Cut what was torn, append what the ring saved, seal, and set the watermark.

    Args:
        system: the machine.
        paths: the directory, locked by this process.
        identity: its format.
        replayed: what was read.
        rank: of this engine.

    Raises:
        OSError: the device failed; run recovery again.
    """
    report = replayed.report
    if not report.bytes_trusted:
        reason = "an unlogged epoch" if report.unlogged else f"ring: {report.ring}"
        paths.set_marker(system, Marker.UNTRUSTED, reason)
    for leftover in [paths.prepared, *paths.root.rglob("*.tmp")]:
        system.unlink(leftover)
    if replayed.cut is Decision.TRUNCATE and replayed.cut_tail is not None:
        keep_copy(system, paths, *replayed.cut_tail)
    end, segment = _last_segment(system, paths, replayed)
    if len(replayed.ring_words):
        if segment is None:
            header = new_header(system, identity, end, replayed.ring_incarnation, rank)
            words_bytes = replayed.ring_words.nbytes
            size = SEGMENT_HEADER_BYTES + words_bytes + 2 * RECORD_BYTES
            prepared = prepare_segment(system, paths, size)
            segment = SegmentFile.create(system, paths, header, prepared, size)
        _append(system, segment, replayed.ring_words, end.last_seqno)
    if segment is not None:
        footer = segment.seal(SealReason.RECOVERED, system.monotonic_ns())
        segment.close()
        end = LogEnd(
            footer.last_seqno, segment.header.segment_id + 1, footer.crc, report.incarnation
        )
    mark = WatermarkFile(system, paths.watermark)
    mark.write(end.last_seqno, max(end.next_segment_id - 1, 0), 0, end.incarnation)
    mark.sync()
    mark.close()
    return end


def _last_segment(
    system: System, paths: LogPaths, replayed: Replayed
) -> tuple[LogEnd, SegmentFile | None]:
    """The log's end without the ring, and its last segment opened where it is not sealed."""
    incarnation = replayed.report.incarnation
    if replayed.end is None:
        first = replayed.report.last_seqno - len(replayed.ring_words)
        segment_id = replayed.cut_tail[0].header.segment_id if replayed.cut_tail else 1
        previous = replayed.cut_tail[0].header.previous_crc if replayed.cut_tail else 0
        return LogEnd(first, segment_id, previous, incarnation), None
    segment, tail = replayed.end
    following = segment.header.segment_id + 1
    if replayed.rewrite and replayed.cut_tail is not None and replayed.cut_tail[0] is segment:
        _rewrite(system, segment, tail)
    if tail.kind is TailKind.FOOTER and tail.footer is not None:
        return LogEnd(tail.last_seqno, following, tail.footer.crc, incarnation), None
    resumed = SegmentFile.resume(system, segment.path, segment.header, tail)
    return LogEnd(tail.last_seqno, following, 0, incarnation), resumed


def _append(system: System, segment: SegmentFile, words: Words, synced_seqno: int) -> None:
    """Append whole calls as one batch."""
    data = words.data.cast("B")
    segment.append([data], len(words), synced_seqno, system.monotonic_ns())


def _rewrite(system: System, segment: Segment, tail: Tail) -> None:
    """Store the good part of a segment anew: its old pages may never reach the device."""
    footer_bytes = RECORD_BYTES if tail.kind is TailKind.FOOTER else 0
    with segment.path.open("rb") as file:
        replace_file(system, segment.path, [file.read(tail.offset + footer_bytes)])


def keep_copy(system: System, paths: LogPaths, segment: Segment, tail: Tail) -> None:
    """Keep what is about to be cut off, under ``damaged/``. Raises OSError."""
    with segment.path.open("rb") as file:
        file.seek(tail.offset)
        cut = file.read(tail.end_offset - tail.offset)
    system.make_directory(paths.damaged)
    name = f"{segment.path.name}.{tail.offset}.{segment.header.incarnation}"
    replace_file(system, paths.damaged / name, [cut])
