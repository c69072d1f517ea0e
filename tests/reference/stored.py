"""Stored objects of the reference: what lower tiers hold, as far as it was told."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Told:
    """What is known of one key."""

    row: int
    position: int
    block: int = 0  # a bit for each tier that holds it
    checkpoint: int = 0


class Stored:
    """A table of so many rows, in the order in which its keys were last told of."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.free = list(range(1, num_rows + 1))
        self.keys: dict[bytes, Told] = {}  # the one told of longest ago first
        self.forgotten = 0

    def tell(self, key: bytes, is_checkpoint: bool, tiers: int, position: int) -> None:
        """One object is in these tiers now and in no others."""
        told = self.keys.pop(key, None)
        if told is None:
            if not tiers or not self.num_rows:
                return
            if not self.free:
                oldest = next(iter(self.keys))
                self.free.insert(0, self.keys.pop(oldest).row)
                self.forgotten += 1
            told = Told(self.free.pop(0), position)
        if is_checkpoint:
            told.checkpoint = tiers
        else:
            told.block = tiers
        if told.block or told.checkpoint:
            self.keys[key] = told
        else:
            self.free.insert(0, told.row)

    def tiers_of(self, key: bytes, is_checkpoint: bool) -> int:
        told = self.keys.get(key)
        if told is None:
            return 0
        return told.checkpoint if is_checkpoint else told.block

    def observe(self) -> dict[str, Any]:
        return {
            "order": [key.hex() for key in self.keys],
            "keys": {
                key.hex(): (told.row, told.position, told.block, told.checkpoint)
                for key, told in sorted(self.keys.items())
            },
            "free": list(self.free),
        }
