"""Reading a log from outside: events in order, and the state they give. Nothing is changed.

Both work beside a living writer: a write in progress is the log's end for now.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import ArenaParams
from kvstrata.core.errors import LogError, SequenceGap
from kvstrata.core.events import EVENT_DTYPE
from kvstrata.core.layout import CacheLayout

from .chain import Damage, Segment, link_fault, load_segments, refusal
from .decisions import Decision, TailFacts, decide_tail
from .directory import LogPaths
from .formats import Footer
from .identity import Format
from .projection import Projection, Words, core_projection
from .recovery import RecoveryReport, Replayed, replay_log
from .ringfile import map_ring
from .scan import SegmentScan
from .system import System
from .tmpfs import DEFAULT_ROOT, place_of
from .watermark import read_watermark

__all__ = ["open_replayed", "read_events", "stored_projection"]

_ATTEMPTS = 4


def read_events(directory: Path, from_seqno: int = 1) -> Iterator[npt.NDArray[np.void]]:
    """The stored events, checked, a batch at a time.

    Args:
        directory: a log directory.
        from_seqno: the first one wanted.

    Yields:
        EVENT_DTYPE arrays, consecutive across arrays.

    Raises:
        SequenceGap: the log no longer holds ``from_seqno``.
        CorruptSegment: acknowledged events are damaged or gone.
        UnknownSchema: written by another version.
        ConfigError: not a log directory.
    """
    paths = LogPaths(Path(directory))
    identity = Format.read(paths)
    mark, _ = read_watermark(paths.watermark)
    proven = mark.durable_seqno if mark is not None else 0
    segments = load_segments(paths, identity)
    if segments and from_seqno < segments[0].header.first_seqno:
        raise SequenceGap(
            f"expected event {from_seqno}, found a log that begins with "
            f"{segments[0].header.first_seqno} (retention); ask for that one or later"
        )
    before: Segment | None = None
    footer: Footer | None = None
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if not is_last and segments[number + 1].header.first_seqno <= from_seqno:
            continue
        fault = link_fault(before, footer, segment.header)
        if fault:
            raise refusal(Damage(segment.path, 0, "BROKEN_LINK", fault), "the next segment")
        scan = SegmentScan(segment.path, segment.header)
        for batch in scan.batches():
            skip = max(0, from_seqno - batch.header.first_seqno)
            if skip < batch.header.count:
                yield _as_events(segment, batch.offset, batch.words, skip)
        tail = scan.tail
        reached = tail.last_seqno >= max(proven, tail.synced_seqno)
        row = decide_tail(TailFacts(tail.kind, is_last, reached))
        if row.decision is Decision.REFUSE:
            found = tail.found or f"event {tail.last_seqno} followed by {tail.kind.value}"
            damage = Damage(segment.path, tail.offset, row.name, found)
            raise refusal(damage, f"events up to {proven}" if is_last else "a sealed segment")
        before, footer = segment, tail.footer


def _as_events(segment: Segment, offset: int, words: Words, skip: int) -> npt.NDArray[np.void]:
    events: npt.NDArray[np.void] = words.reshape(-1).view(EVENT_DTYPE)
    first = int(events["seqno"][0])
    if not np.array_equal(events["seqno"], np.arange(first, first + len(events), dtype=np.uint64)):
        damage = Damage(segment.path, offset, "BROKEN_BATCH", "seqnos that are not consecutive")
        raise refusal(damage, "consecutive events")
    return events[skip:]


def stored_projection(directory: Path) -> tuple[Format, Projection]:
    """A directory's identity, and the projection of the layout and sizes it was made with.

    Raises:
        ConfigError: not a log directory, or a layout this version does not accept.
        UnknownSchema: written by another version.
    """
    paths = LogPaths(Path(directory))
    identity = Format.read(paths)
    try:
        layout = CacheLayout.from_json(identity.layout)
        projection = core_projection(layout, ArenaParams(**identity.params))
    except (TypeError, KeyError, ValueError) as error:
        raise LogError(
            f"expected a layout and sizes in {paths.format}, found them damaged ({error!r}); "
            "restore the file from a copy of the directory"
        ) from error
    identity.check(paths, projection.layout_digest, projection.digest)
    return identity, projection


def open_replayed(
    directory: Path, shared_memory_root: Path = DEFAULT_ROOT
) -> tuple[Words, RecoveryReport]:
    """The state that opening a directory would recover; nothing is changed.

    Args:
        directory: a log directory.
        shared_memory_root: where its ring is.

    Returns:
        The arena, and what a recovery would report.

    Raises:
        ConfigError: not a log directory.
        CorruptSegment: acknowledged events are damaged or gone.
        UnknownSchema: written by another version.
    """
    paths = LogPaths(Path(directory))
    identity, projection = stored_projection(paths.root)
    place = place_of(paths.root, shared_memory_root)
    replayed: Replayed | None = None
    for _ in range(_ATTEMPTS):
        ring = map_ring(place.ring, mmap.ACCESS_READ)
        replayed = replay_log(paths, identity, projection, System(), ring)
        if replayed.report.ring != "UNREADABLE":
            break  # else a living writer drained the ring meanwhile: the segments now have it
    if replayed is None:
        raise RuntimeError("expected at least one attempt")
    return replayed.arena, replayed.report
