"""How a load or a store of one object ended."""

from dataclasses import dataclass
from typing import NamedTuple

from .format import Fault, Header

__all__ = ["LoadFailed", "Loaded", "Stored", "TierFaults"]

TierFaults = tuple[tuple[int, Fault], ...]
"""What went wrong on the way, in order: (index of the tier, fault)."""


class Loaded(NamedTuple):
    """All pages hold the object's bytes, and every check passed.

    Attributes:
        tier: index of the tier that served it; with single flight it may be a folder that was
            not in the mask.
        header: what the object says of itself.
        num_bytes: read from that tier, header and trailer included.
        seconds: from the call to the last check.
        faults: met on the way.
        gone: mask of the tiers that turned out not to have it any more.
        gained: mask of the folders that have it now, because this load put it there or found it.
    """

    tier: int
    header: Header
    num_bytes: int
    seconds: float
    faults: TierFaults = ()
    gone: int = 0
    gained: int = 0


@dataclass(frozen=True)
class LoadFailed:
    """No tier served the object; the pages hold anything.

    Attributes:
        fault: the last one met; why the load failed.
        faults: all of them.
        gone: mask of the tiers that turned out not to have it any more; a tier that is down may.
    """

    fault: Fault
    faults: TierFaults = ()
    gone: int = 0


@dataclass(frozen=True)
class Stored:
    """What became of writing one object to some tiers.

    Attributes:
        tiers: mask of those where it is whole now; 0 if it is nowhere.
        written: mask of those where this call wrote it.
        num_bytes: written by this call, all tiers together.
        seconds: that it took.
        faults: met on the way; they do not stop the other tiers.
    """

    tiers: int
    written: int
    num_bytes: int
    seconds: float
    faults: TierFaults = ()

    def joined(self, later: "Stored") -> "Stored":
        """What became of it in both of two goes."""
        return Stored(
            self.tiers | later.tiers,
            self.written | later.written,
            self.num_bytes + later.num_bytes,
            self.seconds + later.seconds,
            (*self.faults, *later.faults),
        )
