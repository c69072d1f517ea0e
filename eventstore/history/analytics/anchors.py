"""Wall time of events by the headers of their segments, and the stretch of them to read."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kvstrata.eventstore.log import read_events
from kvstrata.eventstore.log.chain import Segment, load_segments
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.identity import Format

__all__ = ["Anchors", "durable_events"]

Events = npt.NDArray[np.void]


class Anchors:
    """Tells events' wall time by the clocks in the headers of their segments.

    Args:
        directory: a log directory. Segments begun later are told by the last one known: they are
            of the same life of the machine, unless it restarted in this moment.
    """

    def __init__(self, directory: Path) -> None:
        paths = LogPaths(directory)
        self.segments: list[Segment] = load_segments(paths, Format.read(paths))
        headers = [segment.header for segment in self.segments]
        self._first = np.array([header.first_seqno for header in headers], dtype=np.uint64)
        self._begun_ns = [header.realtime_ns for header in headers]
        self._offset = np.array(
            [header.realtime_ns - header.monotonic_ns for header in headers], dtype=np.int64
        )

    @property
    def first_seqno(self) -> int:
        """The first event the log holds; 1 where it holds none."""
        return int(self._first[0]) if len(self._first) else 1

    def wall_ns(self, events: Events) -> npt.NDArray[np.int64]:
        """Nanoseconds since 1970, int64[n], of EVENT_DTYPE[n] events of this log."""
        place = np.searchsorted(self._first, events["seqno"], side="right") - 1
        found: npt.NDArray[np.int64] = (
            events["time_ns"].astype(np.int64) + self._offset[np.maximum(place, 0)]
        )
        return found

    def seqno_before(self, wall_ns: int) -> int:
        """A seqno, of the beginning of a segment, before which all is older than a moment."""
        seqno = self.first_seqno
        for number, begun_ns in enumerate(self._begun_ns):
            if begun_ns > wall_ns:
                break
            seqno = int(self._first[number])
        return seqno


def durable_events(directory: Path, from_seqno: int, to_seqno: int) -> Iterator[Events]:
    """Stored events from one to another, both included, a batch at a time.

    Raises:
        SequenceGap: the log no longer holds the first one.
        CorruptSegment: acknowledged events are damaged or gone.
    """
    if to_seqno < from_seqno:
        return
    for batch in read_events(directory, from_seqno):
        left = to_seqno - int(batch["seqno"][0]) + 1
        if left < len(batch):
            if left > 0:
                yield batch[:left]
            return
        yield batch
