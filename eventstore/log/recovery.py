"""Recovery, the reading half: what the log says, judged by the decision tables.

Nothing is written here, so the same pass serves ``open``, a dry run and a look from outside.
``settle.py`` is the half that writes.
"""

import time
from dataclasses import dataclass, field

from kvstrata.core.ring import (
    RING_FLAG_POISONED,
    RING_FLAG_UNLOGGED,
    RING_FLAGS,
    RING_INCARNATION,
)

from .chain import Damage, Segment, link_fault, load_segments, refusal
from .decisions import (
    Decision,
    RingDecision,
    RingFacts,
    Row,
    TailFacts,
    decide_ring,
    decide_tail,
)
from .directory import LogPaths, Marker
from .formats import Footer, SealReason
from .identity import Format
from .projection import Projection, Words, replay_words
from .ringfile import RingFile, ring_durable, ring_events
from .scan import ReadMemory, SegmentScan, Tail, footer_tail, read_footer
from .snapshot import Snapshot, newest_snapshot
from .system import System
from .watermark import read_watermark

__all__ = ["RecoveryReport", "Replayed", "replay_log"]


@dataclass(frozen=True)
class RecoveryReport:
    """What a recovery found and did.

    Attributes:
        events_replayed: applied after the snapshot.
        events_from_ring: of these, how many only the surviving ring held.
        seconds: wall time.
        snapshot_seqno: where the replay began; 0 for the log's start.
        last_seqno: where the log ends.
        incarnation: the one that wrote the log's end; 0 for a new log.
        damage: what was found, with the name of the decision.
        ring: the row of the ring table.
        boot_changed: the machine was booted since.
        unlogged: an unlogged epoch was marked: come up cold.
        clean: the log was closed, not left.
        bytes_trusted: ring and pools are as the log says.
    """

    events_replayed: int
    events_from_ring: int
    seconds: float
    snapshot_seqno: int
    last_seqno: int
    incarnation: int
    damage: tuple[Damage, ...]
    ring: str
    boot_changed: bool
    unlogged: bool
    clean: bool
    bytes_trusted: bool


@dataclass
class Replayed:
    """The result of reading: the arena, and what ``settle`` needs to go on.

    Attributes:
        arena: after all events, those of the ring included.
        end: the last segment that holds events, with its tail; None where none does.
        cut: the row that says whether something is cut off the log's very end.
        cut_tail: that end, of the last segment, which may be one without events.
        ring_words: int64[n, 8] events to append.
        ring_incarnation: whose they are.
        rewrite: a failed sync may have left the last segment in memory only.
    """

    arena: Words
    report: RecoveryReport
    end: tuple[Segment, Tail] | None
    cut: Decision
    cut_tail: tuple[Segment, Tail] | None
    ring_words: Words
    ring_incarnation: int
    rewrite: bool


@dataclass
class _Reading:
    """What is known so far."""

    segments: list[Segment]
    proven_seqno: int
    arena: Words
    snapshot_seqno: int
    last_seqno: int = 0
    damage: list[Damage] = field(default_factory=list)
    end: tuple[Segment, Tail] | None = None
    cut: Decision = Decision.ACCEPT
    cut_tail: tuple[Segment, Tail] | None = None


def replay_log(
    paths: LogPaths,
    identity: Format,
    projection: Projection,
    system: System,
    ring: RingFile | None,
) -> Replayed:
    """Read the whole log and replay it.

    Args:
        paths: the directory.
        identity: its format.
        projection: what to replay into.
        system: the machine.
        ring: the ring that survived, if one did.

    Raises:
        CorruptSegment: acknowledged events are damaged or gone; names file and offset.
        UnknownSchema: a segment was written by another version.
        InvariantViolation: apply refused an event.
    """
    began = time.perf_counter()
    mark, mark_damaged = read_watermark(paths.watermark)
    snapshot, skipped = newest_snapshot(paths, identity)
    segments = load_segments(paths, identity)
    reading = _begin(paths, projection, segments, snapshot)
    reading.damage += [Damage(path, 0, "SNAPSHOT_SKIPPED", found) for path, found in skipped]
    if mark_damaged:
        reading.damage.append(Damage(paths.watermark, 0, "WATERMARK_TORN", "a damaged slot"))
    if ring is not None and (ring.log_id != identity.log_id or ring.words[RING_INCARNATION] == 0):
        ring = None
    ours = ring is not None and ring.boot_id == system.boot_id()
    newest = segments[-1].header.incarnation if segments else 0
    reading.proven_seqno = max(
        mark.durable_seqno if mark is not None else 0,
        snapshot.seqno if snapshot is not None else 0,
        ring_durable(ring, identity.log_id, system, newest),
    )
    _read_segments(paths, reading, projection)
    unlogged = paths.marker(Marker.UNLOGGED).exists()
    row, words, flags = _judge_ring(reading, ring, ours, unlogged)
    appended = words if row.decision in (RingDecision.APPEND, RingDecision.APPEND_COLD) else None
    from_ring = 0
    if appended is not None:
        replay_words(projection, reading.arena, appended)
        from_ring = len(appended)
    last = reading.last_seqno + from_ring
    trusted = row.decision in (RingDecision.KEEP, RingDecision.APPEND)
    fresh = not segments
    report = RecoveryReport(
        events_replayed=last - reading.snapshot_seqno,
        events_from_ring=from_ring,
        seconds=time.perf_counter() - began,
        snapshot_seqno=reading.snapshot_seqno,
        last_seqno=last,
        incarnation=segments[-1].header.incarnation if segments else 0,
        damage=tuple(reading.damage),
        ring=row.name,
        boot_changed=bool(segments) and segments[-1].header.boot_id != system.boot_id(),
        unlogged=unlogged or bool(flags & RING_FLAG_UNLOGGED),
        clean=fresh or _is_clean(reading),
        bytes_trusted=fresh or (trusted and not paths.marker(Marker.UNTRUSTED).exists()),
    )
    return Replayed(
        reading.arena, report, reading.end, reading.cut, reading.cut_tail,
        words if appended is not None else words[:0],
        int(ring.words[RING_INCARNATION]) if ring is not None else 0,
        ours and bool(flags & RING_FLAG_POISONED),
    )  # fmt: skip


