"""Scrubbing: sealed pages are checksummed in turn, a budget of bytes at a time."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kvstrata.core.arena import open_tables
from kvstrata.core.layout import CacheLayout
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_STATE, POOL_COUNTS, POOL_FIRST, POOL_SLOTS, Arena

from .storage import BadPage, Storage

__all__ = ["ScrubProgress", "ScrubReport", "Scrubber"]


@dataclass(frozen=True)
class ScrubReport:
    """What one scrub looked at.

    Attributes:
        pages: sealed pages checksummed.
        num_bytes: their bytes.
        bad: pages whose bytes are not what was sealed.
        wrapped: whether it came to the end of all pools and will begin anew.
    """

    pages: int
    num_bytes: int
    bad: int
    wrapped: bool

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class ScrubProgress:
    """How far scrubbing has come.

    Attributes:
        rounds: whole rounds so far, in this life of the engine.
        pages: sealed pages checksummed in the present round.
        num_bytes: their bytes.
        sealed_pages: sealed now, of all pools.
        sealed_bytes: their bytes: what a round reads.
    """

    rounds: int
    pages: int
    num_bytes: int
    sealed_pages: int
    sealed_bytes: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class Scrubber:
    """Goes through all sealed pages, pool after pool, and remembers where it stopped.

    Args:
        layout: the layout.
        arena: the tables; read only.
        storage: the bytes.
    """

    def __init__(self, layout: CacheLayout, arena: Arena, storage: Storage) -> None:
        self._layout = layout
        self._tables = open_tables(arena)
        self._storage = storage
        self._group = 0
        self._slot = 1
        self._rounds = self._pages = self._bytes = 0

    @property
    def place(self) -> tuple[int, int]:
        """Group and slot with which it goes on."""
        return self._group, self._slot

    def progress(self) -> ScrubProgress:
        """How far it has come."""
        sealed = self._tables.pools[:, POOL_COUNTS + PageState.SEALED].tolist()
        sizes = [self._layout.page_bytes(group) for group in range(len(sealed))]
        num_bytes = sum(count * size for count, size in zip(sealed, sizes, strict=True))
        return ScrubProgress(self._rounds, self._pages, self._bytes, sum(sealed), num_bytes)

    def next_pages(self, max_bytes: int) -> tuple[ScrubReport, list[BadPage]]:
        """Checksum the next sealed pages, at least one, at most once around.

        Args:
            max_bytes: budget of bytes to read.

        Returns:
            What was looked at, and the bad pages, for the caller to withdraw.
        """
        pages = num_bytes = 0
        bad: list[BadPage] = []
        wrapped = False
        for _ in range(len(self._layout.groups) + 1):
            size = self._layout.page_bytes(self._group)
            room = max((max_bytes - num_bytes) // size, 0 if pages else 1)
            slots = self._sealed()[:room]
            bad += self._storage.bad_in_group(self._group, slots)
            pages += len(slots)
            num_bytes += len(slots) * size
            if len(slots) == room:
                self._slot = int(slots[-1]) + 1 if len(slots) else self._slot
                break
            self._slot = 1
            self._group = (self._group + 1) % len(self._layout.groups)
            if self._group == 0:
                wrapped = True
                break
        self._pages, self._bytes = self._pages + pages, self._bytes + num_bytes
        if wrapped:
            self._rounds, self._pages, self._bytes = self._rounds + 1, 0, 0
        return ScrubReport(pages, num_bytes, len(bad), wrapped), bad

    def _sealed(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Slots of the group's sealed pages from where it stands."""
        pool = self._tables.pools[self._group]
        first, slots = int(pool[POOL_FIRST]), int(pool[POOL_SLOTS])
        states = self._tables.pages[first + self._slot : first + slots, PAGE_STATE]
        return np.flatnonzero(states == PageState.SEALED) + self._slot
