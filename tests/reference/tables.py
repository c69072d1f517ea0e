"""Pages and pools of the reference, and what happens to pages and units.

Every change of a page and of a holder is written down as a dict in ``happened``, in order, so
that the events can be compared too.
"""

from dataclasses import dataclass
from typing import Any

from .units import Unit, Units
from .values import Sequence

NEXT_STATE = {
    ("FREE", "PAGE_RESERVED"): "RESERVED",
    ("RESERVED", "PAGE_WRITING"): "WRITING",
    ("RESERVED", "PAGE_LOADING"): "LOADING",
    ("OPEN", "PAGE_WRITING"): "WRITING",
    ("WRITING", "PAGE_OPENED"): "OPEN",
    ("WRITING", "PAGE_SEALED"): "SEALED",
    ("OPEN", "PAGE_SEALED"): "SEALED",
    ("LOADING", "PAGE_SEALED"): "SEALED",
    ("RESERVED", "PAGE_DRAINING"): "DRAINING",
    ("WRITING", "PAGE_DRAINING"): "DRAINING",
    ("OPEN", "PAGE_DRAINING"): "DRAINING",
    ("LOADING", "PAGE_DRAINING"): "DRAINING",
    ("DRAINING", "PAGE_FREED"): "FREE",
    ("SEALED", "PAGE_FREED"): "FREE",
    ("SEALED", "PAGE_QUARANTINED"): "QUARANTINED",
    ("QUARANTINED", "PAGE_FREED"): "FREE",
    ("RESERVED", "PAGE_LOST"): "FREE",
    ("WRITING", "PAGE_LOST"): "FREE",
    ("OPEN", "PAGE_LOST"): "FREE",
    ("LOADING", "PAGE_LOST"): "FREE",
    ("DRAINING", "PAGE_LOST"): "FREE",
    ("SEALED", "PAGE_LOST"): "FREE",
}
"""The transitions that the rules use."""

STATES = ("FREE", "RESERVED", "WRITING", "OPEN", "SEALED", "LOADING", "DRAINING", "QUARANTINED")


@dataclass
class Page:
    state: str = "FREE"
    generation: int = 0
    unit: int = 0


class Pool:
    """One group's pages 1 … slots-1 and the list of those free."""

    def __init__(self, slots: int) -> None:
        self.pages = {slot: Page() for slot in range(1, slots)}
        self.free = list(range(1, slots))

    def observe(self) -> dict[str, Any]:
        states = [page.state for page in self.pages.values()]
        return {
            "pages": {s: (p.state, p.generation, p.unit) for s, p in self.pages.items()},
            "free": list(self.free),
            "counts": {state: states.count(state) for state in STATES},
        }


