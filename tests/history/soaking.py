"""Both sides of a soak, run as children and killed by their parent: an engine, a follower.

    python -m tests.history.soaking engine DIRECTORY SHARED SEED
    python -m tests.history.soaking follower DIRECTORY SHARED MEMORY

Both print a line of JSON now and then.
"""

import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstrata import CacheConfig, CacheManager, LogConfig, OutOfPages, Request
from kvstrata.core.presets import attention_layout
from kvstrata.core.ring import RING_DURABLE
from kvstrata.eventstore.history.follower import Follower

LAYOUT = attention_layout(2, sliding_layers=[1], window=16, block_tokens=16, rollback_tokens=4)
SEGMENT_BYTES = 2 << 20
TOLD = ("requests", "prompt_tokens", "device_tokens", "computed_tokens", "evicted_blocks")


def soak_config(shared: Path) -> CacheConfig:
    """Pools that evict all the time, segments that rotate every few tenths of a second."""
    return CacheConfig(
        slots={"full": 4000, "swa": 300},
        max_sequences=8,
        max_leases=4,
        max_tokens_per_sequence=8192,
        admission=None,
        digest_bytes_per_s=1 << 27,
        log=LogConfig(
            ring_events=1 << 16,
            segment_bytes=SEGMENT_BYTES + (1 << 20),
            sync_interval_ms=2.0,
            retention_bytes=192 << 20,
            shared_memory_root=shared,
        ),
    )


def prompts(seed: int) -> Iterator[npt.NDArray[np.int32]]:
    """Conversations that go on, and begin anew."""
    dice = np.random.default_rng(seed)
    systems = [dice.integers(0, 1 << 30, 256, dtype=np.int32) for _ in range(8)]
    open_ones = [systems[number % 8] for number in range(40)]
    while True:
        number = int(dice.integers(len(open_ones)))
        told = dice.integers(0, 1 << 30, int(dice.integers(16, 2500)), dtype=np.int32)
        tokens = np.concatenate([open_ones[number], told])
        if len(tokens) > 7000:
            tokens = np.concatenate([systems[int(dice.integers(8))], told])
        open_ones[number] = tokens
        yield tokens


def serve(cache: CacheManager, tokens: npt.NDArray[np.int32], suspend: bool) -> None:
    sequence = cache.begin(cache.match(Request(tokens, model="soak")))
    try:
        for end in (*sequence.captures, len(tokens)):
            if end > sequence.position:
                step = cache.reserve([sequence.id], [end - sequence.position])
                if step.refused[0]:
                    step.abort()
                    raise OutOfPages("no pages")
                step.commit()
        if suspend:
            sequence = cache.resume(sequence.suspend(), np.append(tokens, np.int32(1)))
    except OutOfPages:
        sequence.cancel()
        return
    sequence.finish()


def run_engine(directory: Path, shared: Path, seed: int) -> None:
    """Serve until killed."""
    cache = CacheManager.open(LAYOUT, soak_config(shared), directory)
    told_s = 0.0
    for number, tokens in enumerate(prompts(seed)):
        serve(cache, tokens, number % 5 == 4)
        if number % 20 == 19:
            cache.log_digest()
        if time.monotonic() - told_s > 0.05:
            told_s = time.monotonic()
            tell(
                {"seqno": cache.stats().last_seqno, "durable": int(cache._call.ring[RING_DURABLE])}
            )


def run_follower(directory: Path, shared: Path, memory: Path) -> None:
    """Follow until killed."""
    follower = Follower(directory, shared_memory_root=shared, memory=memory)
    told_s = 0.0
    while True:
        if not follower.step():
            time.sleep(0.005)
        if time.monotonic() - told_s > 0.05:
            told_s = time.monotonic()
            tell(report(follower))


def report(follower: Follower) -> dict[str, Any]:
    """Where a follower stands, and what it found."""
    if not follower.is_open:
        return {"seqno": 0, "replayed": False}
    equal, differed = follower.digests
    found = follower.position().to_json()
    found |= {name: follower.tally.totals[name] for name in TOLD}
    found |= {"events": int(follower.tally.counts.sum()), "equal": equal, "differed": differed}
    found |= {"drift": [one.to_json() for one in follower.drift]}
    found["resident_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return found


def tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    role, place, corner, last = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    if role == "engine":
        run_engine(place, corner, int(last))
    else:
        run_follower(place, corner, Path(last))