def _begin(
    paths: LogPaths, projection: Projection, segments: list[Segment], snapshot: Snapshot | None
) -> _Reading:
    start = snapshot.seqno if snapshot is not None else 0
    first = segments[0].header.first_seqno if segments else 1
    if first > start + 1:
        damage = Damage(segments[0].path, 0, "START_MISSING", f"a log that begins with {first}")
        raise refusal(damage, f"a snapshot at event {first - 1} or later, or the segments before")
    arena = snapshot.arena if snapshot is not None else projection.fresh()
    return _Reading(segments, 0, arena, start, first - 1)


def _read_segments(paths: LogPaths, reading: _Reading, projection: Projection) -> None:
    """Replay what the snapshot does not cover, and judge the end of every segment."""
    before: Segment | None = None
    footer: Footer | None = None
    memory = ReadMemory()
    for number, segment in enumerate(reading.segments):
        fault = link_fault(before, footer, segment.header)
        if fault:
            raise refusal(Damage(segment.path, 0, "BROKEN_LINK", fault), "the next segment")
        is_last = number == len(reading.segments) - 1
        covered = (
            not is_last
            and reading.segments[number + 1].header.first_seqno <= reading.snapshot_seqno + 1
        )
        footer = read_footer(segment.path) if covered else None
        if footer is not None:
            reading.last_seqno = footer.last_seqno
            if footer.num_batches:
                reading.end = segment, footer_tail(footer)
        else:
            # The last one is mostly reserved and not written: fresh memory is zeros already.
            scan = SegmentScan(segment.path, segment.header, None if is_last else memory)
            tail = _replay_segment(scan, reading, projection)
            footer = _judge_tail(segment, tail, is_last, reading)
        before = segment
    if not reading.segments and reading.proven_seqno > 0:
        damage = Damage(paths.segments, 0, "DURABLE_MISSING", "no segment")
        raise refusal(damage, f"events up to {reading.proven_seqno}")


def _replay_segment(scan: SegmentScan, reading: _Reading, projection: Projection) -> Tail:
    for batch in scan.batches():
        done = projection.last_seqno(reading.arena) - batch.header.first_seqno + 1
        if done < batch.header.count:
            replay_words(projection, reading.arena, batch.words[max(done, 0) :])
    return scan.tail


def _judge_tail(segment: Segment, tail: Tail, is_last: bool, reading: _Reading) -> Footer | None:
    """Decide on the end of a segment; returns its footer."""
    proven = max(reading.proven_seqno, tail.synced_seqno)
    row = decide_tail(TailFacts(tail.kind, is_last, tail.last_seqno >= proven))
    found = tail.found or f"event {tail.last_seqno} followed by {tail.kind.value}"
    damage = Damage(segment.path, tail.offset, row.name, found)
    if row.decision is Decision.REFUSE:
        raise refusal(damage, f"events up to {proven}" if is_last else "a sealed segment")
    reading.last_seqno = tail.last_seqno
    if tail.last_seqno >= segment.header.first_seqno:
        reading.end = segment, tail
    if is_last:
        reading.cut, reading.cut_tail = row.decision, (segment, tail)
        if row.decision is Decision.TRUNCATE:
            reading.damage.append(damage)
    return tail.footer


def _judge_ring(
    reading: _Reading, ring: RingFile | None, same_boot: bool, unlogged: bool
) -> tuple[Row[RingFacts, RingDecision], Words, int]:
    """The ring's row, its events after the log's end, and its flags."""
    if ring is None:
        facts = RingFacts(False, False, False, unlogged, False, False, False)
        return decide_ring(facts), reading.arena[:0].reshape(-1, 8), 0
    flags = int(ring.words[RING_FLAGS])
    # An open that did not get far enough left segments without events behind.
    newest = reading.segments[-1].header.incarnation if reading.segments else 0
    oldest = reading.end[0].header.incarnation if reading.end is not None else 1
    words = ring_events(ring, reading.last_seqno)
    facts = RingFacts(
        exists=True,
        same_boot=same_boot,
        same_incarnation=oldest <= int(ring.words[RING_INCARNATION]) <= newest,
        unlogged=unlogged or bool(flags & RING_FLAG_UNLOGGED),
        poisoned=bool(flags & RING_FLAG_POISONED),
        readable=words is not None,
        ahead=words is not None and len(words) > 0,
    )
    return decide_ring(facts), words if words is not None else ring.words[:0].reshape(-1, 8), flags


def _is_clean(reading: _Reading) -> bool:
    if reading.cut_tail is None:
        return False
    footer = reading.cut_tail[1].footer
    return footer is not None and footer.reason is SealReason.CLOSED
