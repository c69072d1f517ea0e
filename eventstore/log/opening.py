"""Opening a directory for writing: recovered, settled, and an incarnation begun."""

from dataclasses import dataclass

from .config import LogConfig
from .cursors import Cursors
from .directory import LogPaths
from .identity import Format
from .maintenance import Maintenance
from .projection import Projection, Words
from .recovery import RecoveryReport, replay_log
from .ringfile import RingFile, begin_incarnation, make_ring, map_ring
from .settle import settle_log
from .sink import LogSink
from .system import System
from .tmpfs import Place, place_of
from .writer import LogWriter

__all__ = ["Opened", "open_directory"]


@dataclass(frozen=True)
class Opened:
    """The parts of an open log."""

    system: System
    paths: LogPaths
    config: LogConfig
    projection: Projection
    place: Place
    arena: Words
    report: RecoveryReport
    ring: RingFile
    incarnation: int
    cursors: Cursors
    maintenance: Maintenance
    sink: LogSink
    writer: LogWriter


def open_directory(
    system: System, paths: LogPaths, config: LogConfig, projection: Projection
) -> Opened:
    """Recover a directory and begin an incarnation.

    Args:
        system: the machine.
        paths: the directory, its folders made, locked by this process.
        config: the log's settings.
        projection: what to replay into.

    Raises:
        OSError: the device failed; nothing acknowledged is lost.
        KvstrataError: as :meth:`EventLog.open`.
    """
    if not paths.format.exists():
        identity = Format.new(
            projection.layout_digest, projection.digest, projection.layout, projection.params
        )
        identity.write(system, paths)
    identity = Format.read(paths)
    identity.check(paths, projection.layout_digest, projection.digest)
    place = place_of(paths.root, config.shared_memory_root)
    place.make(system, paths.root)
    survived = map_ring(place.ring)
    replayed = replay_log(paths, identity, projection, system, survived)
    end = settle_log(system, paths, identity, replayed, config.rank)
    if survived is not None and survived.capacity == config.ring_events:
        ring = survived
    else:
        ring = make_ring(system, place.ring, config.ring_events)
    incarnation = end.incarnation + 1
    cursors = Cursors(ring.words)
    maintenance = Maintenance(system, paths, identity, config, projection)
    # The segment before the ring: see RING_TABLE, OTHER_INCARNATION.
    sink = LogSink(
        system, paths, identity, config, ring, cursors, end, incarnation, maintenance.segment_sealed
    )
    begin_incarnation(ring, system, identity.log_id, end.last_seqno, incarnation)
    return Opened(
        system, paths, config, projection, place, replayed.arena, replayed.report, ring,
        incarnation, cursors, maintenance, sink, LogWriter(system, config, cursors, sink),
    )  # fmt: skip
