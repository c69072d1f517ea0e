"""A catalogue made anew from the objects: each says in its header what its row has to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kvstrata.core.events import Reason

from .catalogue import Catalogue, Entry
from .checking import describe, is_held
from .fields import Fault
from .store import Store, StoredObject

__all__ = ["Progress", "Rebuilt", "add_objects", "entry_of", "rebuild", "silent"]

Progress = Callable[[int, int], None]
"""Called after each object with how many are done, and of how many."""

_BATCH: Final = 500


class Rebuilt(NamedTuple):
    """What a rebuild did.

    Attributes:
        num_objects: rows that the catalogue has for them now.
        num_bytes: of these objects.
        num_removed: rows removed, whose object is gone or not readable.
        faults: objects without a row, by name, and why.
    """

    num_objects: int
    num_bytes: int
    num_removed: int
    faults: tuple[tuple[str, Fault], ...]


def silent(_done: int, _total: int) -> None:
    """Tell nobody of the progress."""


def entry_of(store: Store, stored: StoredObject, tier: str, owner: str) -> Entry | Fault:
    """The row of an object, by its header; used and created are when it was written.

    Args:
        store: where it is.
        stored: as the store lists it.
        tier: name of the tier.
        owner: for the row; a header does not tell who wrote it.

    Raises:
        StoreFault: the store as a whole does not answer.
    """
    told = describe(store, stored)
    if isinstance(told, Fault):
        return told
    header, at_s = told.header, stored.modified_s
    key, is_checkpoint = header.identity
    return Entry(
        told.namespace, stored.name, is_checkpoint, key, header.parent, header.position,
        stored.num_bytes, tier, owner, at_s, at_s,
    )  # fmt: skip


def rebuild(
    store: Store, catalogue: Catalogue, tier: str, owner: str = "", progress: Progress = silent
) -> Rebuilt:
    """Make a tier's rows anew from its objects.

    Engines may go on meanwhile. A row that is there keeps its owner and its last use, so that
    what is evicted next stays the same.

    Args:
        store: the tier's.
        catalogue: rows of other tiers stay as they are.
        tier: name of the tier.
        owner: for new rows.
        progress: told after each object.

    Raises:
        StoreError: the store or the catalogue does not answer; rows added so far stay.

    Mutates: the catalogue.
    """
    before = [entry.name for entry in catalogue.entries(tier)]
    objects = list(store.objects())
    entries, faults = add_objects(store, catalogue, tier, objects, owner, progress)
    bad = {name for name, _ in faults}
    held = {entry.name for entry in entries}
    rest = [name for name in before if name not in held]
    gone = [name for name in rest if name in bad or not is_held(store, name)]
    removed = catalogue.remove(tier, gone)
    num_bytes = sum(entry.num_bytes for entry in entries)
    return Rebuilt(len(entries), num_bytes, len(removed), tuple(faults))


def add_objects(
    store: Store,
    catalogue: Catalogue,
    tier: str,
    objects: Sequence[StoredObject],
    owner: str = "",
    progress: Progress = silent,
) -> tuple[list[Entry], list[tuple[str, Fault]]]:
    """Add rows for objects, by their headers.

    Args:
        store: the tier's.
        catalogue: gets the rows.
        tier: name of the tier.
        objects: as the store lists them; those that have gone meanwhile are passed over.
        owner: for new rows.
        progress: told after each object.

    Returns:
        The rows added, and the objects that got none, by name, and why.

    Raises:
        StoreError: the store or the catalogue does not answer; rows added so far stay.

    Mutates: the catalogue.
    """
    entries: list[Entry] = []
    faults: list[tuple[str, Fault]] = []
    num_added = 0
    for done, stored in enumerate(objects, 1):
        found = entry_of(store, stored, tier, owner)
        if isinstance(found, Entry):
            entries.append(found)
        elif found.reason is not Reason.OBJECT_MISSING:
            faults.append((stored.name, found))
        if len(entries) - num_added == _BATCH:
            catalogue.add(entries[num_added:])
            num_added = len(entries)
        progress(done, len(objects))
    catalogue.add(entries[num_added:])
    return entries, faults
