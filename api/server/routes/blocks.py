"""Pages: listed, one in full, and its history."""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from kvstrata.core.layout import Kind
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_SEQNO, POOL_SLOTS

from ..asking import GroupName, Limit, PageSlot
from ..eventrows import event_rows
from ..logreader import Wanted, read_backwards
from ..models.base import KindName, Listing, StateName
from ..models.cache import Block, BlockDetails
from ..models.history import Events
from ..problems import Problem
from ..state import Server, ServerState, Viewer, last_seqno
from ..views import morphology, pages
from ..views.words import key_words_of, time_or_none

__all__ = ["router"]

router = APIRouter(prefix="/v1/blocks", tags=["blocks"])
_NOWHERE = -1  # the number of a group that no page has


@router.get("", response_model=Listing[Block])
def blocks(
    server: Server,
    who: Viewer,
    paging: Limit,
    group: Annotated[
        list[Annotated[str, Query(max_length=128)]] | None,
        Query(max_length=64, description="Only of these groups."),
    ] = None,
    kind: Annotated[list[KindName] | None, Query(description="Only of these kinds.")] = None,
    state: Annotated[
        list[StateName] | None, Query(description="Only in these states; all but FREE if none.")
    ] = None,
    tier: Annotated[
        str | None,
        Query(max_length=128, description="device, or a tier where the page's object lies too."),
    ] = None,
    sequence: Annotated[
        int | None, Query(ge=1, lt=2**53, description="Held by this sequence or lease.")
    ] = None,
    key: Annotated[
        str | None, Query(pattern="^[0-9a-f]{32}$", description="Of this prefix.")
    ] = None,
    min_age_s: Annotated[
        float | None, Query(ge=0, le=1e10, description="Changed longer ago.")
    ] = None,
    max_age_s: Annotated[float | None, Query(ge=0, le=1e10, description="Changed since.")] = None,
) -> JSONResponse:
    """Pages of all pools, by group and slot.

    While pages are asked for, the log may go on: each page is given at most once, and each that is
    there all the while is given.
    """
    names = server.tier_names
    groups = _groups(server, group, kind)
    asked = pages.PageQuestion(
        groups,
        tuple(PageState[name] for name in state or ()),
        _tier(names, tier),
        sequence,
        None if key is None else key_words_of(key),
        None if max_age_s is None else server.clock.seqno_at(time.time() - max_age_s),
        None if min_age_s is None else server.clock.seqno_at(time.time() - min_age_s),
    )
    question = f"blocks {groups} {asked.states} {tier} {sequence} {key} {min_age_s} {max_age_s}"
    start = paging.start(question)
    with server.tables() as tables:
        indices = pages.find_pages(tables, asked, start, paging.limit)
        rows = pages.take_rows(tables, indices)
        seqno = last_seqno(tables)
    times_s = server.clock.times_s(rows.pages[:, PAGE_SEQNO])
    items = pages.describe_rows(rows, server.layout, names, times_s, time.time())
    place = int(indices[-1]) + 1 if len(indices) == paging.limit else 0
    # As it is: checking a thousand rows against the model costs more than finding them.
    return JSONResponse({"items": items, "next": paging.next(place, question), "seqno": seqno})


def _groups(
    server: ServerState, names: list[str] | None, kinds: list[KindName] | None
) -> tuple[int, ...]:
    if not names and not kinds:
        return ()
    wanted = [server.group_id(name) for name in names or ()] or range(len(server.layout.groups))
    allowed = {Kind[kind] for kind in kinds or ()} or set(Kind)
    found = {number for number in wanted if server.layout.groups[number].kind in allowed}
    return tuple(sorted(found)) or (_NOWHERE,)


def _tier(names: tuple[str, ...], tier: str | None) -> int | None:
    known = ("device", *names)
    if tier is None:
        return None
    if tier not in known:
        raise Problem(404, f"tier: expected one of {', '.join(known)}, found another")
    return known.index(tier)


@router.get("/{group}/{page}", response_model=BlockDetails)
def block(server: Server, who: Viewer, group: GroupName, page: PageSlot) -> dict[str, Any]:
    """The full morphology of one page."""
    number = server.group_id(group)
    names = server.tier_names
    with server.tables() as tables:
        index = pages.page_index(tables, number, page)
        if index is None:
            most = int(tables.pools[number, POOL_SLOTS]) - 1
            raise Problem(404, f"page: expected 1 to {most} in {group}, found {page}")
        rows = pages.take_rows(tables, np.array([index], dtype=np.int64))
        details = morphology.page_details(tables, server.layout, index, number)
    used = details["unit"]["last_use_seqno"] or 0 if details["unit"] else 0
    changed = int(rows.pages[0, PAGE_SEQNO])
    times_s = server.clock.times_s(np.array([changed, used], dtype=np.int64))
    now_s = time.time()
    [row] = pages.describe_rows(rows, server.layout, names, times_s[:1], now_s)
    return {**row, **details, "last_use_s": time_or_none(now_s - float(times_s[1]))}


@router.get("/{group}/{page}/history", response_model=Events, response_model_exclude_none=True)
def history(
    server: Server, who: Viewer, group: GroupName, page: PageSlot, paging: Limit
) -> dict[str, Any]:
    """What the log says of one page, newest first, as far back as it reaches."""
    number = server.group_id(group)
    question = f"history {group} {page}"
    position = server.follower.position()
    before = paging.start(question) or position.seqno + 1
    found = read_backwards(
        server.directory,
        before,
        Wanted(group=number, page=page),
        paging.limit,
        server.settings.scan_events,
    )
    return {
        "items": event_rows(found.events, found.wall_ns, server.group_names),
        "next": paging.next(found.next_seqno, question),
        "first_seqno": found.first_seqno,
        "durable_seqno": position.durable_seqno,
    }
