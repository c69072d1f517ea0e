"""What dead processes leave behind in a tier, and an index that differs from its store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .catalogue import Catalogue, Entry
from .checking import is_held
from .fields import Fault
from .rebuild import add_objects
from .store import Store, StoredObject

__all__ = ["Collected", "Garbage", "collect_garbage", "find_garbage"]


class Garbage(NamedTuple):
    """Where index and store differ.

    Attributes:
        rows: names of rows without an object.
        objects: without a row.
    """

    rows: tuple[str, ...]
    objects: tuple[StoredObject, ...]


class Collected(NamedTuple):
    """What a collection did.

    Attributes:
        num_temporaries: files of dead writers, removed.
        num_rows_removed: rows without an object.
        num_rows_added: for objects that had none.
        faults: objects that still have none, by name, and why.
    """

    num_temporaries: int
    num_rows_removed: int
    num_rows_added: int
    faults: tuple[tuple[str, Fault], ...]


def find_garbage(store: Store, rows: Iterable[Entry]) -> Garbage:
    """Compare an index with its store; changes nothing.

    Args:
        store: the tier's.
        rows: of the tier.

    Raises:
        StoreFault: the store does not answer.
    """
    named = {entry.name for entry in rows}  # read before the objects: these are written first
    objects = {stored.name: stored for stored in store.objects()}
    unlisted = sorted(named - objects.keys())
    lost = tuple(name for name in unlisted if not is_held(store, name))  # stored since, perhaps
    return Garbage(lost, tuple(objects[name] for name in sorted(objects.keys() - named)))


def collect_garbage(store: Store, catalogue: Catalogue, tier: str, owner: str = "") -> Collected:
    """Remove what dead writers left, and make the index agree with the store.

    An object without a row gets one and is not deleted: it is whole, and the next request may
    want it; the cap sees it from now on.

    Args:
        store: the tier's.
        catalogue: its index.
        tier: name of the tier.
        owner: for new rows.

    Raises:
        StoreError: store or catalogue does not answer.

    Mutates: store and catalogue.
    """
    num_temporaries = store.collect()
    garbage = find_garbage(store, catalogue.entries(tier))
    added, faults = add_objects(store, catalogue, tier, garbage.objects, owner)
    removed = catalogue.remove(tier, garbage.rows)
    return Collected(num_temporaries, len(removed), len(added), tuple(faults))