class Tables:
    """Pools, blocks and images, and the moves that the rules make with them."""

    def __init__(self, slots: list[int], num_history: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.pools = [Pool(count) for count in slots]
        history, state = slots[:num_history], slots[num_history:]
        self.blocks = Units(list(range(num_history)), min(history) - 1)
        self.images = Units(list(range(num_history, len(slots))), min(state) - 1 if state else 0)
        self.happened: list[dict[str, Any]] = []
        self.orphans = 0  # blocks withdrawn because of the one they hang from

    def note(self, kind: str, **fields: Any) -> None:
        self.happened.append({"type": kind, **fields})

    def move(self, units: Units, number: int, group: int, kind: str, **fields: Any) -> None:
        """One page of a unit changes state; what follows from it follows at once."""
        unit = units[number]
        slot = unit.pages[group]
        page = self.pools[group].pages[slot]
        page.state = NEXT_STATE[page.state, kind]
        if page.state == "FREE":
            page.unit = 0
            self.pools[group].free.append(slot)
            del unit.pages[group]
        happened = {
            "group": group,
            "page": slot,
            "generation": page.generation,
            "state": page.state,
            "unit": number,
            "place": unit.place,
            "references": 0 if page.state == "FREE" else unit.references,
            **fields,
        }
        self.note(kind, **happened)

    def move_all(self, units: Units, number: int, kind: str, **fields: Any) -> None:
        for group in units.groups:
            self.move(units, number, group, kind, **fields)

    def state_of(self, units: Units, number: int) -> str:
        """State that all pages of a unit share."""
        pages = units[number].pages
        (state,) = {self.pools[group].pages[slot].state for group, slot in pages.items()}
        return state

    def reserve(self, units: Units, owner: int, place: int = 0, **fields: Any) -> int:
        """Take the first free unit and the first free page of each of its pools."""
        number = units.free.pop(0)
        unit = units[number]
        unit.state, unit.owner, unit.place, unit.references = "building", owner, place, 1
        unit.generation += 1
        for group in units.groups:
            slot = self.pools[group].free.pop(0)
            unit.pages[group] = slot
            page = self.pools[group].pages[slot]
            page.unit = number
            page.generation += 1
            self.move(units, number, group, "PAGE_RESERVED", **fields)
        return number

    def forget(self, units: Units, number: int) -> None:
        """All pages of a unit are free: give its id back."""
        units.units[number] = Unit(generation=units[number].generation)
        units.free.append(number)

    def make_room(self, units: Units, wanted: int) -> None:
        while len(units.free) < wanted:
            number = units.idle.pop(0)
            del units.index[units[number].key]
            self.move_all(units, number, "PAGE_FREED", reason="EVICTED")
            self.forget(units, number)

    def empty_limbo(self) -> None:
        for units in (self.blocks, self.images):
            while units.limbo:
                number = units.limbo.pop(0)
                reason = "DUPLICATE" if units[number].duplicate else "UNREFERENCED"
                self.move_all(units, number, "PAGE_FREED", reason=reason)
                self.forget(units, number)

    def seal_block(
        self, number: int, key: bytes, parent: int, *, tainted: bool, **fields: Any
    ) -> None:
        unit = self.blocks[number]
        self.move_all(
            self.blocks, number, "PAGE_SEALED", key=key, parent=parent, tainted=tainted, **fields
        )
        unit.key, unit.parent = key, parent
        unit.parent_key = self.blocks[parent].key if parent else b""
        unit.position = (unit.place + 1) * self.block_tokens
        if tainted:
            unit.state = "unindexed"
        elif key not in self.blocks.index:
            unit.state = "indexed"
            self.blocks.index[key] = number
        else:
            unit.state, unit.duplicate = "unindexed", True
            unit.canonical = self.blocks.index[key]
            self.blocks.pin(unit.canonical)

    def seal_image(
        self,
        number: int,
        key: bytes,
        position: int,
        sequence: Sequence,
        *,
        may_be_known: bool = False,
    ) -> None:
        """Seal an image that the sequence owned."""
        unit = self.images[number]
        self.move_all(self.images, number, "PAGE_SEALED", key=key, parent=position)
        unit.key, unit.position, unit.owner = key, position, 0
        if key not in self.images.index:
            unit.state = "indexed"
            self.images.index[key] = number
        elif may_be_known:
            unit.state = "unindexed"
        else:
            raise AssertionError("a checkpoint was sealed under a key that has one")
        self.images.release(number)
        self.happened[-1]["references"] = 0
        self.happened[-1]["superseded"] = self.supersede(sequence)

    def supersede(self, sequence: Sequence) -> bool:
        """The checkpoint that nobody but this sequence resumed from is the next victim."""
        if sequence.origin is None:
            return False
        number, generation = sequence.origin
        unit = self.images[number]
        if (
            unit.state != "indexed"
            or unit.generation != generation
            or unit.references > 0
            or unit.resumes != 1
        ):
            return False
        self.images.move_to_front(number)
        return True

    def give_up(self, units: Units, number: int, in_flight: bool, **fields: Any) -> None:
        """Drop an unsealed unit; while steps may touch its pages they drain."""
        for group in units.groups:
            self.move(units, number, group, "PAGE_DRAINING", **fields)
            if not in_flight:
                self.move(units, number, group, "PAGE_FREED", **fields)
        if not in_flight:
            self.forget(units, number)

    def observe(self) -> dict[str, Any]:
        return {
            "pools": [pool.observe() for pool in self.pools],
            "blocks": self.blocks.observe(),
            "images": self.images.observe(),
        }
