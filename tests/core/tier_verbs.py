"""The verbs of lower tiers, on the reference and on a subject: what is stored, and loads."""

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..reference.model import ReferenceCache
    from .cases import Case
    from .pair import Both

Object = tuple[bytes, bool, int, int]
"""Key, whether a checkpoint, tiers that hold it now, position."""

IN_ORDER = ("load", "drain_load", "end_load", "release_load")
"""Verbs whose events come in the reference's order however they are cut."""


class TierVerbs(ABC):
    """A part of :class:`.pair.Pair`."""

    case: "Case"
    reference: "ReferenceCache"
    seen: Counter[str]

    def __init__(self) -> None:
        self.loads: list[Both] = []

    @abstractmethod
    def _both(self, verb: str, arguments: Any, subject_arguments: Any) -> "Both | None":
        """Do it on the reference and on the subject, and compare them."""

    @abstractmethod
    def _on(self, thing: "Both", verb: str, *more: Any) -> "Both | None":
        """Do it to a thing of both."""

    def tell(self, kind: str, objects: list[Object]) -> None:
        self._both("tell", (kind, objects), (kind, objects))
        self.seen["forgotten"] += self.reference.stored.forgotten
        self.reference.stored.forgotten = 0

    def read_tiers(self, tiers: int) -> None:
        self._both("read_tiers", (tiers,), (tiers,))

    def load(self, plan: "Both") -> "Both | None":
        load = self._on(plan, "load")
        if load:
            self.loads.append(load)
            wanted = plan.reference.load
            self.seen["load of a checkpoint alone"] += wanted.num_blocks == 0
            self.seen["load of blocks alone"] += wanted.checkpoint_at == 0
            self.seen["load behind a prefix"] += len(plan.reference.blocks) > 0
        return load

    def drain_load(self, load: "Both", reason: str = "LOAD_CANCELLED") -> None:
        self._on(load, "drain_load", reason)

    def end_load(
        self, load: "Both", num_good: int, image_is_good: bool, reason: str = "OBJECT_MISSING"
    ) -> None:
        expected, blocks = load.reference, self.reference.blocks
        tainted, image = expected.sequence.tainted, expected.sequence.image
        known = expected.checkpoint_key in self.reference.images.index
        self._on(load, "end_load", num_good, image_is_good, reason)
        sealed = expected.sequence.blocks[len(expected.sequence.blocks) - num_good :]
        self.seen["loaded duplicate"] += any(blocks[block].canonical for block in sealed)
        self.seen["loaded in part"] += 0 < num_good < len(expected.keys)
        self.seen["loaded image that is here"] += bool(image and image_is_good and known)
        self.seen["loaded image"] += bool(image and image_is_good and not known)
        self.seen["load tainted"] += tainted and bool(num_good or image_is_good)

    def release_load(self, load: "Both") -> None:
        if self._on(load, "release_load"):
            self.loads.remove(load)

    def register(self, group: int) -> None:
        """A group is read in another form, and then again as before."""
        self._both("register", (group,), (group,))

    def count_loads_of_a_crash(self) -> None:
        for load in self.loads:
            if not load.reference.is_ended:
                is_drained = load.reference.is_drained
                self.seen["crash in a drain" if is_drained else "crash in a load"] += 1
        self.loads.clear()
