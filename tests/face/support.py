"""Small managers and the requests they serve: what the tests of the face share."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kvstrata import CacheConfig, CacheManager, KvstrataError, LogConfig, Request, Sequence
from kvstrata.core.presets import attention_layout

LAYOUT = attention_layout(2, sliding_layers=[1], window=16, block_tokens=16, rollback_tokens=4)
"""One full and one sliding group."""
FULL = attention_layout(2, block_tokens=16, rollback_tokens=4)
"""No state group: every whole block is a resume point."""
Tokens = npt.NDArray[np.int32]


class Place:
    """A log directory with its own corner of shared memory."""

    def __init__(self, directory: Path, shared: Path) -> None:
        self.directory = directory
        self.shared = shared

    def open(
        self, pools: Any = None, log: dict[str, Any] | None = None, **changes: Any
    ) -> CacheManager:
        settings = {"shared_memory_root": self.shared} | (log or {})
        return CacheManager.open(LAYOUT, config(settings, **changes), self.directory, pools)

    def listing(self) -> dict[str, bytes]:
        """Every file of the directory and its bytes, the lock's apart."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file() and path.name != "LOCK"
        }


def config(log: dict[str, Any] | None = None, **changes: Any) -> CacheConfig:
    """Small pools and a small ring."""
    small: dict[str, Any] = {
        "ring_events": 1024,
        "segment_bytes": 1 << 20,
        "sync_interval_ms": 2.0,
    }
    settings: dict[str, Any] = {
        "slots": {"full": 40, "swa": 20},
        "max_sequences": 4,
        "max_leases": 2,
        "max_tokens_per_sequence": 512,
        "digest_bytes_per_s": 0,  # else the clock would decide which events there are
        "log": LogConfig(**(small | (log or {}))),
    }
    return CacheConfig(**(settings | changes))


def memory_manager(**changes: Any) -> CacheManager:
    """A manager of metadata alone, without a log."""
    return CacheManager.open(LAYOUT, config(**changes))


def tokens_of(name: str, length: int) -> Tokens:
    """Tokens of a text with a name: the same name gives the same beginning."""
    seed = int.from_bytes(name.encode(), "little")
    return np.random.default_rng(seed).integers(0, 1000, size=length, dtype=np.int32)


def request(name: str, length: int = 40, **fields: Any) -> Request:
    """A request for the beginning of a text."""
    wanted: dict[str, Any] = {"tokens": tokens_of(name, length), "model": "m"}
    return Request(**(wanted | fields))


def prefill(cache: CacheManager, wanted: Request) -> Sequence:
    """Begin a sequence and compute its prompt, in steps that end at its captures."""
    sequence = cache.begin(cache.match(wanted))
    for end in (*sequence.captures, len(wanted.tokens)):
        if end > sequence.position:
            cache.reserve([sequence.id], [end - sequence.position]).commit()
    return sequence


def serve(cache: CacheManager, wanted: Request, num_output: int = 0) -> int:
    """One whole request; where it resumed."""
    sequence = prefill(cache, wanted)
    for token in range(num_output):
        cache.reserve([sequence.id], [1]).commit(tokens=[token])
    sequence.finish()
    return sequence.resumed_at


def hit(cache: CacheManager, wanted: Request) -> tuple[int, int]:
    """What a request would find: its resume point, and tokens of history."""
    plan = cache.match(wanted)
    return plan.resume_at, plan.history_tokens


def check_sums(cache: CacheManager) -> None:
    """The sum law of every pool, from the statistics, and every other law."""
    for pool in cache.stats().pools:
        assert set(pool.pages) == {
            *("free", "reserved", "writing", "open", "loading", "draining", "quarantined"),
            *("sealed_idle", "sealed_pinned"),
        }
        assert sum(pool.pages.values()) == pool.slots - 1, pool
    cache.check_integrity()


def pages_in(cache: CacheManager, group: str) -> dict[str, int]:
    """Pages of one pool by state, where there are any."""
    (pool,) = [pool for pool in cache.stats().pools if pool.group == group]
    return {state: count for state, count in pool.pages.items() if count}


@contextmanager
def refused(
    cache: CacheManager, error: type[KvstrataError], *parts: str, name: str = "other"
) -> Iterator[None]:
    """What happens inside is refused, says these parts, changes nothing, and ends nothing."""
    before = cache.digest()
    with pytest.raises(error) as caught:
        yield
    assert type(caught.value) is error
    for part in parts:
        assert re.search(part, str(caught.value)), f"{part!r} is not in {caught.value}"
    assert "\n" not in str(caught.value)
    assert cache.digest() == before, "a refusal changed the tables"
    cache.check_integrity()
    assert hit(cache, request(name)) == (0, 0)
    sequence = cache.begin(cache.match(request(name)))
    sequence.cancel()


def in_another_thread(call: Callable[[], object]) -> None:
    """Call there; what it raises is raised here."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for error in caught:
        raise error
