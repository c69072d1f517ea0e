"""What the manager does for its own health, in small portions at the beginning of calls.

Digests of its tables, a slice at a time, so that a reader can compare its own; checksums of sealed
pages in turn; and what an engine found that computed pages again.
"""

import math
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from kvstrata.core.arena import slice_digest, slice_words
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EventType, Reason
from kvstrata.core.index import find_unit
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_STATE, POOL_FIRST

from .caller import zeros
from .comparing import Comparison
from .requests import Request
from .scrubbing import ScrubProgress
from .service import Service
from .validating import Verdict

__all__ = ["SLICE_BYTES", "Upkeep", "UpkeepService"]

SLICE_BYTES: Final = 1 << 17
"""Of the tables, in one digest: about a tenth of a millisecond."""
_PORTION_S: Final = 0.02
_LEAST_PORTION_BYTES: Final = 1 << 16
_MOST_PORTION_BYTES: Final = 1 << 22
_LOOK_AGAIN_S: Final = 0.1


class Upkeep:
    """Says when the next portion of each work is due, by bytes a second.

    Args:
        service: whose work it is.
        digest_bytes_per_s: of the tables; 0 for none.
        scrub_bytes_per_s: of sealed pages; 0 for none.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        service: "UpkeepService",
        digest_bytes_per_s: int,
        scrub_bytes_per_s: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._digest_bytes_per_s = digest_bytes_per_s
        self._scrub_bytes_per_s = scrub_bytes_per_s
        self._clock = clock
        now_s = clock()
        self._digest_due_s = self._scrub_due_s = math.inf
        if digest_bytes_per_s:
            self._digest_due_s = now_s + SLICE_BYTES / digest_bytes_per_s
        if scrub_bytes_per_s:
            self._scrub_due_s = now_s + _PORTION_S
        portion = int(scrub_bytes_per_s * _PORTION_S)
        self._portion_bytes = min(max(portion, _LEAST_PORTION_BYTES), _MOST_PORTION_BYTES)

    def look(self) -> None:
        """Do what is due: one slice, one portion of pages."""
        now_s = self._clock()
        if now_s >= self._digest_due_s:
            num_bytes = self._service.log_slice_digest()
            self._digest_due_s = now_s + num_bytes / self._digest_bytes_per_s
        if now_s >= self._scrub_due_s:
            num_bytes = self._service.scrub_next(self._portion_bytes)
            wait_s = num_bytes / self._scrub_bytes_per_s if num_bytes else _LOOK_AGAIN_S
            self._scrub_due_s = now_s + wait_s


class UpkeepService(Service):
    """The part of :class:`.manager.CacheManager` that looks after its own health."""

    _next_slice: int = 0

    def _begin_upkeep(self) -> None:
        digests = self.config.digest_bytes_per_s if self.log is not None else 0
        scrubs = self.config.scrub_bytes_per_s if self._scrubber is not None else 0
        if digests or scrubs:
            self._turns.append(Upkeep(self, digests, scrubs).look)

    def log_slice_digest(self, max_bytes: int = SLICE_BYTES) -> int:
        """Log digests of the next slices of the tables, so that a reader can compare its own.

        A full scan in turn, not a sum kept up to date, so that a byte changed behind the log shows.

        Args:
            max_bytes: how much of the tables to digest; at least one slice.

        Returns:
            Bytes digested.
        """
        self._call.check()
        num_slices = -(-self.arena.nbytes // SLICE_BYTES)
        words = slice_words(self.arena, num_slices)
        done = 0
        while done < self.arena.nbytes:
            number = self._next_slice % num_slices
            size = min(words, len(self.arena) - number * words) * 8
            if done and done + size > max_bytes:
                break
            payload = zeros(4)
            payload[0], payload[1] = number | num_slices << 32, number * words
            digest = slice_digest(self.arena, number, num_slices)
            payload[2:] = np.frombuffer(digest, dtype="<i8")
            self._call.note(EventType.SLICE_DIGEST, payload)
            self._next_slice = number + 1
            done += size
        return done

    def scrub_next(self, max_bytes: int) -> int:
        """Scrub, where there is anything sealed; bytes read."""
        if not self.scrub_progress().sealed_pages:
            return 0
        return self.scrub(max_bytes).num_bytes

    def scrub_progress(self) -> ScrubProgress:
        """How far scrubbing has come.

        Raises:
            ConfigError: the manager has no pools.
        """
        if self._scrubber is None:
            raise ConfigError("scrub: expected a manager with pools, found one of metadata alone")
        return self._scrubber.progress()

    def sealed_pages(self, request: Request, index: int) -> dict[str, int]:
        """The pages that end one block of a request's prefix, to be looked at; nothing is pinned.

        Args:
            request: the request.
            index: of the block in its prompt, from 0.

        Returns:
            Slots by group: of history groups where the block is findable, of state groups where a
            checkpoint is at its end.
        """
        first, second = request.keys(self.layout.block_tokens)[index].tolist()
        found: dict[str, int] = {}
        sides = (self.layout.history_groups, self.tables.blocks, True), (
            self.layout.state_groups, self.tables.images, False,
        )  # fmt: skip
        for groups, units, is_block in sides:
            unit = int(find_unit(self.arena, is_block, first, second))
            if unit:
                slots = units.pages[unit].tolist()
                found |= {group.name: slot for group, slot in zip(groups, slots, strict=True)}
        return found

    def report_comparison(self, found: Comparison) -> bool:
        """Log what comparing a sealed page with values computed again gave; withdraw a bad one.

        Returns:
            Whether it drifted: beyond the tolerance, or not a number. It is then quarantined.

        Raises:
            ConfigError: no such group or page.
        """
        self._call.check()
        number = self.layout.group_id(found.group)
        first = int(self.tables.pools[number, POOL_FIRST])
        generation = self.page_generation(found.group, found.slot)
        payload = zeros(4)
        payload[:2] = np.array([found.max_abs, found.cosine]).view(np.int64)
        payload[2] = found.layer | found.entries << 32
        payload[3:] = np.array([found.tolerance]).view(np.int64)
        reason = Reason.DRIFTED if found.drifted else Reason.NONE
        self._call.note(EventType.NUMERIC_DRIFT, payload, reason, number, found.slot)
        row = self.tables.pages[first + found.slot]
        if found.drifted and int(row[PAGE_STATE]) == PageState.SEALED:
            self._withdraw_all(
                [Verdict(0, reason.name, found.group, found.slot, generation, 0, 0, 0)]
            )
        return found.drifted
