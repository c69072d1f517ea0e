"""CacheManager: the public face, composed of the core, the log and the pools."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import new_arena, open_tables
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EventType
from kvstrata.core.layout import CacheLayout
from kvstrata.core.ranks import RankGroup
from kvstrata.core.ring import RING_FLAG_UNLOGGED, RING_FLAGS, new_ring
from kvstrata.core.steps import new_step_table
from kvstrata.core.words import HOLDER_ID, META_NUM_SEQUENCES, POOL_ABI, POOL_VERSION, Arena
from kvstrata.eventstore.log import EventLog

from .admitting import AdmissionControl
from .asking import check_fresh
from .beginning import Beginner
from .caller import CoreCaller, zeros
from .completions import Completions
from .config import CacheConfig
from .ending import Ender
from .explaining import Explanation, explain
from .handles import Lease, Sequence, Step, Suspended
from .joining import Joiner
from .leasing import Lessor
from .planning import Planner
from .prompts import Prompts
from .recovery import Recovery, open_pools, recover
from .registering import Registrar
from .requests import Plan, Request
from .scrubbing import Scrubber
from .stepping import Stepper
from .storage import Storage
from .tier_service import TierService
from .topology import Topology
from .validating import Validator

if TYPE_CHECKING:
    from kvstrata.kernels.pools import PoolSet

    from .tiering import Tiering

__all__ = ["CacheManager"]


class CacheManager(TierService):
    """A KV cache whose every transition is an event. Made by :meth:`open`.

    One thread mutates: the one that opened it.
    """

    def __init__(
        self,
        layout: CacheLayout,
        config: CacheConfig,
        arena: Arena,
        ring: Arena,
        log: EventLog | None,
        ranks: RankGroup | None = None,
    ) -> None:
        self.layout = layout
        self.config = config
        self.arena = arena
        self.log = log
        self.recovery: Recovery | None = None
        self.tables = open_tables(arena)
        # Recovery begins a new life, in which the engine has to register again.
        self._readers_before = self.tables.pools[:, [POOL_ABI, POOL_VERSION]].tobytes()
        self._steps = new_step_table(arena)
        self._prompts = Prompts(
            len(self._steps), layout.block_tokens, self.tables.holder_blocks.shape[1]
        )
        self._call = call = CoreCaller(arena, ring, log, config.log.stall_limit_ms)
        self._storage: Storage | None = None
        admission_control = None
        if config.admission is not None:
            admission_control = AdmissionControl(layout, config.admission, call)
        self._admission = admission_control
        self._wait = None if admission_control is None else admission_control.load_wait_ns
        self._planner = Planner(layout, arena, ranks, self._wait)
        self.validator = self._new_validator()
        self._beginner = Beginner(self, layout, call, self._prompts, admission_control)
        self._joiner = Joiner(self, call)
        self._stepper = Stepper(self, layout, call, self._steps, self._prompts)
        self._ender = Ender(self, layout, call, self._prompts)
        self._lessor = Lessor(self, layout, config, call)
        self._registrar = Registrar(layout, call, log)
        self._completions = Completions(call, self._steps)
        self._scrubber: Scrubber | None = None
        self._topology: Topology | None = None
        self._tiering: Tiering | None = None
        self._turns = [self._apply_reported]
        self._closed = False

    def _new_validator(self) -> Validator:
        config = self.config
        return Validator(
            self.layout, self.arena, self._storage, config.verify_hits, config.sample_share
        )

    @classmethod
    def open(
        cls,
        layout: CacheLayout,
        config: CacheConfig,
        directory: Path | str | None = None,
        pools: "PoolSet | Literal['private', 'shared'] | None" = None,
        ranks: RankGroup | None = None,
    ) -> Self:
        """Open a cache: empty, or recovered from its log.

        Args:
            layout: the model's layout.
            config: sizes and policies.
            directory: the log's directory, made where absent; None keeps no log.
            pools: where pages' bytes are: ``private`` memory of this process, ``shared`` memory
                that survives it (needs a directory), pools made elsewhere, or None for a manager
                of metadata alone.
            ranks: the ranks that must agree on every hit; None for a single one.

        Returns:
            The manager; ``recovery`` says what was found.

        Raises:
            ConfigError: sizes, layout or directory do not fit.
            LogError: the directory is busy, corrupt or of another version.
        """
        params = config.arena_params(layout)
        if directory is None:
            ring = new_ring(config.log.ring_events)
            ring[RING_FLAGS] = RING_FLAG_UNLOGGED
            manager = cls(layout, config, new_arena(layout, params), ring, None, ranks)
            manager._attach(open_pools(layout, params, pools, None, False)[0])
            manager._come_up()
            return manager
        log = EventLog.open(Path(directory), layout, config.log, params)
        try:
            manager = cls(layout, config, log.arena, log.ring, log, ranks)
            found, trusted = open_pools(
                layout, params, pools, log.pools_dir, log.recovery.bytes_trusted
            )
            manager._attach(found)
            log.start()
            tiers = () if config.tiers is None else tuple(one.name for one in config.tiers.tiers)
            manager.recovery = recover(manager._call, log, layout, params, manager, trusted, tiers)
            manager._come_up()
        except BaseException:
            log.close(clean=False)
            raise
        return manager

    def _attach(self, pools: "PoolSet | None") -> None:
        if pools is not None:
            self._storage = Storage(self.layout, self.arena, pools)
            self._stepper.storage = self._storage
            self._scrubber = Scrubber(self.layout, self.arena, self._storage)
            self.validator = self._new_validator()
            unaligned = self.validator.alignment()
            if unaligned:
                raise ConfigError("; ".join(map(str, unaligned)))

    def _come_up(self) -> None:
        if self.config.rates is not None:
            self._registrar.rates(self.config.rates)
        self._open_tiers(self)
        self._begin_upkeep()

    @property
    def ranks(self) -> RankGroup:
        """The ranks that must agree on every hit."""
        return self._planner.ranks

    @property
    def pools(self) -> "PoolSet | None":
        """The pools, if this manager has bytes."""
        return self._storage.pools if self._storage is not None else None

    # match, explain and begin

    def match(self, request: Request, at: int | None = None) -> Plan:
        """How much of a request's prefix can be reused, and the cheapest way; changes nothing.

        Args:
            request: the request.
            at: position at which it was suspended: resume exactly there, where that is still here.
        """
        plan = self._planner.plan(request, at)
        if request.join and self.ranks.size == 1:
            plan = plan.joining(self._joiner.find(plan))
        return plan

    def explain(self, request: Request, at: int | None = None) -> Explanation:
        """Why a request hits as far as it does: what begin would do now; changes nothing.

        Where there are several ranks, all of them ask together, as they match.
        """
        found = explain(
            self.layout,
            self.arena,
            request,
            self._storage,
            self.config.verify_hits,
            self.config.sample_share,
            self._planner.ranks,
            at,
            self.validator.turn,
            self._wait,
            self._planner.tiers,
        )
        return replace(found, join=self.match(request, at).join)

    def begin(self, plan: Plan) -> Sequence:
        """Begin a sequence: admit it, validate what the plan reuses, pin it, all or nothing.

        A page that fails validation is quarantined and the request is planned anew.

        Returns:
            The sequence; its ``plan`` is the one really used.

        Raises:
            Deferred: not now: the admission cap says so, or the request joins a prefix that a
                sequence is computing; match and begin again with the same request.
            AdmissionDenied: it will not fit, or not before its deadline.
            StaleLease: the plan's pages changed since; match again.
            OutOfPages: no sequence row or no state images are free now; nothing changed.
        """
        self._enter()
        self.check_topology()
        if plan.join is not None:
            self._joiner.wait(plan)
        return self._beginner.begin(plan)

    def judged(self, plan: Plan) -> Callable[[Plan], Plan] | None:
        """Validate a plan on every rank, and withdraw what is bad.

        Returns:
            None where it may be adopted; else what makes the next best plan of it.
        """
        ranks = self.ranks
        verdicts = self.validator.verdicts(plan)
        good = not verdicts
        if ranks.size > 1:
            good = bool(ranks.least(np.array([good], dtype=np.int64))[0])
        if good:
            return None
        stuck = bool(verdicts) and not self._withdraw_all(verdicts)
        if ranks.size > 1:
            stuck = not ranks.least(np.array([not stuck], dtype=np.int64))[0]
        return self._planner.cold if stuck else self._planner.again

    def withdraw(self, request: Request) -> None:
        """Take back a request that was deferred: it will not ask again, and holds nobody up.

        One that is dropped without a word is taken back when it is garbage-collected.
        """
        self._call.check()
        self._beginner.withdraw(request)

    def resume(self, suspended: Suspended, tokens: npt.ArrayLike | None = None) -> Sequence:
        """Go on with a suspended sequence: exactly where it stood, or as near as is still here.

        Args:
            suspended: what :meth:`suspend` gave.
            tokens: int32[n], prompt and output so far, more than were computed; None where it was
                suspended inside its prompt.

        Raises:
            ConfigError: too few tokens, or others than it was computed on.
            Deferred, AdmissionDenied, OutOfPages: as :meth:`begin`; it stays suspended.
        """
        request = suspended.with_tokens(tokens)
        return self.begin(self.match(request, suspended.position))

    def fork(self, sequence: Sequence) -> Sequence:
        """See :meth:`.handles.Sequence.fork`."""
        self._enter()
        return self._beginner.fork(sequence)

    # steps

    def reserve(self, sequences: npt.ArrayLike | Items[int], num_tokens: npt.ArrayLike) -> Step:
        """Reserve the next step of a batch of sequences.

        Args:
            sequences: int64[n], ids of running sequences, none twice.
            num_tokens: int32[n], tokens each of them computes, at least 1.

        Returns:
            The step; ``refused`` says which sequences did not fit. The others are in flight.

        Raises:
            StaleLease: an id is not that of a running sequence; nothing changed.
            ConfigError: the arrays do not fit each other; nothing changed.
        """
        self._enter()
        if self._topology is not None:
            self.check_topology()
        return self._stepper.reserve(sequences, num_tokens)

    # the end of sequences

    def finish(self, sequence: Sequence) -> None:
        """See :meth:`.handles.Sequence.finish`."""
        self._enter()
        self._ender.finish(sequence)

    def suspend(self, sequence: Sequence) -> Suspended:
        """See :meth:`.handles.Sequence.suspend`."""
        self._enter()
        return self._ender.suspend(sequence)

    def cancel(self, sequence: Sequence) -> None:
        """See :meth:`.handles.Sequence.cancel`."""
        self._enter()
        self._ender.cancel(sequence)

    def sequence_ended(self, identity: int) -> None:
        """A sequence's row was given back."""
        if self._beginner.admission_control is not None:
            self._beginner.admission_control.ended(identity)

    def lease(self, plan: Plan) -> Lease:
        """Pin a plan's prefix outside any sequence.

        Raises:
            StaleLease: the plan's pages changed since; match again.
            OutOfPages: no lease row is free.
            ConfigError: the plan reuses nothing, or has to be loaded first.
        """
        self._enter()
        if plan.load is not None:
            raise ConfigError(
                "lease: expected a plan of what is here, found one that loads "
                f"{plan.load.num_bytes} bytes first; prefetch it, and match again"
            )
        check_fresh(self.layout, self.arena, plan)
        better = self.judged(plan)
        while better is not None:
            plan = better(plan)
            better = self.judged(plan)
        if self._admission is not None:
            self._admission.check_unpromised(self._admission.idle_blocks(plan), "a lease")
        return self._lessor.grant(plan)

    def close(self) -> None:
        """Abort steps in flight, cancel sequences, write a snapshot and close the log.

        After a violation nothing more is written: the log is left as a crash would leave it. A
        second close does nothing.

        Raises:
            InvariantViolation: another thread calls; nothing is closed.
            LogPoisoned: not everything became durable; it is closed all the same.
        """
        if self._closed:
            return
        clean = self._call.may_mutate()
        self._closed = True
        try:
            if clean:
                self._end_everything()
        finally:
            if self._tiering is not None:
                self._tiering.stop(0.0)
            self.end_commands()
            self._call.end("it was closed")
            try:
                if self.log is not None:
                    self.log.close(clean)
            finally:
                if self._storage is not None:
                    self._storage.pools.close()

    def _end_everything(self) -> None:
        self.apply_completions()
        self._stepper.abort_all()
        if self._tiering is not None:
            self._tiering.close()
        self._completions.end_all()
        self.end_drained()
        for row in range(1, int(self.arena[META_NUM_SEQUENCES]) + 1):
            identity = int(self.tables.holders[row, HOLDER_ID])
            if identity:
                self._ender.cancel(Sequence(self, identity, self._prompts.plan(row)))
        if self.log is not None:
            self.log_digest()
            self._call.note(EventType.MANAGER_CLOSED, zeros(4))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()
