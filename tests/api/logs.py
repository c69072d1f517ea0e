"""Log directories as engines leave them, small."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kvstrata import CacheConfig, CacheLayout, CacheManager, LogConfig, Request, Sequence
from kvstrata.core.presets import attention_layout

LAYOUT = attention_layout(sliding_layers=(1,), window=16)
PROMPT_TOKENS = 100
PROMPT = Request(tokens=np.arange(PROMPT_TOKENS), model="sample")
BLOCKS = PROMPT_TOKENS // LAYOUT.block_tokens
KEPT_PAGES = BLOCKS + 1
"""Sealed pages after one prompt: a page of each block, and one checkpoint."""


def config(shared_root: Path) -> CacheConfig:
    log = LogConfig(ring_events=4096, segment_bytes=1 << 20, shared_memory_root=shared_root)
    return CacheConfig(
        budget_bytes=1_000_000,
        max_sequences=4,
        max_leases=4,
        max_tokens_per_sequence=1024,
        log=log,
    )


def open_cache(
    directory: Path, shared_root: Path, layout: CacheLayout = LAYOUT, pools: bool = True
) -> CacheManager:
    return CacheManager.open(layout, config(shared_root), directory, "shared" if pools else None)


def run_prompt(cache: CacheManager) -> Sequence:
    sequence = cache.begin(cache.match(PROMPT))
    for end in (*sequence.captures, PROMPT_TOKENS):
        if end > sequence.position:
            cache.reserve([sequence.id], [end - sequence.position]).commit()
    return sequence


def crash(cache: CacheManager) -> None:
    """Leave the directory as a dead process would, its memory kept."""
    assert cache.log is not None
    cache.flush()
    cache.log.close(clean=False)
    assert cache.pools is not None
    cache.pools.close()


def crashed_log(directory: Path, shared_root: Path) -> Path:
    """A directory whose engine crashed: one prompt finished, another sequence running."""
    cache = open_cache(directory, shared_root)
    run_prompt(cache).finish()
    run_prompt(cache)
    crash(cache)
    return directory


def closed_log(directory: Path, shared_root: Path) -> Path:
    """A directory whose engine was closed after one prompt."""
    with open_cache(directory, shared_root) as cache:
        run_prompt(cache).finish()
    return directory
