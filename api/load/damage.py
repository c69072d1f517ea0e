"""Damage on purpose: a byte of a page, a byte of a stored object, both such as will be read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kvstrata import CacheManager, Kind, Request
from kvstrata.tiers.local import LocalStore

from ..demo.places import find_place, flip, flip_stored

__all__ = ["damage_object", "flip_page"]


def flip_page(manager: CacheManager, kind: Kind, requests: Iterable[Request]) -> str | None:
    """Flip bits in a page that the first of these requests that can would reuse.

    Returns:
        Which page, in words; None where none of them would reuse such a page now.

    Mutates: the pool.
    """
    for request in requests:
        plan = manager.match(request)
        if plan.load is not None or not plan.resume_at or not plan.checkpoint[0]:
            continue
        place = find_place(manager, request, kind)
        flip(manager, place)
        return f"{kind.name} page {place.group}/{place.page}"
    return None


def damage_object(manager: CacheManager, folder: Path, requests: Iterable[Request]) -> str | None:
    """Flip bits in a stored block that the first of these requests that loads would load.

    Returns:
        Which object, in words; None where none of them would load anything now.

    Mutates: a file of the tier.
    """
    size = manager.layout.block_tokens
    wanted = set()
    for request in requests:
        load = manager.match(request).load
        if load is not None and load.num_blocks:
            keys = request.keys(size)[load.first : load.first + load.num_blocks]
            wanted.add(keys[-1].tobytes().hex())
    if not wanted:
        return None
    store = LocalStore(folder)
    for stored in store.objects():
        name = Path(stored.name)
        is_wanted = name.suffix == ".block" and name.stem in wanted
        if is_wanted and flip_stored(store, stored) is None:
            return f"object {name.name}"
    return None
