"""Use every compiled function once, so that an engine's first request waits for no compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from kvstrata import BlockTables, CacheConfig, CacheManager, LogConfig, Request, Sequence
from kvstrata.core.arena import open_tables
from kvstrata.core.events import EVENT_DTYPE, EventType
from kvstrata.core.loading import LOAD_WORDS, drain_load
from kvstrata.core.presets import attention_layout
from kvstrata.core.quarantine import mark_dirty
from kvstrata.core.replay import apply_events
from kvstrata.core.ring import new_ring
from kvstrata.core.spilling import FOUND_WORDS, find_idle_unstored
from kvstrata.dropping import drop_units, find_below
from kvstrata.eventstore.history.tally import Tally
from kvstrata.tiers.config import TierConfig, TiersConfig

__all__ = ["NUM_STAGES", "warm"]

_LAYOUT = attention_layout(num_layers=2, sliding_layers=(1,), window=16)
_PATIENCE_S = 1800.0
_PROMPT = Request(tokens=np.arange(100, dtype=np.int32), model="warmup")


def _begin(cache: CacheManager) -> Sequence:
    # A page that was rejected may have been stored before: then it is loaded again.
    return cache.begin_when_ready(_PROMPT, _PATIENCE_S)


def _run_prompt(cache: CacheManager, sequence: Sequence) -> None:
    ends = [*sequence.captures, sequence.plan.prompt_tokens]
    for end in ends:
        if end > sequence.position:
            cache.reserve([sequence.id], [end - sequence.position]).commit()


def _serve(cache: CacheManager) -> None:
    sequence = _begin(cache)
    _run_prompt(cache, sequence)
    for _ in range(2):
        decoded = np.arange(20, dtype=np.int32)
        cache.reserve([sequence.id], [len(decoded)]).commit(tokens=decoded)
    cache.reserve([sequence.id], [4]).commit(accepted=[2], tokens=np.zeros(4, np.int32))
    sequence.finish()


def _give_up(cache: CacheManager) -> None:
    sequence = _begin(cache)
    cache.reserve([sequence.id], [4]).abort()
    step = cache.reserve([sequence.id], [4])
    sequence.cancel()
    step.commit()


def _hold(cache: CacheManager) -> None:
    with cache.lease(cache.match(_PROMPT)) as lease:
        lease.verify()


def _reject(cache: CacheManager) -> None:
    """Damage a page that the next request would reuse."""
    sequence = _begin(cache)
    slot = int(cache.block_slots(sequence, "full")[0])
    sequence.finish()
    if cache.pools is not None:
        cache.pools.storage("full")[slot, 0] += 1
    _begin(cache).cancel()


def _suspend(cache: CacheManager) -> None:
    sequence = _begin(cache)
    _run_prompt(cache, sequence)
    child = sequence.fork()
    child.cancel()
    cache.begin_transfer(sequence).complete()
    BlockTables(cache, 2, 64).fill([sequence.id])
    cache.reserve([sequence.id], [1]).abort()
    resumed = cache.resume(sequence.suspend(), np.append(_PROMPT.tokens, 1))
    resumed.finish()


def _explain(cache: CacheManager) -> None:
    cache.register_kernel("full", "reference", "1")
    cache.scrub(1)
    cache.explain(_PROMPT)
    # Of a free page it says STALE: this layout has no index that could be dirty.
    mark_dirty(cache.arena.copy(), np.zeros(0, dtype=np.int64), 0, 1, 0, 0)
    find_below(cache.arena, (1, 1))
    drop_units(cache.arena.copy(), new_ring(1024), True, np.zeros((0, 2), dtype=np.int64), 0)


def _load(cache: CacheManager) -> None:
    """Load what the incarnation before has spilled: its private bytes are gone."""
    cache.begin_when_ready(_PROMPT, _PATIENCE_S).cancel()
    find_idle_unstored(cache.arena, 1, 1, np.zeros((1, FOUND_WORDS), dtype=np.int64))
    copy, nothing = cache.arena.copy(), np.zeros(LOAD_WORDS, dtype=np.int64)
    row = len(open_tables(copy).holders) - 1
    drain_load(copy, np.zeros(1024, dtype=np.int64), row, nothing, 0)


def _crash(cache: CacheManager) -> None:
    """Leave a sequence running and end as a crash would."""
    if cache.config.tiers is not None:
        cache.settle_tiers(_PATIENCE_S)
    _run_prompt(cache, _begin(cache))
    cache.flush()
    if cache.log is not None:
        cache.log.close(clean=False)


def _tally(cache: CacheManager) -> None:
    """Count one event, as a follower does."""
    event = np.zeros(1, dtype=EVENT_DTYPE)
    event["seqno"], event["type"] = 1, EventType.LEASE_GRANTED
    Tally(cache.layout, cache.config.arena_params(cache.layout)).add(event)


_STAGES: tuple[tuple[str, Callable[[CacheManager], Any]], ...] = (
    ("prefill and decode", _serve),
    ("abort and cancel", _give_up),
    ("lease", _hold),
    ("quarantine", _reject),
    ("suspend and fork", _suspend),
    ("explain", _explain),
    ("check integrity", CacheManager.check_integrity),
    ("crash", _crash),
)
NUM_STAGES = len(_STAGES) + 5


def warm() -> Iterator[str]:
    """Run a small engine's life in a temporary directory, in memory of this process.

    Yields:
        What is compiled next, :data:`NUM_STAGES` times.
    """
    with tempfile.TemporaryDirectory(prefix="kvstrata-warmup-") as folder:
        tiers = None
        if find_spec("sqlalchemy") and find_spec("obstore") and find_spec("alembic"):
            # Compiling takes minutes, and no load waits for it elsewhere.
            place = TierConfig(str(Path(folder) / "tier"))
            tiers = TiersConfig((place,), load_deadline_s=_PATIENCE_S)
        config = CacheConfig(
            budget_bytes=1_000_000,
            max_sequences=4,
            max_leases=4,
            max_tokens_per_sequence=1024,
            tiers=tiers,
            log=LogConfig(ring_events=4096, segment_bytes=1 << 20, shared_memory_root=Path(folder)),
        )

        def open_cache() -> CacheManager:
            return CacheManager.open(_LAYOUT, config, Path(folder) / "log", "private")

        yield "open"
        cache = open_cache()
        for name, stage in _STAGES:
            yield name
            stage(cache)
        yield "tables alone"
        with CacheManager.open(_LAYOUT, replace(config, tiers=None)) as without_bytes:
            _serve(without_bytes)
        yield "replay"
        apply_events(cache.arena.copy(), np.zeros((0, 8), dtype=np.int64))
        _tally(cache)
        yield "recovery"
        again = open_cache()
        yield "load"
        if tiers is not None:
            _load(again)
        again.close()
