"""Bytes that a request would reuse, found in the pools and flipped there, or in a folder."""

from __future__ import annotations

from typing import Any, Final

from kvstrata import CacheLayout, CacheManager, GroupSpec, Kind, KvstrataError, Request
from kvstrata.tiers.checking import describe
from kvstrata.tiers.format import Fault
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.store import StoredObject

from . import messages as m

__all__ = ["find_place", "flip", "flip_stored"]

_FLIPPED_BITS: Final = 0xF0
"""The bits of the byte that are flipped: those of its high half."""


def find_place(manager: CacheManager, request: Request, kind: Kind) -> m.Place:
    """Find a byte that a request would reuse: in its last block, or in its checkpoint.

    Args:
        manager: has pools.
        request: a request that resumes above 0.
        kind: COMPRESSED, INDEXER, SWA or TAIL.

    Returns:
        A byte of a row that the first step after the resume point reads.

    Raises:
        KvstrataError: the request would reuse nothing.
    """
    plan = manager.match(request)
    if not plan.resume_at:
        raise KvstrataError("expected a request that reuses pages, found one that reuses nothing")
    group = _group_of(manager.layout, kind)
    if group.is_history:
        block = int(plan.blocks[-1, 0])
        page = int(manager.tables.blocks.pages[block, manager.layout.group_id(group.name)])
    else:
        page = manager.slots_of_image(plan.checkpoint[0])[group.name]
    component, rows_before = {
        Kind.COMPRESSED: ("entry", group.rows),
        Kind.INDEXER: ("key", group.rows),
        Kind.SWA: ("kv", plan.resume_at),
        Kind.TAIL: ("overlap_kv", plan.resume_at // group.ratio),
    }[kind]
    pools = _pools(manager)
    view = pools.view(group.name, component)
    # In the first layer, since what changes in the last one alone is soon out of the window.
    row = view[page, 0, (rows_before - 1) % view.shape[2]].flatten()
    first = row.data_ptr() - pools.storage(group.name)[page].data_ptr()
    # The byte of a number that holds sign and exponent is its last, numbers being little-endian.
    offset = first + row.element_size() - 1
    return m.Place(kind, group.name, page, offset, plan.resume_at)


def flip(manager: CacheManager, place: m.Place) -> None:
    """Flip bits of one byte of a page, as a stray write would.

    Mutates: the pool.
    """
    _pools(manager).storage(place.group)[place.page, place.offset] ^= _FLIPPED_BITS


def flip_stored(store: LocalStore, stored: StoredObject) -> Fault | None:
    """Flip bits of one byte of the first page of a stored object, as a failing disk would.

    Returns:
        What was wrong with the object already; then nothing is flipped.

    Mutates: the object's file.
    """
    told = describe(store, stored)
    if isinstance(told, Fault):
        return told
    page = told.pages[0]
    with (store.root / "objects" / stored.name).open("r+b") as file:
        file.seek(page.offset + page.num_bytes // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ _FLIPPED_BITS]))
    return None


def _group_of(layout: CacheLayout, kind: Kind) -> GroupSpec:
    """The group of a kind whose every page is read: no index selects among its entries."""
    indexed = {group.ratio for group in layout.groups if group.kind is Kind.INDEXER}
    groups = [group for group in layout.groups if group.kind is kind]
    if kind is Kind.COMPRESSED:
        groups.sort(key=lambda group: group.ratio in indexed)
    if kind is Kind.TAIL:
        groups.sort(key=lambda group: not group.overlap)
    return groups[0]


def _pools(manager: CacheManager) -> Any:
    return manager.pools
