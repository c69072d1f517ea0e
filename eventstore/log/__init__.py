"""The append-only event log: ring, segments, writer, recovery, snapshots.

Begin with :class:`EventLog`. docs/files.md says where everything lies, docs/recovery.md what
happens after a crash.
"""

from .chain import Damage
from .config import Durability, LogConfig
from .log import EventLog
from .projection import Projection, core_projection
from .reader import open_replayed, read_events
from .recovery import RecoveryReport
from .status import LogStatus, read_status
from .tmpfs import Place, check_room, place_of, tmpfs_dir

__all__ = [
    "Damage",
    "Durability",
    "EventLog",
    "LogConfig",
    "LogStatus",
    "Place",
    "Projection",
    "RecoveryReport",
    "check_room",
    "core_projection",
    "open_replayed",
    "place_of",
    "read_events",
    "read_status",
    "tmpfs_dir",
]
