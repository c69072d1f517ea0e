"""Carrying a load out: pages taken, objects read into them by workers, sealed or given up."""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from kvstrata.core import finish as core_finish
from kvstrata.core.events import EventType, Reason
from kvstrata.core.loading import (
    LOAD_GOOD_BLOCKS,
    LOAD_GOOD_IMAGE,
    LOAD_IMAGE,
    LOAD_REASON,
    drain_load,
    end_load,
    take_load,
)
from kvstrata.core.room import MORE
from kvstrata.core.steps import WORK_KEY_0, WORK_KEY_1, WORK_SUMS
from kvstrata.core.stored import tiers_of_all
from kvstrata.core.words import HOLDER_ID, HOLDER_SEALED, HOLDER_TAINTED, Arena
from kvstrata.tiers.format import ObjectId
from kvstrata.tiers.jobs import Job, load_shares
from kvstrata.tiers.outcomes import Loaded
from kvstrata.tiers.schema import KEY_BYTES

from .asking import keys_of
from .caller import zeros
from .load_in_flight import LoadInFlight, why_partial
from .requests import Load, Plan

if TYPE_CHECKING:
    from .tiering import Tiering

__all__ = ["Fetcher"]

_LOG: Final = logging.getLogger("kvstrata.tiers")


class Fetcher:
    """Carries out the loads of one manager; who waits for which is the loader's to know.

    Args:
        tiering: what it is part of.
        ended: told of every load that has ended, whether it came whole, and its bytes.
    """

    def __init__(
        self, tiering: "Tiering", ended: Callable[[LoadInFlight, bool, int], None]
    ) -> None:
        self._tiering = tiering
        self._ended = ended

    def begin(self, plan: Plan, wanted: Load, row: int, words: Arena, ticket: int) -> LoadInFlight:
        """Take the pages of a load that the core has begun; :meth:`fetch` comes next."""
        tiering, call = self._tiering, self._tiering.call
        code = MORE
        leased = len(plan.blocks[: wanted.first])
        while code == MORE:
            code = call.run(take_load, call.arena, call.ring, row, leased, words)
        keys = keys_of(plan.keys, wanted, tiering.layout.block_tokens)
        now_s = tiering.clock()
        load = LoadInFlight(
            row=row,
            identity=int(tiering.tables.holders[row, HOLDER_ID]),
            leased=leased,
            all_keys=keys,
            keys=np.array([key[:2] for key in keys if not key[2]], np.int64).reshape(-1, 2),
            checkpoint=keys[-1][:2] if keys and keys[-1][2] else None,
            words=words,
            num_bytes=wanted.num_bytes,
            ticket=ticket,
            began_s=now_s,
            until_s=now_s + tiering.config.load_deadline_s,
        )
        tiering.tickets.holds(ticket, load.identity, leased, plan.request)
        payload = zeros(4)
        payload[:3] = load.identity, len(keys), load.num_bytes
        call.note(EventType.LOAD_BEGUN, payload)
        tiering.used(plan.keys[: leased + len(load.keys)], load.checkpoint is not None)
        load.results = [None] * len(keys)
        load.open = len(keys)
        return load

    def fetch(self, load: LoadInFlight) -> None:
        """Hand every object of a load to the workers; without bytes there is nothing to fetch."""
        tiering = self._tiering
        if tiering.is_books_only:
            load.open = 0
            load.brought_bytes = load.num_bytes
            self.end(load, len(load.keys), load.checkpoint is not None)
            return
        num_blocks = len(load.keys)
        blocks = tiering.tables.holder_blocks[load.row, load.leased :][:num_blocks].tolist()
        # All is made before any is handed over: workers would be in the way of this thread.
        jobs = []
        # The checkpoint first: without it the blocks may be of no use.
        if load.checkpoint is not None:
            jobs.append(self._job(load, num_blocks, False, [int(load.words[LOAD_IMAGE])]))
        object_bytes = tiering.objects.schema().object_bytes(False)
        for part in load_shares(num_blocks, object_bytes, tiering.config.workers):
            jobs.append(self._job(load, part.start, True, blocks[part]))
        for work, ended in jobs:
            tiering.workers.submit("load", work, ended)

    def _job(
        self, load: LoadInFlight, first: int, is_block: bool, units: list[int]
    ) -> tuple[Callable[[], None], Callable[[Job], None]]:
        """The reading of some objects, from place ``first`` on, and what follows it."""
        tiering = self._tiering
        keys = load.keys[first : first + len(units)]
        if not is_block:
            keys = np.array([load.checkpoint], dtype=np.int64)
        raw = keys.astype("<i8", copy=False).tobytes()
        places = range(0, len(raw), KEY_BYTES)
        identities = [ObjectId(raw[at : at + KEY_BYTES], not is_block) for at in places]
        known = zeros(len(units))
        tiers_of_all(tiering.arena, not is_block, keys, known)
        tiers = (known & tiering.readable()).tolist()
        targets = tiering.objects.targets(is_block, units)
        tierset = tiering.tierset()

        # Behind a bad block nothing is of use. What is far is then spared; what lies in a folder is
        # read all the same: so all that has gone is found out, and stored again.
        is_far = is_block and not all(mask & tiering.folders for mask in tiers)

        def dead(number: int = 0) -> bool:
            return load.given_up or (is_far and load.first_bad < first)

        def work() -> None:
            if dead():
                return
            found = tierset.load_many(identities, tiers, targets, dead)
            for number, result in enumerate(found, first):
                load.results[number] = result
                if not isinstance(result, Loaded):
                    load.failed(number)

        return work, partial(self._came, load, first, len(units))

    def _came(self, load: LoadInFlight, first: int, count: int, job: Job) -> None:
        """Some objects came, or did not; on a worker's thread."""
        if job.error is not None:
            _LOG.error("a load failed unexpectedly: %r", job.error)
            load.failed(first)
        with load.lock:
            load.open -= count
            last = load.open == 0
        if last:
            self._tiering.completed(lambda: self._arrived(load))

    def _arrived(self, load: LoadInFlight) -> None:
        """Everything of a load has come or failed; on the mutating thread."""
        num_blocks = len(load.keys)
        good = 0
        while good < num_blocks and isinstance(load.results[good], Loaded):
            good += 1
        image = load.checkpoint is not None and good == num_blocks
        image = image and isinstance(load.results[-1], Loaded)
        self._report(load)
        if load.given_up:
            good, image = 0, False
        self.end(load, good, image)

    def _report(self, load: LoadInFlight) -> None:
        """Log what was wrong with objects, and forget those that are not there."""
        if self._tiering.tables.holders[load.row, HOLDER_TAINTED]:
            return  # they were stored for readers that are gone
        met = self._tiering.stored.met
        for (first, second, is_checkpoint), result in zip(load.all_keys, load.results, strict=True):
            if result is not None:
                met((first, second), is_checkpoint, result)

    def end(self, load: LoadInFlight, good: int, image: bool) -> None:
        """Seal what came whole, give up the rest, and tell admission."""
        tiering, call = self._tiering, self._tiering.call
        words = load.words
        words[[LOAD_GOOD_BLOCKS, LOAD_GOOD_IMAGE]] = good, image
        if not words[LOAD_REASON]:
            words[LOAD_REASON] = why_partial(load)
        history = len(tiering.layout.history_groups)
        work = zeros(len(load.keys), WORK_SUMS + history)
        work[:, WORK_KEY_0 : WORK_KEY_1 + 1] = load.keys
        sums = zeros(2 + max(len(tiering.layout.state_groups), 1))
        came = {n: one for n, one in enumerate(load.results) if isinstance(one, Loaded)}
        num_bytes = load.brought_bytes + sum(one.num_bytes for one in came.values())
        if load.checkpoint is not None:
            sums[:2] = load.checkpoint
            last = came.pop(len(load.keys), None)
            if last is not None:
                sums[2:] = last.header.checksums
        if came:
            work[list(came), WORK_SUMS:] = [one.header.checksums for one in came.values()]
        tainted = bool(tiering.tables.holders[load.row, HOLDER_TAINTED])
        code = MORE
        while code == MORE:
            code = call.run(
                end_load, call.arena, call.ring, load.row, work, sums, words, tiering.seal_flags
            )
        now_s = tiering.clock()
        load.ended_s = now_s
        sealed = int(tiering.tables.holders[load.row, HOLDER_SEALED]) - load.leased
        payload = zeros(4)
        load.num_sealed = max(sealed, 0)
        payload[0], payload[1] = load.identity, load.num_sealed + (image and not tainted)
        payload[2], payload[3] = num_bytes, int((now_s - load.began_s) * 1e6)
        call.note(EventType.LOAD_ENDED, payload, int(words[LOAD_REASON]))
        self._ended(load, good == len(load.keys) and not tainted, num_bytes)

    def drain(self, load: LoadInFlight, reason: Reason) -> None:
        """Nobody waits for a load any more; its pages drain until the last read has ended."""
        call = self._tiering.call
        load.given_up = True
        load.words[LOAD_REASON] = int(reason)
        code = MORE
        while code == MORE:
            code = call.run(drain_load, call.arena, call.ring, load.row, load.words)

    def release(self, load: LoadInFlight) -> None:
        """End the sequence that owns a load: what it sealed is found, and pinned no more."""
        self._tiering.tickets.load_ended(load.identity)
        call = self._tiering.call
        how = np.array([int(Reason.FINISHED), 0, 0], dtype=np.int64)
        sums = zeros(max(len(self._tiering.layout.state_groups), 1))
        code = call.run(
            core_finish.end_sequence,
            call.arena,
            self._tiering.steps,
            call.ring,
            load.identity,
            sums,
            how,
        )
        call.drain_limbo(code)
