"""Each way in which one page of a hit can be bad: damage to the tables, or to the bytes."""

from collections.abc import Callable
from dataclasses import dataclass

from kvstrata import CacheManager
from kvstrata.core.events import Reason
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    PAGE_ENTRIES,
    PAGE_HEAD,
    PAGE_STAMP,
    PAGE_STATE,
    PAGE_UNIT,
    STAMP_OVERLAP,
    UNIT_POSITION,
    Arena,
)

from .support import (
    GROUPS,
    HISTORY,
    STATES,
    WANTED,
    flip,
    page_row,
    pages_of,
    part_of,
    slot_of,
    unit_row,
)

Damage = Callable[[CacheManager, str, int], None]
BLOCK = 3
"""The block of the hit that is damaged: the 48 tokens below it stay good."""
TAILS = ("c4.tail", "c4.index.tail", "c16.tail")
OVERLAPPED = ("c4.tail", "c4.index.tail")


@dataclass(frozen=True)
class Provocation:
    """Damage to one page of a hit, and what it must be called.

    Attributes:
        group: whose page is damaged.
        names: the group named; the first of its side where the whole unit is bad.
        heals: whether what is bad can be withdrawn alone, so that the prefix is good again once
            it is computed; else the tables are broken and nothing at all is adopted.
    """

    reason: Reason
    layer: int
    group: str
    damage: Damage
    names: str
    heals: bool

    def __str__(self) -> str:
        return f"{self.reason.name}-{self.group}-{self.damage.__name__}"


def page(cache: CacheManager, group: str, block: int) -> Arena:
    return page_row(cache, group, slot_of(cache, WANTED, group, block))


def no_page(cache: CacheManager, group: str, block: int) -> None:
    pages_of(cache, WANTED, group, block)[part_of(group)] = 0


def a_page_of_another(cache: CacheManager, group: str, block: int) -> None:
    """The unit names a page that belongs to a unit of another prompt."""
    mine = {int(page(cache, group, each)[PAGE_UNIT]) for each in range(5)}
    page(cache, group, block)[PAGE_UNIT] = min(set(range(1, 10)) - mine)


def an_open_page(cache: CacheManager, group: str, block: int) -> None:
    page(cache, group, block)[PAGE_STATE] = PageState.OPEN


def an_entry_less(cache: CacheManager, group: str, block: int) -> None:
    page(cache, group, block)[PAGE_ENTRIES] -= 1


def an_entry_more(cache: CacheManager, group: str, block: int) -> None:
    page(cache, group, block)[PAGE_ENTRIES] += 1


def another_position(cache: CacheManager, group: str, block: int) -> None:
    unit_row(cache, WANTED, group, block)[UNIT_POSITION] += 16


def another_head(cache: CacheManager, group: str, block: int) -> None:
    page(cache, group, block)[PAGE_HEAD] += 1


def no_overlap(cache: CacheManager, group: str, block: int) -> None:
    page(cache, group, block)[PAGE_STAMP] &= ~STAMP_OVERLAP


def another_version(cache: CacheManager, group: str, block: int) -> None:
    page(cache, group, block)[PAGE_STAMP] ^= 1


def another_abi(cache: CacheManager, group: str, block: int) -> None:
    page(cache, group, block)[PAGE_STAMP] ^= 1 << 32


def marked_dirty(cache: CacheManager, group: str, block: int) -> None:
    cache.mark_dirty(group, [slot_of(cache, WANTED, group, block)])


def a_flipped_bit(cache: CacheManager, group: str, block: int) -> None:
    flip(cache, group, slot_of(cache, WANTED, group, block))


def _each(
    reason: Reason,
    groups: list[str] | tuple[str, ...],
    *damages: Damage,
    layer: int = 1,
    heals: bool = True,
    whole_unit: bool = False,
) -> list[Provocation]:
    return [
        Provocation(
            reason,
            layer,
            group,
            damage,
            (HISTORY if group in HISTORY else STATES)[0] if whole_unit else group,
            heals,
        )
        for group in groups
        for damage in damages
    ]


PAGES = [
    *_each(Reason.MISSING_PAGE, GROUPS, no_page, a_page_of_another, heals=False),
    *_each(Reason.PARTIAL_WRITE, GROUPS, an_open_page, heals=False),
    *_each(Reason.PARTIAL_WRITE, ("c4", "c16"), an_entry_less),
    *_each(Reason.MISALIGNED_BOUNDARY, ("c4", "swa"), another_position, whole_unit=True),
    *_each(Reason.WINDOW_OUT_OF_BOUNDS, ("swa",), an_entry_less, an_entry_more),
    *_each(Reason.TAIL_TOO_SHORT, TAILS, an_entry_less, an_entry_more),
    *_each(Reason.OVERLAP_MISSING, OVERLAPPED, no_overlap),
    *_each(Reason.WINDOW_OFFSET, STATES, another_head),
    *_each(Reason.INDEX_DIRTY, ("c4.index",), marked_dirty),
    *_each(Reason.INDEX_COUNT, ("c4.index",), an_entry_less, an_entry_more),
    *_each(Reason.INDEX_STALE, ("c4.index",), another_version),
    *_each(Reason.COMPRESSOR_VERSION, ("c4", "c16", *TAILS), another_version),
    *_each(Reason.ABI_MISMATCH, GROUPS, another_abi, layer=2),
    *_each(Reason.CHECKSUM_MISMATCH, GROUPS, a_flipped_bit, layer=0),
]
