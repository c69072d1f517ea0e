"""Layout, pools, sequences, leases, segments, tiers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from ..asking import KeyPath, Limit
from ..models.base import Listing
from ..models.cache import Layout, Lease, Pool, Segment, Sequence, StoredObject, Tiers
from ..problems import Problem
from ..state import Server, Viewer, last_seqno
from ..views import holders, morphology, summaries
from ..views.words import key_words_of

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["cache"])


@router.get("/layout", response_model=Layout)
def layout(server: Server, who: Viewer) -> dict[str, Any]:
    """What the cache was made for: groups, block, sizes."""
    found, params = server.layout, server.follower.params
    return {
        "log_id": server.epoch,
        "name": found.name,
        "digest": found.digest().hex(),
        "num_layers": found.num_layers,
        "block_tokens": found.block_tokens,
        "rollback_tokens": found.rollback_tokens,
        "replay_tokens": found.replay_tokens,
        "block_bytes": found.block_bytes,
        "image_bytes": found.image_bytes,
        "groups": [
            {
                "id": number,
                "name": group.name,
                "kind": group.kind.name,
                "layers": list(group.layers),
                "ratio": group.ratio,
                "window_tokens": group.window,
                "page_bytes": group.page_bytes,
                "is_history": group.is_history,
                "components": [
                    {
                        "name": part.name,
                        "dtype": part.dtype,
                        "rows": part.rows,
                        "shape": list(part.shape),
                    }
                    for part in group.components
                ],
            }
            for number, group in enumerate(found.groups)
        ],
        "sizes": {
            "slots": dict(params.slots),
            "max_sequences": params.max_sequences,
            "max_leases": params.max_leases,
            "max_blocks_per_sequence": params.max_blocks_per_sequence,
            "images_per_sequence": params.images_per_sequence,
            "stored_keys": params.stored_keys,
        },
    }


@router.get("/pools", response_model=Listing[Pool])
def pools(server: Server, who: Viewer) -> dict[str, Any]:
    """Every pool with its pages by state."""
    with server.tables() as tables:
        return {"items": summaries.pools(tables, server.layout), "seqno": last_seqno(tables)}


@router.get("/sequences", response_model=Listing[Sequence])
def sequences(server: Server, who: Viewer, paging: Limit) -> dict[str, Any]:
    """Sequences that run now, by row."""
    start = paging.start("sequences")
    with server.tables() as tables:
        found = holders.sequences(tables, start, paging.limit)
        seqno = last_seqno(tables)
    return _listing(found, seqno, paging, "sequences")


@router.get("/leases", response_model=Listing[Lease])
def leases(server: Server, who: Viewer, paging: Limit) -> dict[str, Any]:
    """Leases held outside sequences, operators' pins among them."""
    start = paging.start("leases")
    with server.tables() as tables:
        found = holders.leases(tables, start, paging.limit)
        seqno = last_seqno(tables)
    return _listing(found, seqno, paging, "leases")


@router.get("/segments/{key}", response_model=Segment)
def segment(server: Server, who: Viewer, key: KeyPath) -> dict[str, Any]:
    """All groups of one token segment side by side: its block, its checkpoint, what goes on."""
    names = server.tier_names
    with server.tables() as tables:
        found = morphology.segment_of(tables, server.layout, key_words_of(key), names)
        seqno = last_seqno(tables)
    if found is None:
        raise Problem(404, f"expected a prefix that is here or in a tier, found none of key {key}")
    return {**found, "seqno": seqno}


@router.get("/tiers", response_model=Tiers)
def tiers(server: Server, who: Viewer) -> dict[str, Any]:
    """What is stored below the device, and how loads and spills went."""
    names = server.tier_names
    with server.tables() as tables:
        found = summaries.tiers(tables, server.follower.tally, names)
        return {**found, "seqno": last_seqno(tables)}


@router.get("/tiers/objects", response_model=Listing[StoredObject])
def objects(
    server: Server,
    who: Viewer,
    paging: Limit,
    tier: Annotated[
        str | None, Query(max_length=128, description="Only what lies in this tier.")
    ] = None,
) -> dict[str, Any]:
    """Keys whose block or checkpoint lies below the device."""
    names = server.tier_names
    if tier is not None and tier not in names:
        known = ", ".join(names) or "none"
        raise Problem(404, f"tier: expected one of those below the device ({known}), found another")
    question = f"objects {tier}"
    number = None if tier is None else names.index(tier)
    start = paging.start(question)
    with server.tables() as tables:
        found = summaries.stored_objects(tables, names, number, start, paging.limit)
        seqno = last_seqno(tables)
    return _listing(found, seqno, paging, question)


def _listing(
    found: list[tuple[int, dict[str, Any]]], seqno: int, paging: Limit, question: str
) -> dict[str, Any]:
    place = found[-1][0] + 1 if len(found) == paging.limit else 0
    return {
        "items": [fields for _, fields in found],
        "next": paging.next(place, question),
        "seqno": seqno,
    }
