"""Writing objects to lower tiers: under a lease of what they are made of, by worker threads."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from kvstrata.core.ask import (
    ASK_CHECKPOINT,
    ASK_CHECKPOINT_GENERATION,
    ASK_KEY_0,
    ASK_KEY_1,
    ASK_NUM_BLOCKS,
    ASK_OWNER,
    ASK_WORDS,
    count_idle,
)
from kvstrata.core.errors import OutOfPages, StoreError
from kvstrata.core.events import EventType, Reason
from kvstrata.core.leases import grant, release_grant
from kvstrata.core.room import NO_ROOM
from kvstrata.core.words import HOLDER_ID, Arena
from kvstrata.tiers.format import Header
from kvstrata.tiers.jobs import SPILL_BYTES, Job
from kvstrata.tiers.outcomes import Stored
from kvstrata.tiers.tierset import TierSet

from .caller import zeros

if TYPE_CHECKING:
    from .tiering import Tiering

__all__ = ["Batch", "Unit", "Writer"]

_LOG: Final = logging.getLogger("kvstrata.tiers")
SPILLER: Final = 0x7370_696C_6C65_7200  # "spiller"; the owner of its leases

Unit = tuple[bool, int, int]
"""Is it a block, its id, its generation."""


@dataclass
class Batch:
    """Objects written under one lease."""

    row: int
    identity: int
    tierset: TierSet
    units: list[Unit]
    headers: list[Header]
    began_s: float
    results: list[Stored | None] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: int = 0


class Writer:
    """Writes what the spiller chooses.

    Args:
        tiering: what it is part of.
        ended: told of every batch whose objects are written, or are not.
    """

    def __init__(self, tiering: "Tiering", ended: Callable[[Batch], None]) -> None:
        self._tiering = tiering
        self._ended_batch = ended
        self.batches: dict[int, Batch] = {}
        """Leases held, by id."""

    def lease(self, chain: Arena, image: tuple[int, int]) -> int:
        """Pin a prefix, and the checkpoint at its end, for the time of a spill."""
        tiering, call = self._tiering, self._tiering.call
        try:
            tiering.tickets.check_unpromised(int(count_idle(call.arena, chain)))
        except OutOfPages:
            return NO_ROOM
        ask = zeros(ASK_WORDS)
        ask[ASK_NUM_BLOCKS] = len(chain)
        ask[[ASK_KEY_0, ASK_KEY_1]] = chain[-1, 2:]
        ask[[ASK_CHECKPOINT, ASK_CHECKPOINT_GENERATION]] = image
        ask[ASK_OWNER] = SPILLER
        return call.run(grant, call.arena, call.ring, chain, ask)

    def write(self, row: int, units: list[Unit], lacking: list[int]) -> None:
        """Hand the objects of a lease to the workers; ``lacking``: the tiers to write each to."""
        tiering = self._tiering
        identity = int(tiering.tables.holders[row, HOLDER_ID])
        headers = [tiering.objects.header(*unit[:2]) for unit in units]
        batch = Batch(row, identity, tiering.tierset(), units, headers, tiering.clock())
        batch.results = [None] * len(units)
        batch.open = len(units)
        self.batches[identity] = batch
        payload = zeros(4)
        sizes = [batch.tierset.schema.object_bytes(not unit[0]) for unit in units]
        num_bytes = sum(sizes)
        payload[:3] = identity, len(units), num_bytes
        tiering.call.note(EventType.SPILL_BEGUN, payload)
        most = min(SPILL_BYTES, num_bytes // tiering.config.max_spills)
        first = filled = 0
        for number, size in enumerate(sizes, 1):
            filled += size
            if filled >= most or number == len(units):
                self._submit(batch, slice(first, number), lacking[first:number])
                first, filled = number, 0

    def _submit(self, batch: Batch, which: slice, tiers: list[int]) -> None:
        """Hand some objects of a batch to a worker; those not written so follow one by one."""
        workers = self._tiering.workers
        units, headers = batch.units[which], batch.headers[which]
        pages = [self._tiering.objects.pages(*unit[:2]) for unit in units]
        followed = 0

        def work() -> None:
            nonlocal followed
            stored = batch.tierset.store_together(headers, pages, tiers)
            for place, done in enumerate(stored):
                number, rest = which.start + place, tiers[place] & ~done.tiers
                batch.results[number] = done if done.tiers else None
                if not rest:
                    continue
                follow = partial(self._store, batch, number, pages[place], rest)
                try:
                    workers.submit("spill", follow, partial(self._wrote, batch, 1))
                    followed += 1
                except StoreError:  # they are closing, and drain what was begun
                    follow()

        def ended(job: Job) -> None:
            self._wrote(batch, len(units) - followed, job)

        workers.submit("spill", work, ended)

    def _store(self, batch: Batch, number: int, pages: list[memoryview], tiers: int) -> None:
        """Write what is left of one object; on a worker's thread."""
        stored = batch.tierset.store(batch.headers[number], pages, tiers, settle=False)
        done = batch.results[number]
        batch.results[number] = stored if done is None else done.joined(stored)

    def _wrote(self, batch: Batch, count: int, job: Job) -> None:
        """Some objects are written, or not; on a worker's thread."""
        if job.error is not None:
            _LOG.error("a spill failed unexpectedly: %r", job.error)
        with batch.lock:
            batch.open -= count
            last = count and batch.open == 0
        if last:
            self._settle(batch)
            self._catalogue(batch)
            self._tiering.completed(lambda: self._ended(batch))

    def _settle(self, batch: Batch) -> None:
        """Make the names of a lease's objects durable; where they are not, they are not stored."""
        done = [result for result in batch.results if result is not None]
        tiers = reduce(or_, (result.tiers for result in done), 0)
        if not tiers:
            return
        identities = [
            header.identity
            for header, result in zip(batch.headers, batch.results, strict=True)
            if result is not None and result.tiers
        ]
        settled, faults = batch.tierset.settle(identities, tiers)
        if settled != tiers:
            batch.results = [
                result and replace(result, tiers=result.tiers & settled, faults=faults)
                for result in batch.results
            ]

    def _catalogue(self, batch: Batch) -> None:
        stored = [
            (header, result.tiers)
            for header, result in zip(batch.headers, batch.results, strict=True)
            if result is not None and result.tiers
        ]
        self._tiering.catalogue_objects(batch.tierset.schema, stored)

    def _ended(self, batch: Batch) -> None:
        """All objects of a lease are written: log what is stored, and release it."""
        tiering, call = self._tiering, self._tiering.call
        stored, num_bytes, reason = [], 0, Reason.NONE
        for header, result in zip(batch.headers, batch.results, strict=True):
            if result is None:
                continue
            num_bytes += result.num_bytes
            reason = result.faults[-1][1].reason if result.faults else reason
            if result.tiers:
                stored.append((header.identity, header.position, result.tiers))
        # Under another schema they lie where nobody looks for them.
        if batch.tierset.schema == tiering.objects.schema():
            tiering.stored.add(stored)
        payload = zeros(4)
        payload[0], payload[1], payload[2] = batch.identity, len(stored), num_bytes
        payload[3] = int((tiering.clock() - batch.began_s) * 1e6)
        call.note(EventType.SPILL_ENDED, payload, reason)
        self._ended_batch(batch)
        del self.batches[batch.identity]
        code = call.run(release_grant, call.arena, call.ring, batch.row, batch.identity)
        call.drain_limbo(code)

    def close(self) -> None:
        """The workers have stopped: release every lease that is left.

        Of one that was not written whole nothing is known to be durable, and nothing is logged.
        """
        for batch in list(self.batches.values()):
            if batch.open:
                batch.results = [None] * len(batch.units)
            self._ended(batch)
