"""The faults that a page can come to hold, each a function on the page's typed views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kvstrata import GroupSpec, Kind, PoolSet

__all__ = [
    "FAULTS",
    "KINDS",
    "STRONG",
    "Donors",
    "Fault",
    "Page",
    "Target",
    "newest_rows",
    "not_applicable",
]


@dataclass(frozen=True)
class Target:
    """The page that a kind's faults are planted in.

    Args:
        group: its group.
        block: of a history group, which block of the hit, counted from either end.
        number: component and layer index of the number whose bits are flipped, of its newest row.
    """

    group: str
    block: int
    number: tuple[str, int]


# The last block of the hit and one early in it: what is good above a bad block is lost with it.
KINDS: Mapping[Kind, Target] = {
    Kind.COMPRESSED: Target("c4", block=-1, number=("entry", 0)),
    Kind.INDEXER: Target("c4.index", block=2, number=("key", 0)),
    Kind.SWA: Target("swa", block=0, number=("kv", 0)),
    Kind.TAIL: Target("c4.tail", block=0, number=("overlap_kv", 0)),
}


class Page:
    """One page of a pool: its bytes, and its components as tensors over them.

    Args:
        pools: the pools.
        group: the page's group.
        slot: its slot.
        newest: the newest row of each component.
    """

    def __init__(self, pools: PoolSet, group: str, slot: int, newest: Mapping[str, int]) -> None:
        self.bytes: Tensor = pools.storage(group)[slot]
        self.components: dict[str, Tensor] = {
            name: pools.view(group, name)[slot] for name in newest
        }
        """[layers, rows, *shape] by name."""
        self.newest = newest


def newest_rows(group: GroupSpec, position: int) -> dict[str, int]:
    """The row of each component that was written last in a page that ends at a position."""
    rows = {}
    for component in group.components:
        written = position // group.ratio if component.is_overlap or group.is_history else position
        rows[component.name] = (written - 1) % component.rows
    return rows


@dataclass(frozen=True)
class Donors:
    """What a page could hold instead of its own bytes.

    Args:
        window_before: the same prompt's page one window earlier: of a history group the block
            before, of a state group the image that ends a window before this one.
        other_request: the page at the same place of another prompt.
        other_version: the page at the same place of the same prompt, by a model of other weights.
    """

    window_before: Page
    other_request: Page
    other_version: Page


@dataclass(frozen=True)
class Fault:
    """A way in which a page's bytes are not what they should be.

    Args:
        name: readable, in words joined by underscores.
        plant: puts it into a page.
        kinds: the kinds that can have it.
        elsewhere: why the others cannot.
    """

    name: str
    plant: Callable[[Page, Target, Donors], None]
    kinds: frozenset[Kind] = frozenset(KINDS)
    elsewhere: str = ""


def _zeroed(page: Page, _: Target, __: Donors) -> None:
    page.bytes.zero_()


def _stale(page: Page, _: Target, donors: Donors) -> None:
    page.bytes.copy_(donors.window_before.bytes)


def _rotated(page: Page, _: Target, __: Donors) -> None:
    for rows in page.components.values():
        rows.copy_(rows.roll(1, dims=1))


def _shifted(page: Page, _: Target, __: Donors) -> None:
    """Every row but the oldest holds the one before it."""
    for name, rows in page.components.items():
        count = rows.shape[1]
        newest_first = (page.newest[name] - torch.arange(count)) % count
        rows[:, newest_first[:-1]] = rows[:, newest_first[1:]]


def _scaled(page: Page, _: Target, __: Donors) -> None:
    for rows in page.components.values():
        rows.mul_(2)


def _of_another_request(page: Page, _: Target, donors: Donors) -> None:
    page.bytes.copy_(donors.other_request.bytes)


def _of_another_version(page: Page, _: Target, donors: Donors) -> None:
    page.bytes.copy_(donors.other_version.bytes)


def _one_entry_short(page: Page, _: Target, donors: Donors) -> None:
    """The newest row holds what was there before it was written."""
    for name, rows in page.components.items():
        row = page.newest[name]
        rows[:, row] = donors.window_before.components[name][:, row]


def _overlap_missing(page: Page, _: Target, __: Donors) -> None:
    for name, rows in page.components.items():
        if name.startswith("overlap"):
            rows.zero_()


def _half_still_zero(page: Page, _: Target, __: Donors) -> None:
    page.bytes[len(page.bytes) // 2 :].zero_()


def _flip(bit: int) -> Callable[[Page, Target, Donors], None]:
    def flip(page: Page, target: Target, _: Donors) -> None:
        name, layer = target.number
        row = page.components[name][layer, page.newest[name]]
        number = row.view(-1)[:1].view(torch.uint8)
        number[bit // 8] ^= 1 << bit % 8

    return flip


def _bits_of_bfloat16() -> list[Fault]:
    part = ["mantissa"] * 7 + ["exponent"] * 8 + ["sign"]
    return [Fault(f"{part[bit]}_bit_{bit}_flipped", _flip(bit)) for bit in range(16)]


FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in [
        Fault("zeroed", _zeroed),
        Fault("stale_by_one_window", _stale),
        Fault("rotated_by_one_slot", _rotated),
        Fault("shifted_by_one_entry", _shifted),
        Fault("scaled", _scaled),
        Fault("of_another_request", _of_another_request),
        Fault("of_another_version", _of_another_version),
        Fault("one_entry_short", _one_entry_short),
        Fault(
            "overlap_missing",
            _overlap_missing,
            frozenset({Kind.TAIL}),
            "the overlap of a window lies in its TAIL page",
        ),
        Fault("half_still_zero", _half_still_zero),
        *_bits_of_bfloat16(),
    ]
}

STRONG = ("zeroed", "of_another_request", "scaled")
"""Faults that no model can be blind to, whatever it attends to."""


def not_applicable(kind: Kind, fault: str) -> str:
    """Why a kind cannot have a fault; empty where it can."""
    return "" if kind in FAULTS[fault].kinds else FAULTS[fault].elsewhere
