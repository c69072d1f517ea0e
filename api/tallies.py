"""How many objects a store has, how big and how old, by namespace and kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from .sizes import format_bytes

if TYPE_CHECKING:
    from kvstrata.tiers.store import StoredObject

__all__ = ["Tally", "tally"]


@dataclass
class Tally:
    """The objects of one namespace and kind.

    Attributes:
        namespace: 32 hex digits.
        kind: block or checkpoint.
        num_objects: how many.
        num_bytes: of all of them.
        oldest_s: when the first was written, in seconds of the Unix epoch.
        newest_s: when the last was.
    """

    HEADER: ClassVar = ("namespace", "kind", "objects", "bytes", "oldest", "newest")

    namespace: str
    kind: str
    num_objects: int
    num_bytes: int
    oldest_s: float
    newest_s: float

    def cells(self) -> tuple[str, ...]:
        """As a row of a table for people, in local time."""
        times = (datetime.fromtimestamp(at_s) for at_s in (self.oldest_s, self.newest_s))
        return (
            self.namespace,
            self.kind,
            f"{self.num_objects:,}",
            format_bytes(self.num_bytes),
            *(time.isoformat(" ", "seconds") for time in times),
        )


def tally(objects: Iterable[StoredObject]) -> list[Tally]:
    """Count objects by their names, sorted by namespace and kind."""
    found: dict[tuple[str, str], Tally] = {}
    for stored in objects:
        of = stored.name.partition("/")[0], stored.name.rpartition(".")[2]
        at_s = stored.modified_s
        row = found.setdefault(of, Tally(*of, 0, 0, at_s, at_s))
        row.num_objects += 1
        row.num_bytes += stored.num_bytes
        row.oldest_s = min(row.oldest_s, at_s)
        row.newest_s = max(row.newest_s, at_s)
    return [found[of] for of in sorted(found)]
