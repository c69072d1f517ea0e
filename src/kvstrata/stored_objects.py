"""What is stored in which tier, as this manager logs it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from kvstrata.core.events import EventType, Reason
from kvstrata.core.keys import key_words, words_key
from kvstrata.core.quarantine import note
from kvstrata.core.spilling import note_objects
from kvstrata.core.stored import tiers_of, tiers_of_all
from kvstrata.core.words import Arena
from kvstrata.tiers.format import ObjectId
from kvstrata.tiers.outcomes import Loaded, LoadFailed
from kvstrata.tiers.schema import POSITIONS

from .caller import CoreCaller, zeros
from .objects import Objects
from .shelves import Shelves

__all__ = ["StoredObjects"]

_TIER_SHIFT: Final = 24
"""Of the tier in an event's third word."""
_NOTES: Final = 64
"""Objects told of in one call."""


class StoredObjects:
    """Writes the table of stored objects, by events.

    Args:
        call: runs compiled calls.
        objects: tells how large objects are.
        shelves: whose catalogue is told of objects that are gone.
        num_tiers: how many tiers there are.
        failures: validation's counts, by layer, reason and group.
    """

    def __init__(
        self,
        call: CoreCaller,
        objects: Objects,
        shelves: Shelves,
        num_tiers: int,
        failures: Counter[tuple[int, str, str]],
    ) -> None:
        self._call = call
        self._objects = objects
        self._shelves = shelves
        self._num_tiers = num_tiers
        self._failures = failures

    def tiers(self, identity: ObjectId) -> int:
        """A bit for each tier that is known to hold an object."""
        key = key_words(identity.key)
        return int(tiers_of(self._call.arena, identity.is_checkpoint, *key))

    def add(self, objects: Sequence[tuple[ObjectId, int, int]]) -> None:
        """Log that objects lie in tiers: (identity, position, tiers), beside those known before.

        A position that no event can tell is no object's of ours: it is passed over.
        """
        objects = [one for one in objects if 0 <= one[1] < POSITIONS]
        if not objects:
            return
        identities = [identity for identity, _, _ in objects]
        rows = zeros(len(objects), 6)
        rows[:, :2] = np.frombuffer(b"".join(one.key for one in identities), "<i8").reshape(-1, 2)
        tiers = np.array([mask for _, _, mask in objects], dtype=np.int64)
        for is_checkpoint in (False, True):
            of_kind = np.array([one.is_checkpoint == is_checkpoint for one in identities])
            if of_kind.any():
                known = zeros(int(of_kind.sum()))
                keys = np.ascontiguousarray(rows[of_kind, :2])
                tiers_of_all(self._call.arena, is_checkpoint, keys, known)
                rows[of_kind, 2] = self._objects.schema().object_bytes(is_checkpoint)
                rows[of_kind, 3] = (known | tiers[of_kind]) << 32 | is_checkpoint << 48
        rows[:, 3] |= np.array([position for _, position, _ in objects], dtype=np.int64)
        rows[:, 4] = [mask.bit_length() for mask in tiers.tolist()]  # tier 0 is the device
        self._note(EventType.OBJECT_STORED, rows)

    def lacking(self, objects: list[tuple[ObjectId, int, int]]) -> list[tuple[ObjectId, int, int]]:
        """Those that lie in a tier of which it was not known: (identity, position, tiers)."""
        keys = np.frombuffer(b"".join(one.key for one, _, _ in objects), "<i8").reshape(-1, 2)
        known = {False: zeros(len(objects)), True: zeros(len(objects))}
        for is_checkpoint, masks in known.items():
            tiers_of_all(self._call.arena, is_checkpoint, keys, masks)
        return [
            one
            for number, one in enumerate(objects)
            if one[2] & ~int(known[one[0].is_checkpoint][number])
        ]

    def forget(self, objects: Iterable[tuple[ObjectId, int, Reason]]) -> None:
        """Log that objects are in these tiers no more."""
        rows = []
        for identity, tiers, reason in objects:
            before = self.tiers(identity)
            if before & tiers:
                row = zeros(6)
                self._fill(row, identity, 0, before & ~tiers, tiers.bit_length() - 1, reason)
                rows.append(row)
        if rows:
            self._note(EventType.OBJECT_REMOVED, np.stack(rows))

    def _fill(
        self,
        row: Arena,
        identity: ObjectId,
        position: int,
        tiers: int,
        changed: int,
        reason: Reason,
    ) -> None:
        row[:2] = key_words(identity.key)
        row[2] = self._objects.schema().object_bytes(identity.is_checkpoint)
        row[3] = position | tiers << 32 | identity.is_checkpoint << 48
        row[4], row[5] = changed + 1, int(reason)  # tier 0 is the device

    def _note(self, kind: EventType, rows: Arena) -> None:
        for at in range(0, len(rows), _NOTES):
            part = rows[at : at + _NOTES]
            self._call.run(note_objects, self._call.arena, self._call.ring, int(kind), part)

    def met(self, key: tuple[int, int], is_checkpoint: bool, result: Loaded | LoadFailed) -> None:
        """Log what was wrong with an object, forget where it is not, learn where it is now."""
        gained = result.gained if isinstance(result, Loaded) else 0
        if not (result.faults or result.gone or gained):
            return
        identity, arena = ObjectId(words_key(*key), is_checkpoint), self._call.arena
        for tier, fault in result.faults:
            if fault.reason is Reason.LOAD_CANCELLED:
                continue  # nothing was wrong with it
            payload = zeros(4)
            payload[:2] = key
            both = np.array([fault.expected & 2**64 - 1, fault.found & 2**64 - 1], dtype=np.uint64)
            payload[2:] = both.view(np.int64)
            kind = EventType.OBJECT_FAILED | (tier + 1) << _TIER_SHIFT
            reason = int(fault.reason)
            self._call.run(note, arena, self._call.ring, kind, fault.group, 0, reason, payload)
            self._failures[0, fault.reason.name, "disk"] += 1
        if result.gone:
            reason = result.faults[-1][1].reason if result.faults else Reason.OBJECT_MISSING
            for tier in range(self._num_tiers):
                if result.gone >> tier & 1:
                    self.forget([(identity, 1 << tier, reason)])
            self._shelves.uncatalogue(self._objects.schema(), identity, result.gone)
        if isinstance(result, Loaded):
            gained &= ~self.tiers(identity)
            if gained:
                self.add([(identity, result.header.position, gained)])
