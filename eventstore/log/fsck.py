"""fsck: a walk over everything a log directory holds, and the explicit repair.

*Faults* are what recovery refuses or what is lost; *notes* are what it handles by itself.
"""

import mmap
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import LogError
from kvstrata.core.events import EVENT_DTYPE, PAYLOADS

from .blobs import get_blob
from .chain import Damage, Segment, header_fault, link_fault
from .decisions import Decision, TailFacts, decide_tail
from .directory import LogPaths, Marker
from .formats import Footer
from .identity import Format
from .lock import DirectoryLock
from .projection import Words
from .repair import SegmentCheck, repair_log
from .ringfile import map_ring, ring_durable
from .scan import SegmentScan, Tail, TailKind, read_header
from .snapshot import Snapshot, read_snapshot
from .system import System
from .tmpfs import DEFAULT_ROOT, Place, place_of
from .watermark import read_watermark

__all__ = ["FsckReport", "fsck"]


@dataclass(frozen=True)
class FsckReport:
    """What a walk found.

    Attributes:
        directory: looked at.
        num_segments: segments.
        num_events: events that hold.
        first_seqno: of the first segment, 0 where there is none.
        last_seqno: the last that holds.
        num_snapshots: snapshots that hold.
        snapshot_seqno: of the newest one, 0 where there is none.
        num_blobs: blobs stored.
        durable_seqno: of the watermark, 0 where there is none.
        faults: what recovery refuses, or what is lost.
        notes: what recovery handles by itself.
        repairs: what a repair did.
    """

    directory: Path
    num_segments: int
    num_events: int
    first_seqno: int
    last_seqno: int
    num_snapshots: int
    snapshot_seqno: int
    num_blobs: int
    durable_seqno: int
    faults: tuple[Damage, ...]
    notes: tuple[Damage, ...]
    repairs: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether there are no faults."""
        return not self.faults


def fsck(
    directory: Path, repair: bool = False, shared_memory_root: Path = DEFAULT_ROOT
) -> FsckReport:
    """Check a log directory, and cut what is damaged where asked to.

    Args:
        directory: a log directory.
        repair: cut at the first fault (a copy is kept under ``damaged/``), then check again.
        shared_memory_root: where its ring is; a repair removes the ring.

    Raises:
        ConfigError: not a log directory.
        DirectoryBusy: a repair while an engine writes.
        UnknownSchema: written by another version.
        LogError: ``format.json`` is damaged, or the device failed.
    """
    paths = LogPaths(Path(directory))
    identity = Format.read(paths)
    place = place_of(paths.root, shared_memory_root)
    if not repair:
        return _Walk(paths, identity, place).report()
    lock = DirectoryLock(paths)
    try:
        walk = _Walk(paths, identity, place)
        before = walk.report()
        if before.is_sound:
            return before
        try:
            repairs = repair_log(
                System(), paths, identity, place, walk.checks, before.snapshot_seqno
            )
        except OSError as error:
            raise LogError(f"expected to repair {directory}, found {error}") from error
        return replace(_Walk(paths, identity, place).report(), repairs=tuple(repairs))
    finally:
        lock.release()


class _Walk:
    """One pass over a directory."""

    def __init__(self, paths: LogPaths, identity: Format, place: Place) -> None:
        self._paths = paths
        self._identity = identity
        self._faults: list[Damage] = []
        self._notes: list[Damage] = []
        self._blobs: set[bytes] = set()
        mark, mark_damaged = read_watermark(paths.watermark)
        self._durable = mark.durable_seqno if mark is not None else 0
        self._ring = map_ring(place.ring, mmap.ACCESS_READ)
        if mark_damaged:
            self._notes.append(Damage(paths.watermark, 0, "WATERMARK_TORN", "a damaged slot"))
        self._snapshots = self._check_snapshots()
        self.checks = self._check_segments()
        self._check_start()
        self._check_blobs()
        self._check_leftovers()

    def report(self) -> FsckReport:
        """All of it."""
        tails = [check.tail for check in self.checks if check.tail is not None]
        headers = [check.header for check in self.checks if check.header is not None]
        return FsckReport(
            directory=self._paths.root,
            num_segments=len(self.checks),
            num_events=sum(check.num_events for check in self.checks),
            first_seqno=headers[0].first_seqno if headers else 0,
            last_seqno=tails[-1].last_seqno if tails else 0,
            num_snapshots=len(self._snapshots),
            snapshot_seqno=max(self._snapshots, default=0),
            num_blobs=sum(1 for _ in self._paths.blobs.glob("[0-9a-f]" * 32)),
            durable_seqno=self._durable,
            faults=tuple(self._faults),
            notes=tuple(self._notes),
        )

    def _check_snapshots(self) -> list[int]:
        sound = []
        for path in self._paths.snapshot_files():
            found = read_snapshot(path, self._identity)
            if isinstance(found, Snapshot):
                sound.append(found.seqno)
            else:
                self._notes.append(Damage(path, 0, "SNAPSHOT_SKIPPED", found))
        return sound

    def _check_segments(self) -> list[SegmentCheck]:
        checks: list[SegmentCheck] = []
        files = self._paths.segment_files()
        before: Segment | None = None
        footer: Footer | None = None
        newest = read_header(files[-1]) if files else None
        incarnation = newest.incarnation if newest is not None else 0
        in_ring = ring_durable(self._ring, self._identity.log_id, System(), incarnation)
        proven = max([self._durable, in_ring, *self._snapshots])
        for number, path in enumerate(files):
            header = read_header(path)
            fault = header_fault(path, header, self._identity)
            if fault or header is None:
                self._faults.append(Damage(path, 0, "BAD_HEADER", fault))
                checks.append(SegmentCheck(path, None, None, False, True))
                before = footer = None
                continue
            segment = Segment(path, header)
            broken = link_fault(before, footer, header)
            if number > 0 and before is None:
                broken = ""  # the segment before has no header to compare with
            if broken:
                self._faults.append(Damage(path, 0, "BROKEN_LINK", broken))
            tail, is_faulty = self._check_one(segment, number == len(files) - 1, proven)
            checks.append(SegmentCheck(path, header, tail, bool(broken), is_faulty))
            before, footer = segment, tail.footer
        return checks

    def _check_one(self, segment: Segment, is_last: bool, proven: int) -> tuple[Tail, bool]:
        scan = SegmentScan(segment.path, segment.header)
        for number, batch in enumerate(scan.batches()):
            first_seqno = batch.header.first_seqno
            fault = self._check_events(batch.words, first_seqno)
            if fault:
                self._faults.append(Damage(segment.path, batch.offset, "BROKEN_BATCH", fault))
                size = segment.path.stat().st_size
                return Tail(
                    TailKind.DAMAGED, batch.offset, first_seqno - 1, number,
                    batch.header.previous_crc, end_offset=size, found=fault,
                ), True  # fmt: skip
        is_faulty = False
        tail = scan.tail
        reached = tail.last_seqno >= max(proven, tail.synced_seqno)
        row = decide_tail(TailFacts(tail.kind, is_last, reached))
        found = tail.found or f"event {tail.last_seqno} followed by {tail.kind.value}"
        damage = Damage(segment.path, tail.offset, row.name, found)
        if row.decision is Decision.REFUSE:
            self._faults.append(damage)
            is_faulty = True
        elif row.decision is Decision.TRUNCATE:
            self._notes.append(damage)
        return tail, is_faulty

    def _check_events(self, words: Words, first_seqno: int) -> str:
        if not np.array_equal(words[:, 0], np.arange(first_seqno, first_seqno + len(words))):
            return "seqnos that are not consecutive"
        events: npt.NDArray[np.void] = words.reshape(-1).view(EVENT_DTYPE)
        for kind, fields in PAYLOADS.items():
            if "blob" in (fields.names or ()):
                chosen = np.ascontiguousarray(words[events["type"] == kind][:, 4:])
                for blob in chosen.reshape(-1).view(fields)["blob"]:
                    self._blobs.add(blob.tobytes())
        return ""

    def _check_start(self) -> None:
        first = next((check.header for check in self.checks if check.header is not None), None)
        newest = max(self._snapshots, default=0)
        if first is not None and first.first_seqno > newest + 1:
            found = f"a log that begins with event {first.first_seqno} and no snapshot before it"
            self._faults.append(Damage(self.checks[0].path, 0, "START_MISSING", found))
        if not self.checks and max(newest, self._durable) > 0:
            found = f"no segment, but {max(newest, self._durable)} durable events"
            self._faults.append(Damage(self._paths.segments, 0, "DURABLE_MISSING", found))

    def _check_blobs(self) -> None:
        named = {digest for digest in self._blobs if any(digest)}
        stored = {bytes.fromhex(path.name) for path in self._paths.blobs.glob("[0-9a-f]" * 32)}
        for digest in sorted(named | stored):
            try:
                get_blob(self._paths, digest)
            except LogError as error:
                path = self._paths.blobs / digest.hex()
                is_named = digest in named
                damage = Damage(path, 0, "BLOB_LOST" if is_named else "BLOB_DAMAGED", str(error))
                (self._faults if is_named else self._notes).append(damage)

    def _check_leftovers(self) -> None:
        for path in self._paths.root.rglob("*.tmp"):
            self._notes.append(Damage(path, 0, "LEFTOVER", "a file that was never finished"))
        for marker in Marker:
            path = self._paths.marker(marker)
            if path.exists():
                self._notes.append(Damage(path, 0, marker.name, "the next start will be cold"))
        for path in sorted(self._paths.damaged.glob("*")):
            self._notes.append(Damage(path, 0, "KEPT_COPY", "what was cut off once"))
