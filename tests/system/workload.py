"""An endless load whose page bytes can be foretold: run as a child, killed by its parent.

Every history page holds a value made from its prefix and group, every state page one made from
the prefix at its position; so the parent knows what each byte of a hit must be.
"""

import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstrata import (
    CacheConfig,
    CacheLayout,
    CacheManager,
    LogConfig,
    OutOfPages,
    Request,
    Sequence,
)
from kvstrata.core import begin as core_begin
from kvstrata.core import commit as core_commit
from kvstrata.core import reserve as core_reserve
from kvstrata.core import ring as core_ring
from kvstrata.core.presets import attention_layout
from kvstrata.core.views import COMPILES
from kvstrata.core.words import Arena

Tokens = npt.NDArray[np.int32]
MODEL = "workload"


def layout() -> CacheLayout:
    """One full and one sliding group."""
    return attention_layout(2, sliding_layers=[1], window=16, block_tokens=16, rollback_tokens=4)


def config() -> CacheConfig:
    """Small pools, so that eviction is forced; small segments, so that they rotate."""
    log = LogConfig(ring_events=1 << 13, segment_bytes=1 << 20, sync_interval_ms=2.0)
    return CacheConfig(
        slots={"full": 200, "swa": 40},
        max_sequences=8,
        max_leases=4,
        max_tokens_per_sequence=1024,
        log=log,
    )


def prompts(seed: int) -> Iterator[Tokens]:
    """Prompts that share prefixes, by a fixed stream."""
    dice = np.random.default_rng(seed)
    systems = [dice.integers(0, 50, size=48, dtype=np.int32) for _ in range(4)]
    while True:
        tail = dice.integers(0, 50, size=int(dice.integers(1, 300)), dtype=np.int32)
        yield np.concatenate([systems[int(dice.integers(0, 4))], tail])


def stamp(prefix: Tokens, what: str) -> int:
    """The value that fills a page."""
    return hashlib.sha256(what.encode() + prefix.tobytes()).digest()[0]


def fill(cache: CacheManager, sequence: Sequence, tokens: Tokens, start: int, image: int) -> None:
    """Write what a step up to ``len(tokens)`` writes: history pages and one image."""
    assert cache.pools is not None
    slots = cache.block_slots(sequence, "full")
    size = cache.layout.block_tokens
    first = max(start, sequence.protected) // size
    for index in range(first, -(-len(tokens) // size)):
        value = stamp(tokens[: (index + 1) * size], "full")
        cache.pools.storage("full")[int(slots[index])] = value
    cache.pools.storage("swa")[image] = stamp(tokens, "swa")


def serve(cache: CacheManager, prompt: Tokens, num_output: int) -> None:
    """One request: prefill in steps that end at its captures, then decode."""
    sequence = cache.begin(cache.match(Request(prompt, model=MODEL)))
    try:
        tokens = prompt
        ends = [end for end in sequence.captures if end > sequence.position]
        for end in [*ends, len(prompt)]:
            if end > sequence.position:
                run_step(cache, sequence, prompt[:end])
        for token in range(num_output):
            tokens = np.append(tokens, np.int32(token % 50))
            run_step(cache, sequence, tokens)
    except OutOfPages:
        sequence.cancel()
        return
    sequence.finish()


def run_step(cache: CacheManager, sequence: Sequence, tokens: Tokens) -> None:
    """Compute up to ``len(tokens)``."""
    start = sequence.position
    step = cache.reserve([sequence.id], [len(tokens) - start])
    if step.refused[0]:
        step.abort()
        raise OutOfPages("no pages")
    fill(cache, sequence, tokens, start, step.image_slots(0)[1]["swa"])
    step.commit(tokens=tokens[start:])


def work(directory: Path, seed: int, report: int) -> None:
    """Serve until killed; after each flush, report the acknowledged seqno to a file descriptor."""
    cache = CacheManager.open(layout(), config(), directory, "shared")
    for number, prompt in enumerate(prompts(seed)):
        serve(cache, prompt, number % 40)
        if number % 3 == 2:
            seqno = cache.stats().last_seqno
            cache.flush()
            os.write(report, seqno.to_bytes(8, "little"))


def die_at(wanted: str, countdown: int) -> None:
    """Have this process kill itself the ``countdown``-th time it comes to a phase of a call.

    Args:
        wanted: ``decide`` (room was found, nothing emitted yet) or ``ring write`` (events stand in
            the ring, unpublished). Both are inside compiled code, so it must not be compiled.
        countdown: how often it goes on before.
    """
    assert not COMPILES, "run with NUMBA_DISABLE_JIT=1"
    left = countdown

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if wanted == "decide":
        for module in (core_reserve, core_commit, core_begin):
            found = module.quarter_is_free

            def looked(ring: Arena, head: int, found: Any = found) -> bool:
                count()
                return bool(found(ring, head))

            setattr(module, "quarter_is_free", looked)  # noqa: B010
    else:
        store = core_ring.store_release

        def stored(array: Arena, place: int, value: int) -> None:
            count()
            store(array, place, value)

        core_ring.store_release = stored


if __name__ == "__main__":
    die_at(sys.argv[3], int(sys.argv[4]))
    work(Path(sys.argv[1]), int(sys.argv[2]), 1)
