"""Lower tiers behind one manager: what is stored where, spills, loads, discovery, retention."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kvstrata.core.arena import open_tables
from kvstrata.core.errors import Deferred
from kvstrata.core.events import NO_CHECKSUM, Reason
from kvstrata.core.keys import key_words
from kvstrata.core.layout import CacheLayout
from kvstrata.core.words import (
    Arena,
)
from kvstrata.tiers.config import TiersConfig
from kvstrata.tiers.format import Fault, Header, ObjectId, Schema
from kvstrata.tiers.outcomes import LoadFailed
from kvstrata.tiers.tierset import TierSet
from kvstrata.tiers.workers import Workers

from .caller import CoreCaller
from .discovering import Discovery
from .loading import Loader
from .objects import Objects
from .requests import Plan, Request
from .shelves import Shelves
from .spilling import Spiller
from .stored_objects import StoredObjects
from .tickets import Tickets
from .tiering_stats import TieringStats, count_stored

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["Tiering"]

_CLOSE_S: Final = 30.0
"""How long a close waits for what is being written."""
_LOOK_AFTER_S: Final = 0.02
_ASK_AGAIN_S: Final = 0.01


class Tiering:
    """The lower tiers of one manager.

    All methods but :meth:`completed` and :meth:`catalogue_objects` are for the mutating thread.

    Args:
        manager: the manager.
        layout: its layout.
        config: the tiers.
        call: runs compiled calls.
        readers: the words of ABIs and mappings for which the log says that objects are stored.
        clock: seconds that never go back.

    Raises:
        ConfigError: the place of a tier cannot be used.
    """

    def __init__(
        self,
        manager: "CacheManager",
        layout: CacheLayout,
        config: TiersConfig,
        call: CoreCaller,
        readers: bytes = b"",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._manager = manager
        self.layout = layout
        self.config = config
        self.call = call
        self.clock = clock
        self.arena = call.arena
        self.tables = open_tables(call.arena)
        self.steps = manager._steps
        self.policy = config.checkpoint_policy()
        self.all_tiers = (1 << len(config.tiers)) - 1
        self.folders = sum(1 << n for n, tier in enumerate(config.tiers) if tier.is_folder)
        self.is_books_only = manager._storage is None
        self.seal_flags = NO_CHECKSUM if self.is_books_only else 0
        self.objects = Objects(layout, call.arena, manager._storage, manager._registrar)
        self._shelves = Shelves(config, self.is_books_only, clock)
        self.tickets = Tickets(manager._admission)
        self.stored = StoredObjects(
            call, self.objects, self._shelves, len(config.tiers), manager.validator.failures
        )
        if not self.is_books_only:
            self.tierset()  # a place that cannot be used is told of now, not amid requests
        self.workers = Workers(config.workers, config.max_spills, clock)
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._arrived = threading.Event()
        self._looked_after_s = 0.0
        self.discovery = Discovery(self, self._shelves, readers)
        self.loader = Loader(self)
        self.spiller = Spiller(self)
        self._closed = self._stopped = False

    # what the parts ask

    def tierset(self) -> TierSet:
        """The tiers, for objects of the schema of now."""
        return self._shelves.tierset(self.objects.schema())

    def object_bytes(self, is_checkpoint: bool) -> int:
        """Bytes of one object."""
        return self.objects.schema().object_bytes(is_checkpoint)

    def readable(self) -> int:
        """A bit for each tier that can be read now."""
        return self.all_tiers if self.is_books_only else self._shelves.readable()

    def writable(self) -> int:
        """A bit for each tier that can be written to now."""
        return self.all_tiers if self.is_books_only else self._shelves.writable()

    def is_well(self) -> bool:
        """Whether no tier is known to have failed since it last answered."""
        return self.is_books_only or self._shelves.is_well()

    def plan(self, request: Request, stored: bool = True) -> Plan:
        """Plan a request anew."""
        return self._manager._planner.plan(request, stored=stored)

    def observe(self, num_bytes: int, seconds: float) -> None:
        """A load of so many bytes took so long."""
        if seconds > 0:
            self._manager._registrar.observe("loads", num_bytes, seconds)

    # what requests need

    def before(self, plan: Plan) -> Plan:
        """See to what a plan needs of the tiers, before its request begins.

        Returns:
            The plan, or a better one, that needs nothing loaded.

        Raises:
            Deferred: something is on its way; match again.
        """
        self.discovery.follow()
        if self.discovery.is_asking(plan):
            raise Deferred("tiers are asked for its prefix: match again", _ASK_AGAIN_S, 0, "load")
        is_exact = plan.load is not None or plan.source == "suspended"
        found = self.discovery
        if not is_exact and (found.learn() | found.find_more(plan) or found.knows_more(plan)):
            plan = self.plan(plan.request)
        return self.loader.ready(plan) if plan.load is not None else plan

    def began(self, plan: Plan) -> None:
        """A request has begun: what it reuses is in use below the device too."""
        self.loader.began(plan.request)
        self.used(plan.keys[: len(plan.blocks)], plan.checkpoint[0] != 0)

    def prefetch(self, request: Request) -> bool:
        """Begin to load what a request will need; whether anything is on its way."""
        self.discovery.follow()
        self.discovery.learn()
        plan = self.plan(request)
        if self.discovery.find_more(plan):
            plan = self.plan(request)
        is_asking = self.discovery.ask_others(plan)
        return (plan.load is not None and self.loader.prefetch(plan)) or is_asking

    def load_ahead(self, request: Request) -> None:
        """Begin to load what a request will need, now that it is known where."""
        plan = self.plan(request)
        if plan.load is not None and not self._closed:
            self.loader.prefetch(plan)

    def used(self, keys: Arena, with_checkpoint: bool) -> None:
        """A prefix is used, or hung something new from: int64[n, 2], keys of its blocks."""
        if not self.is_books_only and len(keys):
            self._shelves.used(self.objects.schema(), keys, with_checkpoint)

    def catalogue_objects(self, schema: Schema, stored: Sequence[tuple[Header, int]]) -> None:
        """Tell the catalogue of objects just written: (header, tiers); on a worker's thread."""
        self._shelves.catalogue(schema, stored)

    # the manager's turns

    def completed(self, apply: Callable[[], None]) -> None:
        """Something has ended: have it applied at the manager's next call; from any thread."""
        self._done.put(apply)
        self._arrived.set()

    def service(self) -> None:
        """Apply what has ended, spill what was sealed, look after loads; at every call."""
        self._apply()
        self.spiller.look()
        now_s = self.clock()
        if now_s - self._looked_after_s > _LOOK_AFTER_S:
            self._looked_after_s = now_s
            if self.loader.busy:
                self.loader.look_after()
            self._retain()

    def _apply(self) -> None:
        """Apply what has ended."""
        while True:
            try:
                apply = self._done.get_nowait()
            except queue.Empty:
                return
            apply()

    def _retain(self) -> None:
        """Have the tiers' limits enforced, now and then, as work that stands back behind loads."""
        work = self._shelves.retention_due(self._forget_from_worker, self._drifted)
        if work is not None:
            self.workers.submit("spill", work)

    def _forget_from_worker(self, objects: list[tuple[ObjectId, int, Reason]]) -> None:
        """The index forgets before the bytes go; on a worker's thread."""
        done = threading.Event()

        def apply() -> None:
            self.stored.forget(objects)
            done.set()

        self.completed(apply)
        # An engine that makes no call meanwhile matches nothing either.
        if not self._closed:
            done.wait(1.0)

    def _drifted(self, identity: ObjectId, tier: int) -> None:
        """An object that was to go had gone before; from any thread."""
        fault = Fault(Reason.OBJECT_MISSING, 0, 0, 0, "was to be deleted and had gone before")
        met = LoadFailed(fault, ((tier, fault),))
        key = key_words(identity.key)
        self.completed(lambda: self.stored.met(key, identity.is_checkpoint, met))

    def wait(self, timeout_s: float) -> bool:
        """Wait until something has ended that the next call will apply; whether it has."""
        arrived = self._arrived.wait(timeout_s)
        self._arrived.clear()
        return arrived

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing waits to be spilled or loaded; whether that came."""
        return self._until(lambda: not self.spiller.num_waiting, timeout_s)

    def _until(self, spilled: Callable[[], bool], timeout_s: float) -> bool:
        """Go on until enough is spilled and nothing is being loaded; whether that came."""
        until_s = time.monotonic() + timeout_s
        while True:
            self.service()
            if spilled() and not self.loader.num_in_flight:
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            self.wait(min(left_s, _LOOK_AFTER_S))

    def stats(self) -> TieringStats:
        """Counts; see :class:`TieringStats`."""
        return TieringStats(
            stored=count_stored(self.tables.stored, [tier.name for tier in self.config.tiers]),
            tiers=self._shelves.stats(),
            workers=None if self.is_books_only else self.workers.stats(),
            loads=dict(self.loader.counts),
            loads_in_flight=self.loader.num_in_flight,
            longest_load_s=self.loader.longest_wait_s,
            spills=dict(self.spiller.counts),
            spills_waiting=self.spiller.num_waiting,
            looked_up=dict(self.discovery.looked_up),
            trimmed=dict(self._shelves.trimmed),
            catalogue_errors=self._shelves.catalogue_errors,
        )

    def close(self) -> None:
        """Write what waits, for a while; then end every load and spill. Closing twice is allowed.

        Mutates: nothing is loaded or spilled any more.
        """
        if self._closed:
            return
        self._closed = True
        spiller = self.spiller
        settled = self._until(lambda: not spiller.num_waiting or spiller.is_held_up, _CLOSE_S)
        self._shelves.retain(self.stored.forget, self._drifted)
        self.stop(_CLOSE_S if settled else 0.0)
        self._apply()
        self.loader.close()
        self.spiller.close()

    def stop(self, drain_s: float) -> None:
        """Stop the workers, after so many seconds whatever is under way, and close the tiers."""
        if not self._stopped:
            self._stopped = True
            ended = self.workers.close(drain_s)
            log = self._manager.log
            if log is not None and any(job.kind == "load" for job in ended.stuck):
                # It has the address of pages that the next engine may have given to others.
                log.distrust_pools("a read from a tier did not end")
            self._shelves.close()
