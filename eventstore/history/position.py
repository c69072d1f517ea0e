"""Where a follower stands."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Position"]


@dataclass(frozen=True)
class Position:
    """Where a follower stands in its log.

    Attributes:
        seqno: of the last event applied, 0 before the first.
        durable_seqno: of the last event known durable.
        lag_events: durable events that are not applied yet.
        lag_seconds: for how long there have been some; 0.0 where there are none.
        event_time_ns: wall time of the last event applied, 0 before the first.
        segment_id: of the segment it reads, 0 before the first.
        epoch: id of the log, 32 hexadecimal digits; empty where there is no log yet.
        restarts: how often it began anew: the log was replaced, or events it had not read were
            pruned away.
        missed_events: how many of those were neither applied nor counted.
        applied_events: applied since this follower was made.
        apply_seconds: how long that took.
        replayed: whether it has been at the log's durable end once; before, its tally may stand
            below what another follower has shown already.
        error: why it does not go on, "" where it does.
    """

    seqno: int = 0
    durable_seqno: int = 0
    lag_events: int = 0
    lag_seconds: float = 0.0
    event_time_ns: int = 0
    segment_id: int = 0
    epoch: str = ""
    restarts: int = 0
    missed_events: int = 0
    applied_events: int = 0
    apply_seconds: float = 0.0
    replayed: bool = False
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)
