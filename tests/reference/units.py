"""Units of the reference: blocks and images, their lists and their indexes."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Unit:
    """A block (one page of each history group) or an image (one page of each state group)."""

    state: str = "free"  # free, building, indexed, unindexed
    generation: int = 0
    pages: dict[int, int] = field(default_factory=dict)  # group → slot
    owner: int = 0  # row of the sequence that builds it
    place: int = 0  # of a block in its sequence
    references: int = 0
    key: bytes = b""
    position: int = 0
    parent: int = 0
    parent_key: bytes = b""
    canonical: int = 0
    duplicate: bool = False
    resumes: int = 0  # of an image: sequences that began on it

    def observe(self) -> dict[str, Any]:
        seen: dict[str, Any] = {"state": self.state, "generation": self.generation}
        if self.state != "free":
            seen |= {"pages": dict(self.pages), "references": self.references}
        if self.state == "building":
            seen |= {"owner": self.owner}
        if self.state in ("indexed", "unindexed"):
            seen |= {
                "key": self.key.hex(),
                "position": self.position,
                "parent": self.parent,
                "parent key": self.parent_key.hex(),
                "canonical": self.canonical,
                "resumes": self.resumes,
            }
        return seen


class Units:
    """All blocks, or all images: their lists and their index."""

    def __init__(self, groups: list[int], count: int) -> None:
        self.groups = groups
        self.units = {number: Unit() for number in range(1, count + 1)}
        self.free = list(range(1, count + 1))
        self.idle: list[int] = []
        self.limbo: list[int] = []
        self.index: dict[bytes, int] = {}

    def __getitem__(self, number: int) -> Unit:
        return self.units[number]

    @property
    def room(self) -> int:
        """How many can be had: free ones, and idle ones that can be evicted."""
        return len(self.free) + len(self.idle)

    def pin(self, number: int) -> None:
        if self[number].references == 0:
            self.idle.remove(number)
        self[number].references += 1

    def release(self, number: int) -> None:
        self[number].references -= 1
        if self[number].references == 0:
            if self[number].state == "indexed":
                self.idle.append(number)
            else:
                self.limbo.append(number)

    def move_to_front(self, number: int) -> None:
        """An idle unit becomes the next victim."""
        self.idle.remove(number)
        self.idle.insert(0, number)

    def withdraw(self, number: int) -> None:
        """Make an indexed unit unfindable; without references it waits in limbo."""
        unit = self[number]
        if unit.state != "indexed":
            return
        del self.index[unit.key]
        unit.state = "unindexed"
        if unit.references == 0:
            self.idle.remove(number)
            self.limbo.append(number)

    def observe(self) -> dict[str, Any]:
        return {
            "units": {number: unit.observe() for number, unit in self.units.items()},
            "free": list(self.free),
            "idle": list(self.idle),
            "limbo": list(self.limbo),
            "index": {key.hex(): number for key, number in sorted(self.index.items())},
            "next victim": self.idle[0] if self.idle else None,
        }
