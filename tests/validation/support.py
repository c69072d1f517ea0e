"""A manager of seven groups over private pools, and what it logged, for tests of validation."""

from typing import Any

import numpy as np

from kvstrata import CacheManager, RankGroup, Request
from kvstrata.core.arena import Units
from kvstrata.core.events import EVENT_DTYPE, EVENT_WORDS, EventType, Reason, decode_payload
from kvstrata.core.ring import RING_HEAD, RING_HEADER_WORDS
from kvstrata.core.words import POOL_FIRST, Arena
from tests.face.support import config, hit, request, serve
from tests.system.seven_groups import GROUPS, HISTORY, LAYOUT, SLOTS, STATES, flip, slot_of

SHORT, WANTED = request("damaged", 50), request("damaged", 90)
"""A prompt with a checkpoint at 48, and a longer one with a checkpoint at 80; blocks of 16."""


def open_cache(ranks: RankGroup | None = None, **changes: Any) -> CacheManager:
    """Seven groups, bytes of no pattern, no log directory."""
    settings = config({"ring_events": 4096}, **({"slots": SLOTS} | changes))
    cache = CacheManager.open(LAYOUT, settings, None, "private", ranks)
    assert cache.pools is not None
    for name in GROUPS:
        cache.pools.storage(name).random_()
    return cache


def filled(ranks: RankGroup | None = None, **changes: Any) -> CacheManager:
    """Checkpoints at 48 and 80 of one prompt; the pages of one unit have different slots."""
    cache = open_cache(ranks, **changes)
    for number in range(12):
        serve(cache, request(f"before {number}", 90))
    for wanted in (SHORT, WANTED):
        serve(cache, wanted)
    assert hit(cache, WANTED) == (80, 80)
    return cache


class Log:
    """Events of a manager without a directory, read from its ring as they come."""

    def __init__(self, cache: CacheManager) -> None:
        self._ring = cache._call.ring
        self._seen = int(self._ring[RING_HEAD])

    def new(self, *kinds: EventType) -> list[tuple[Any, dict[str, Any]]]:
        """Events since the last look, of these kinds, each with its payload."""
        words = self._ring[RING_HEADER_WORDS:].reshape(-1, EVENT_WORDS)
        seqnos = np.arange(self._seen, int(self._ring[RING_HEAD]))
        assert len(seqnos) <= len(words), "more events than the ring holds: some are lost"
        self._seen = int(self._ring[RING_HEAD])
        events = np.ascontiguousarray(words[seqnos % len(words)]).reshape(-1).view(EVENT_DTYPE)
        return [
            (event, decode_payload(event))
            for event in events
            if not kinds or event["type"] in kinds
        ]


def page_row(cache: CacheManager, group: str, slot: int) -> Arena:
    """The words of one page, to look at or to damage."""
    first = int(cache.tables.pools[GROUPS.index(group), POOL_FIRST])
    row: Arena = cache.tables.pages[first + slot]
    return row


def _unit_of(cache: CacheManager, wanted: Request, group: str, block: int) -> tuple[Units, int]:
    """A hit's block, or its checkpoint, whichever the group belongs to."""
    plan = cache.match(wanted)
    if group in HISTORY:
        return cache.tables.blocks, int(plan.blocks[block, 0])
    return cache.tables.images, plan.checkpoint[0]


def unit_row(cache: CacheManager, wanted: Request, group: str, block: int = -1) -> Arena:
    """The words of a hit's block, or of its checkpoint."""
    units, number = _unit_of(cache, wanted, group, block)
    row: Arena = units.rows[number]
    return row


def pages_of(cache: CacheManager, wanted: Request, group: str, block: int = -1) -> Arena:
    """The slots of a hit's block, or of its checkpoint: one a group of its side."""
    units, number = _unit_of(cache, wanted, group, block)
    slots: Arena = units.pages[number]
    return slots


def part_of(group: str) -> int:
    """The group's place among the groups of its side."""
    return (HISTORY if group in HISTORY else STATES).index(group)


def explained(cache: CacheManager, *parts: str) -> tuple[str, int, int]:
    """What explain says will happen; it names these parts, and changes nothing."""
    before = cache.arena.copy()
    failures = dict(cache.validator.failures)
    explanation = cache.explain(WANTED)
    assert np.array_equal(cache.arena, before)
    assert dict(cache.validator.failures) == failures
    told = [way.verdict for way in explanation.ways] + [explanation.limited]
    assert any(all(part in line for part in parts) for line in told), told
    return explanation.source, explanation.resume_at, explanation.reused_tokens


def begun(cache: CacheManager, expected: tuple[str, int, int]) -> tuple[str, int, int]:
    """Begin as explained, give up; what was begun on."""
    plan = (sequence := cache.begin(cache.match(WANTED))).plan
    sequence.cancel()
    found = plan.source, plan.resume_at, plan.reused_tokens
    assert found == expected
    return found


def counted(layer: int, reason: Reason, group: str) -> str:
    return f"{layer}/{reason.name.lower()}/{group}"


__all__ = [
    "GROUPS",
    "HISTORY",
    "LAYOUT",
    "SHORT",
    "STATES",
    "WANTED",
    "Log",
    "begun",
    "counted",
    "explained",
    "filled",
    "flip",
    "open_cache",
    "page_row",
    "pages_of",
    "part_of",
    "slot_of",
    "unit_row",
]
