"""Repair: the cut that only an explicit command makes.

Rules, in order:

1. A fault in segments that a snapshot covers: they are set aside, the log begins after them, as
   with retention. Nothing is lost that a restart needs.
2. A later fault: the log ends before it; the rest and all later segments are set aside.
3. Where the newest snapshot stands beyond that end, the log goes on from the snapshot instead.
4. What was set aside stays under ``damaged/``; the ring is removed, the pools are distrusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .chain import Segment
from .directory import LogPaths, Marker
from .formats import SEGMENT_HEADER_BYTES, SealReason, SegmentHeader
from .identity import Format
from .scan import Tail, TailKind
from .segments import SegmentFile, prepare_segment
from .settle import LogEnd, keep_copy, new_header
from .snapshot import Snapshot, read_snapshot
from .system import System
from .tmpfs import Place
from .watermark import WatermarkFile

__all__ = ["SegmentCheck", "repair_log"]


@dataclass(frozen=True)
class SegmentCheck:
    """What a walk found in one segment.

    Attributes:
        path: its file.
        header: None where it is damaged.
        tail: the end of its good part; None without a header.
        is_unlinked: it does not continue the segment before.
        is_faulty: it is damaged itself.
    """

    path: Path
    header: SegmentHeader | None
    tail: Tail | None
    is_unlinked: bool
    is_faulty: bool

    @property
    def num_events(self) -> int:
        """Events that hold."""
        if self.header is None or self.tail is None:
            return 0
        return self.tail.last_seqno - self.header.first_seqno + 1


def repair_log(
    system: System,
    paths: LogPaths,
    identity: Format,
    place: Place,
    checks: Sequence[SegmentCheck],
    snapshot_seqno: int,
) -> list[str]:
    """Make a damaged log one that opens.

    Args:
        system: the machine.
        paths: the directory, locked by this process.
        identity: its format.
        place: of its ring.
        checks: every segment, oldest first.
        snapshot_seqno: of the newest snapshot that holds, 0 for none.

    Returns:
        What was done, in words.

    Raises:
        OSError: the device failed; run it again.
    """
    done: list[str] = []
    paths.set_marker(system, Marker.UNTRUSTED, "repaired by hand")
    system.unlink(place.ring)
    start = _first_kept(checks, snapshot_seqno)
    for check in checks[:start]:
        done.append(_set_aside(system, paths, check.path))
    kept = list(checks[start:])
    bad = next(
        (n for n, check in enumerate(kept) if check.is_faulty or (n > 0 and check.is_unlinked)),
        len(kept),
    )
    sound, rest = kept[:bad], kept[bad:]
    if rest and rest[0].num_events > 0 and not (rest[0].is_unlinked and bad > 0):
        sound.append(rest.pop(0))
    for check in rest:
        done.append(_set_aside(system, paths, check.path))
    last = sound[-1].tail.last_seqno if sound and sound[-1].tail is not None else 0
    if last < snapshot_seqno:
        for check in sound:
            done.append(_set_aside(system, paths, check.path))
        sound, last = [], snapshot_seqno
    end = _end_of(system, paths, identity, sound, checks, last, done)
    for path in paths.snapshot_files():
        if int(path.stem) > last or not isinstance(read_snapshot(path, identity), Snapshot):
            done.append(_set_aside(system, paths, path))
    mark = WatermarkFile(system, paths.watermark)
    mark.write(end.last_seqno, max(end.next_segment_id - 1, 0), 0, end.incarnation)
    mark.sync()
    mark.close()
    done.append(f"the log ends at event {last}; the next start will be cold")
    return done


def _first_kept(checks: Sequence[SegmentCheck], snapshot_seqno: int) -> int:
    """Index of the first segment kept: after the last fault that a snapshot covers."""
    start = 0
    for number, check in enumerate(checks):
        following = checks[number + 1].header if number + 1 < len(checks) else None
        if check.is_faulty and following and following.first_seqno <= snapshot_seqno + 1:
            start = number + 1
        elif (
            check.is_unlinked
            and check.header is not None
            and check.header.first_seqno <= snapshot_seqno + 1
        ):
            start = number
    if start == 0 and checks and checks[0].header is not None:
        reachable = checks[0].header.first_seqno <= snapshot_seqno + 1
        return 0 if reachable else len(checks)
    return start


def _end_of(
    system: System,
    paths: LogPaths,
    identity: Format,
    sound: Sequence[SegmentCheck],
    checks: Sequence[SegmentCheck],
    last: int,
    done: list[str],
) -> LogEnd:
    """Seal the last sound segment, or begin an empty one after the snapshot."""
    headers = [check.header for check in checks if check.header is not None]
    incarnation = max((header.incarnation for header in headers), default=0)
    if sound:
        check = sound[-1]
        if check.header is None or check.tail is None:
            raise RuntimeError("expected a sound segment to have a header")
        if check.tail.kind is TailKind.FOOTER and check.tail.footer is not None:
            following = check.header.segment_id + 1
            return LogEnd(last, following, check.tail.footer.crc, incarnation)
        if check.tail.kind is TailKind.DAMAGED:
            keep_copy(system, paths, Segment(check.path, check.header), check.tail)
            done.append(f"cut {check.path.name} at byte {check.tail.offset}")
        segment = SegmentFile.resume(system, check.path, check.header, check.tail)
    elif last > 0:
        after = max((header.segment_id for header in headers), default=0) + 1
        begin = LogEnd(last, after, 0, incarnation)
        header = new_header(system, identity, begin, max(incarnation, 1), 0)
        prepared = prepare_segment(system, paths, SEGMENT_HEADER_BYTES)
        segment = SegmentFile.create(system, paths, header, prepared, 0)
        done.append(f"began {segment.path.name} after the snapshot at event {last}")
    else:
        return LogEnd(0, 1, 0, incarnation)
    footer = segment.seal(SealReason.REPAIRED, system.monotonic_ns())
    segment.close()
    return LogEnd(footer.last_seqno, segment.header.segment_id + 1, footer.crc, incarnation)


def _set_aside(system: System, paths: LogPaths, path: Path) -> str:
    system.make_directory(paths.damaged)
    target = paths.damaged / path.name
    number = 0
    while target.exists():
        number += 1
        target = paths.damaged / f"{path.name}.{number}"
    system.rename(path, target)
    system.sync_directory(paths.damaged)
    system.sync_directory(path.parent)
    return f"moved {path.name} to {target.relative_to(paths.root)}"
