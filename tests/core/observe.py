"""An arena as the dicts and lists in which the reference shows itself, and where two differ."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvstrata.core import words
from kvstrata.core.arena import Units, open_tables
from kvstrata.core.states import PageState
from kvstrata.core.words import Arena

UNIT_STATES = {
    words.UNIT_FREE: "free",
    words.UNIT_BUILDING: "building",
    words.UNIT_INDEXED: "indexed",
    words.UNIT_UNINDEXED: "unindexed",
}


def key_hex(word_0: int, word_1: int) -> str:
    return np.array([word_0, word_1], dtype="<i8").tobytes().hex()


def follow(links: dict[int, tuple[int, int]], sentinel: int) -> list[int]:
    """Members of a circular list; its backward links must agree with its forward ones."""
    members = []
    at = links[sentinel][0]
    while at != sentinel:
        members.append(at)
        if len(members) > len(links):
            raise AssertionError(f"the list of row {sentinel} does not close")
        at = links[at][0]
    backwards = []
    at = links[sentinel][1]
    while at != sentinel and len(backwards) <= len(members):
        backwards.append(at)
        at = links[at][1]
    if backwards[::-1] != members:
        raise AssertionError(f"list of row {sentinel}: {members} forwards, {backwards} backwards")
    return members


def observe_pool(pool: list[int], rows: list[list[int]]) -> dict[str, Any]:
    rows = rows[pool[words.POOL_FIRST] : pool[words.POOL_FIRST] + pool[words.POOL_SLOTS]]
    links = {s: (row[words.PAGE_NEXT], row[words.PAGE_PREV]) for s, row in enumerate(rows)}
    counts = pool[words.POOL_COUNTS : words.POOL_COUNTS + len(PageState)]
    return {
        "pages": {
            slot: (
                PageState(row[words.PAGE_STATE]).name,
                row[words.PAGE_GENERATION],
                row[words.PAGE_UNIT],
            )
            for slot, row in enumerate(rows)
            if slot > 0
        },
        "free": follow(links, 0),
        "counts": {state.name: counts[state] for state in PageState},
    }


def parent_key(row: list[int]) -> str:
    word_0, word_1 = row[words.UNIT_PARENT_KEY_0], row[words.UNIT_PARENT_KEY_1]
    return key_hex(word_0, word_1) if row[words.UNIT_PARENT] else ""


def observe_unit(
    row: list[int], pages: list[int], first_group: int, is_block: bool
) -> dict[str, Any]:
    state = UNIT_STATES[row[words.UNIT_STATE]]
    seen: dict[str, Any] = {"state": state, "generation": row[words.UNIT_GENERATION]}
    if state != "free":
        held = {first_group + part: slot for part, slot in enumerate(pages) if slot}
        seen |= {"pages": held, "references": row[words.UNIT_REFS]}
    if state == "building":
        seen |= {"owner": row[words.UNIT_OWNER]}
    if state in ("indexed", "unindexed"):
        seen |= {
            "key": key_hex(row[words.UNIT_KEY_0], row[words.UNIT_KEY_1]),
            "position": row[words.UNIT_POSITION],
            "parent": row[words.UNIT_PARENT] if is_block else 0,
            "parent key": parent_key(row) if is_block else "",
            "canonical": row[words.UNIT_CANONICAL],
            "resumes": 0 if is_block else row[words.UNIT_RESUMES],
        }
    return seen


def observe_units(units: Units, first_group: int, *, is_block: bool) -> dict[str, Any]:
    rows, pages = units.rows.tolist(), units.pages.tolist()
    count = len(rows) - 3
    links = {n: (row[words.UNIT_NEXT], row[words.UNIT_PREV]) for n, row in enumerate(rows)}
    keys = {
        unit: key_hex(rows[unit][words.UNIT_KEY_0], rows[unit][words.UNIT_KEY_1])
        for unit in (units.places & 0xFFFF_FFFF).tolist()
        if unit
    }
    idle = follow(links, count + 1)
    return {
        "units": {
            n: observe_unit(rows[n], pages[n], first_group, is_block) for n in range(1, count + 1)
        },
        "free": follow(links, 0),
        "idle": idle,
        "limbo": follow(links, count + 2),
        "index": {key: unit for unit, key in sorted(keys.items(), key=lambda item: item[1])},
        "next victim": idle[0] if idle else None,
    }


def free_rows(holders: list[list[int]], first: int) -> list[int]:
    rows = []
    while first:
        rows.append(first)
        first = holders[first][words.HOLDER_NEXT]
    return rows


def observe_stored(arena: Arena) -> dict[str, Any]:
    view = open_tables(arena)
    rows = view.stored.tolist()
    links = {n: (row[words.STORED_NEXT], row[words.STORED_PREV]) for n, row in enumerate(rows)}
    order = follow(links, 0)
    names = {n: key_hex(rows[n][words.STORED_KEY_0], rows[n][words.STORED_KEY_1]) for n in order}
    free, row = [], int(view.meta[words.META_FREE_STORED])
    while row:
        free.append(row)
        row = rows[row][words.STORED_NEXT]
    return {
        "order": list(names.values()),
        "keys": {
            name: (
                n,
                rows[n][words.STORED_POSITION],
                rows[n][words.STORED_TIERS] & words.TIERS_MASK,
                rows[n][words.STORED_TIERS] >> words.CHECKPOINT_TIERS,
            )
            for n, name in sorted(names.items(), key=lambda item: item[1])
        },
        "free": free,
    }


def observe(arena: Arena) -> dict[str, Any]:
    """What the logged tables of an arena hold."""
    view = open_tables(arena)
    meta, holders = view.meta.tolist(), view.holders.tolist()
    blocks_of = view.holder_blocks.tolist()
    history = meta[words.META_NUM_HISTORY]
    rows = view.pages.tolist()
    last = meta[words.META_NUM_SEQUENCES]
    running = (words.HOLDER_SEQUENCE, words.HOLDER_DRAINING)
    return {
        "pools": [observe_pool(pool, rows) for pool in view.pools.tolist()],
        "blocks": observe_units(view.blocks, 0, is_block=True),
        "images": observe_units(view.images, history, is_block=False),
        "stored": observe_stored(arena),
        "sequences": {
            row: {
                "id": held[words.HOLDER_ID],
                "draining": held[words.HOLDER_KIND] == words.HOLDER_DRAINING,
                "tainted": held[words.HOLDER_TAINTED] != 0,
                "origin": (held[words.HOLDER_ORIGIN], held[words.HOLDER_ORIGIN_GENERATION]),
                "partial origin": (
                    held[words.HOLDER_PARTIAL_ORIGIN],
                    held[words.HOLDER_PARTIAL_GENERATION],
                ),
                "blocks": blocks_of[row][: held[words.HOLDER_BLOCKS]],
                "sealed": held[words.HOLDER_SEALED],
                "images": held[words.HOLDER_IMAGES :][: held[words.HOLDER_NUM_IMAGES]],
                "prompt": held[words.HOLDER_PROMPT],
                "seed": key_hex(held[words.HOLDER_SEED_0], held[words.HOLDER_SEED_1]),
            }
            for row, held in enumerate(holders)
            if 0 < row <= last and held[words.HOLDER_KIND] in running
        },
        "leases": {
            row: {
                "id": held[words.HOLDER_ID],
                "blocks": blocks_of[row][: held[words.HOLDER_BLOCKS]],
                "checkpoint": held[words.HOLDER_CHECKPOINT],
                "partial": held[words.HOLDER_PARTIAL],
            }
            for row, held in enumerate(holders)
            if row > last and held[words.HOLDER_KIND] == words.HOLDER_LEASE
        },
        "free sequence rows": free_rows(holders, meta[words.META_FREE_SEQUENCE]),
        "free lease rows": free_rows(holders, meta[words.META_FREE_LEASE]),
        "next holder": meta[words.META_NEXT_HOLDER],
    }


def differences(expected: Any, found: Any, at: str = "") -> Iterator[str]:
    """One line for each place where two observations differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in [*expected, *(name for name in found if name not in expected)]:
            if name not in found or name not in expected:
                where = "reference" if name in expected else "core"
                value = expected.get(name, found.get(name))
                yield f"{at}/{name}: only in the {where}: {value}"
            else:
                yield from differences(expected[name], found[name], f"{at}/{name}")
    elif (
        isinstance(expected, list)
        and isinstance(found, list)
        and len(expected) == len(found)
        and any(isinstance(item, dict) for item in expected)
    ):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{at}/{index}")
    elif expected != found:
        yield f"{at}: reference {expected}, core {found}"
