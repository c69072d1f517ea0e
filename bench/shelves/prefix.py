"""A long prefix of DeepSeek-V4-Flash's geometry, spilled to a folder and loaded again."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from stores.figures import timed

from kvstrata import CacheConfig, CacheManager, Rates, Request, preset
from kvstrata.tiers.config import TierConfig, TiersConfig

LAYOUT = preset("deepseek-v4-flash")
WORKERS, SPILLS = 4, 2


def block_bytes() -> int:
    """Bytes of one block's pages."""
    return LAYOUT.block_bytes


def request(num_tokens: int) -> Request:
    """The same prompt each time."""
    tokens = np.random.default_rng(7).integers(0, 100_000, num_tokens + 1, dtype=np.int32)
    return Request(tokens, model="bench")


def open_cache(folder: Path, num_tokens: int) -> CacheManager:
    """A manager with private pools, whose bytes begin as zeros, over a folder of objects."""
    blocks = num_tokens // LAYOUT.block_tokens + 8
    slots = {group.name: blocks for group in LAYOUT.history_groups}
    slots |= {group.name: 8 for group in LAYOUT.state_groups}
    config = CacheConfig(
        slots=slots,
        max_sequences=2,
        max_tokens_per_sequence=num_tokens + LAYOUT.block_tokens,
        rates=Rates(1_000, 10_000_000_000),  # computing would be slow: what is stored is loaded
        tiers=TiersConfig(
            (TierConfig(str(folder)),),
            workers=WORKERS,
            max_spills=SPILLS,
            max_queued_spills=1 << 20,
        ),
    )
    return CacheManager.open(LAYOUT, config, None, "private")


def spill(folder: Path, num_tokens: int) -> dict[str, float]:
    """Write the prefix: wall and CPU seconds until all of it is stored, and its bytes."""
    cache = open_cache(folder, num_tokens)
    assert cache.pools is not None
    rng = np.random.default_rng(3)
    for group in LAYOUT.groups:
        words = cache.pools.words(group.name)
        words[:] = rng.integers(0, 1 << 62, words.shape[1], dtype=np.uint64)
        words[:, 0] = np.arange(len(words), dtype=np.uint64)
    wanted = request(num_tokens)
    sequence = cache.begin(cache.match(wanted))
    for end in sorted({*sequence.captures, len(wanted.tokens)}):
        cache.reserve([sequence.id], [end - sequence.position]).commit()
    stored, took = timed(lambda: cache.settle_tiers(600))
    assert stored
    stats = cache.tier_stats()
    assert stats is not None
    (tier,) = stats.tiers.values()
    sequence.cancel()
    cache.close()
    return took | {"bytes": float(tier["write_bytes"])}


def load(folder: Path, num_tokens: int, is_cold: bool) -> dict[str, float]:
    """Load the prefix into pools that were in use before.

    Returns:
        Wall seconds until all of it was read, checked and sealed; wall and CPU seconds until its
        request had begun, for which every page is checked once more; and the bytes.
    """
    if is_cold:
        forget(folder)
    cache = open_cache(folder, num_tokens)
    assert cache.pools is not None
    for group in LAYOUT.groups:
        cache.pools.storage(group.name).fill_(1)
    wanted = request(num_tokens)
    sequence, took = timed(lambda: cache.begin_when_ready(wanted, 600))
    assert sequence.position == num_tokens, sequence.plan
    stats = cache.tier_stats()
    assert stats is not None
    (tier,) = stats.tiers.values()
    sequence.cancel()
    cache.close()
    return {
        "wall_s": stats.longest_load_s,
        "cpu_s": took["cpu_s"],
        "begun_wall_s": took["wall_s"],
        "bytes": float(tier["read_bytes"]),
    }


def forget(folder: Path) -> None:
    """Have the kernel forget what it holds of a folder's files."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def put_away(folder: Path) -> None:
    """Make room for another round: what this one wrote is emptied, and keeps its files.

    ext4 passes over the inodes of files deleted in the last minutes, one by one, each time it makes
    a new file: deleting them would be measured with the next round.
    """
    if not folder.exists():
        return
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    folder.rename(folder.with_name(f"{folder.name}-{time.time_ns()}"))
    os.sync()


def warm(folder: Path) -> None:
    """Have the kernel hold all of a folder's files."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()


def rate(took: dict[str, Any]) -> dict[str, Any]:
    """The same with bytes a second."""
    return took | {"bytes_per_s": took["bytes"] / max(took["wall_s"], 1e-9)}
