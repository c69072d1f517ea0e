"""The replay of a trace: whose turn it is goes to the engine, what it did is read off the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kvstrata import CacheConfig, CacheLayout, CacheManager, LogConfig, LogPoisoned, Request
from kvstrata.eventstore.log import read_events
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.tiers.config import TierConfig, TiersConfig

from ..traces import Trace
from .continuing import check_options, holds_log
from .engine import Engine
from .ledger import Ledger
from .newest import newest_events
from .outcome import Outcome
from .turns import Turns

__all__ = ["Replay"]

TIER_KEYS = 1 << 20
"""Keys of objects that a tier holds, without another word."""
RING_EVENTS = 1 << 19
"""Far more than what is logged between two looks at the ring."""


class Replay:
    """One trace on one manager.

    Args:
        trace: the trace.
        layout: the layout of the model.
        budget_bytes: of all pools together.
        directory: of the log; one that holds the beginning of this replay is gone on with, one that
            holds all of it is only read.
        concurrency: requests that run at once, and sessions that are open at once.
        shared_memory_root: tmpfs folder for the ring.
        tier_policy: which checkpoints a tier below holds, beside all blocks; None for no such tier.
            It is kept in the books alone: nothing is written.
        tier_keys: keys of objects that tier holds; those used longest ago are forgotten.

    Raises:
        ConfigError: the budget does not suffice, or the directory is another's.
    """

    def __init__(
        self,
        trace: Trace,
        layout: CacheLayout,
        budget_bytes: int,
        directory: Path,
        concurrency: int,
        shared_memory_root: Path = LogConfig.shared_memory_root,
        tier_policy: str | None = None,
        tier_keys: int = TIER_KEYS,
    ) -> None:
        self._layout = layout
        self._directory = directory
        self._concurrency = concurrency
        self._identity: dict[str, Any] = {
            "model": layout.name,
            "weights": trace.digest,
            "adapter": f"{concurrency} at once",
        }
        if tier_policy is not None:
            self._identity["adapter"] += f", tier {tier_policy}"
        config = CacheConfig(
            budget_bytes=budget_bytes,
            max_sequences=concurrency,
            max_tokens_per_sequence=layout.block_tokens,
            log=LogConfig(ring_events=RING_EVENTS, shared_memory_root=shared_memory_root),
            tiers=None if tier_policy is None else _tier(tier_policy, tier_keys),
        )
        blocks = config.arena_params(layout).num_blocks(layout)
        self._trace = _that_fits(trace, blocks * layout.block_tokens)
        self._refused = trace.num_requests - self._trace.num_requests
        config = replace(config, max_tokens_per_sequence=self._trace.longest + layout.block_tokens)
        if holds_log(directory):
            check_options(directory, layout, config.arena_params(layout))
        self._cpu_ns = 0
        self._cache: CacheManager | None = None
        self._read_log()
        if not self._ledger.is_closed or not self._is_through:
            self._cache = CacheManager.open(layout, config, directory)
            try:
                self._cache.flush()
                self._read_log()
            except BaseException:
                self._cache.close()
                raise
        self._before = self._ledger.requests

    def _read_log(self) -> None:
        """Where the log stands: whose turn it is, and what has been counted."""
        self._turns = Turns(self._trace, self._concurrency)
        seed = Request(np.zeros(1, dtype=np.int32), **self._identity).seed(
            self._layout.block_tokens
        )
        self._ledger = Ledger(self._turns, self._layout, seed)
        if holds_log(self._directory):
            for events in read_events(self._directory):
                self._ledger.read(events)

    @property
    def _is_through(self) -> bool:
        return self._ledger.requests == self._trace.num_requests

    def run(
        self, progress: Callable[[int], None], stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Until every request has ended.

        Args:
            progress: told how many requests have ended or were refused so far.
            stopped: whether to break off; asked often.

        Raises:
            LogPoisoned: nothing more becomes durable.
        """
        progress(self._ledger.requests + self._refused)
        if self._cache is None:
            return
        engine = Engine(self._cache, self._identity, self._catch_up, stopped)
        try:
            while not stopped() and (engine.num_running or self._turns.first() is not None):
                self._admit(engine, stopped)
                engine.decode()
                self._check_log()
                progress(self._ledger.requests + self._refused)
        finally:
            self._cpu_ns += engine.cpu_ns

    def _admit(self, engine: Engine, stopped: Callable[[], bool]) -> None:
        """Begin requests, as many as may run."""
        while engine.num_running < self._concurrency and not stopped():
            turn = self._turns.first()
            if turn is None or not engine.begin(self._turns.request(turn)):
                return

    def _catch_up(self) -> None:
        """Let the ledger read what was logged since it looked last."""
        if self._cache is not None:
            for events in newest_events(self._cache, self._ledger.seqno):
                self._ledger.read(events)

    def _check_log(self) -> None:
        """The manager would serve without its log; what is counted here is read off it."""
        log = self._cache.log if self._cache is not None else None
        if log is not None and log.poisoned:
            raise LogPoisoned(
                f"{self._directory}: expected the log to go on, found {log.reason}; mend the "
                "device, and start again with the same --dir"
            )

    def close(self) -> None:
        """End what runs and close the log; a second close does nothing."""
        if self._cache is not None:
            self._cache.close()

    def outcome(self) -> Outcome:
        """What it came to; to be asked once it is closed.

        Raises:
            LogPoisoned: the log does not hold all of it.
        """
        self._check_log()
        ledger = self._ledger
        for events in read_events(self._directory, ledger.seqno + 1):
            ledger.read(events)
        in_this_run = ledger.requests - self._before
        return Outcome(
            requests=ledger.requests,
            refused=self._refused,
            prompt_tokens=ledger.prompt_tokens,
            hit_tokens=ledger.hit_tokens,
            saved_tokens=ledger.saved_tokens,
            hits=ledger.hits,
            recomputed_tokens=ledger.recomputed_tokens,
            evictions=ledger.evictions,
            loads=ledger.loads,
            load_bytes=ledger.load_bytes,
            stored_bytes=ledger.stored_bytes,
            stored_tokens=ledger.stored_tokens,
            events=ledger.seqno,
            log_bytes=sum(
                path.stat().st_size for path in LogPaths(self._directory).segment_files()
            ),
            run_requests=in_this_run,
            manager_cpu_us_per_request=self._cpu_ns / 1e3 / in_this_run if in_this_run else None,
        )


def _tier(policy: str, keys: int) -> TiersConfig:
    """A tier that only the books know: a manager without pools opens no place."""
    return TiersConfig((TierConfig("books"),), checkpoints=policy, objects=keys, catalogue="")


def _that_fits(trace: Trace, most_tokens: int) -> Trace:
    """A trace without the requests that would never be admitted; their sessions go on."""
    sessions = [
        [one for one in session if one.prompt_tokens + one.output_tokens <= most_tokens]
        for session in trace.sessions
    ]
    return replace(trace, sessions=[session for session in sessions if session])
