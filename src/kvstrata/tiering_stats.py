"""What lower tiers hold and do, for people and metrics."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kvstrata.core.words import CHECKPOINT_TIERS, STORED_TIERS, TIERS_MASK, Arena
from kvstrata.tiers.jobs import WorkerStats

__all__ = ["TieringStats", "count_stored"]


@dataclass(frozen=True)
class TieringStats:
    """The lower tiers at one moment.

    Attributes:
        stored: objects known by tier, ``blocks`` and ``checkpoints``.
        tiers: what each tier did and how it stands; see :class:`kvstrata.tiers.counters.TierStats`.
        workers: threads, queues, waits; None where there are no bytes.
        loads: loads by how they ended, ``joined`` requests, ``deadline_expired`` waiters.
        loads_in_flight: now.
        longest_load_s: from a load's admission until its pages were sealed.
        spills: objects by what became of them.
        spills_waiting: units that wait, and objects being written.
        looked_up: objects ``found`` in the tiers that this manager had not known there.
        trimmed: objects that went because they were ``expired`` or ``over_cap``; those of them
            that had ``drifted``, gone behind our back; those that ``failed`` to go; ``rounds``.
        catalogue_errors: times that the catalogue did not answer.
    """

    stored: dict[str, dict[str, int]]
    tiers: dict[str, dict[str, Any]]
    workers: WorkerStats | None
    loads: dict[str, int]
    loads_in_flight: int
    longest_load_s: float
    spills: dict[str, int]
    spills_waiting: int
    looked_up: dict[str, int]
    trimmed: dict[str, int]
    catalogue_errors: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def count_stored(stored: Arena, names: list[str]) -> dict[str, dict[str, int]]:
    """Blocks and checkpoints by tier, out of the table of stored objects."""
    masks = stored[1:, STORED_TIERS]

    def count(bits: Arena, tier: int) -> int:
        return int(np.count_nonzero(bits & TIERS_MASK & (1 << tier)))

    return {
        name: {
            "blocks": count(masks, tier),
            "checkpoints": count(masks >> CHECKPOINT_TIERS, tier),
        }
        for tier, name in enumerate(names)
    }
