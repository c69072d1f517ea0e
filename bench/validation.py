"""What validation adds to a hit: the structural layers over a hit of 1M tokens, beside its match.

Thread CPU time, best of several rounds, in one run: the ratio counts. Run it as ``python
bench/validation.py``; with ``--strict`` it exits 1 where a goal is missed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from copy import copy

import numpy as np

from kvstrata import CacheConfig, CacheManager, Request, preset
from kvstrata.core.matching import find_checkpoint, walk_blocks

BLOCK = 128


def best_us(work: Callable[[], object], rounds: int) -> float:
    """Least thread CPU time of one call, after one that warms up."""
    work()
    least = float("inf")
    for _ in range(rounds):
        start = time.thread_time_ns()
        work()
        least = min(least, time.thread_time_ns() - start)
    return least / 1e3


def cached(num_tokens: int) -> tuple[CacheManager, Request]:
    """A manager of metadata that holds a prompt, and a request that goes on from it."""
    layout = preset("deepseek-v4-flash", block_tokens=BLOCK)
    history = {group.name for group in layout.history_groups}
    blocks = num_tokens // BLOCK + 64
    slots = {group.name: blocks if group.name in history else 64 for group in layout.groups}
    config = CacheConfig(slots=slots, max_sequences=4, max_tokens_per_sequence=num_tokens + 4096)
    cache = CacheManager.open(layout, config)
    prompt = np.random.default_rng(0).integers(0, 100_000, num_tokens + 5, dtype=np.int32)
    request = Request(prompt, model="bench")
    sequence = cache.begin(cache.match(request))
    for end in [*sequence.captures, len(prompt)]:
        cache.reserve([sequence.id], [end - sequence.position]).commit()
    sequence.finish()
    return cache, request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a goal is missed")
    arguments = parser.parse_args()
    cache, request = cached(arguments.tokens)
    plan = cache.match(request)
    assert plan.resume_at == arguments.tokens // BLOCK * BLOCK
    rows = np.zeros((len(plan.keys), 2), dtype=np.int64)
    found = np.zeros(2, dtype=np.int64)

    def walk() -> None:
        count = walk_blocks(cache.arena, plan.keys, rows)
        find_checkpoint(cache.arena, plan.keys, count, found)

    validation = best_us(lambda: cache.validator.structure(plan), arguments.rounds)
    index = best_us(walk, arguments.rounds)
    # A request keeps its keys: each round hashes one of its own.
    rounds = max(arguments.rounds // 5, 3)
    fresh = iter([copy(request) for _ in range(rounds + 1)])
    match = best_us(lambda: cache.match(next(fresh)), rounds)
    cache.close()
    figures = [
        ("structural validation of the hit", validation, "us"),
        ("index walk of the match", index, "us"),
        ("the match, hashing included", match, "us"),
        ("validation / index walk", validation / index, "x"),
        ("validation / match", validation / match, "x"),
    ]
    holds = validation <= match
    if arguments.json:
        print(json.dumps({name: value for name, value, _ in figures} | {"holds": holds}))
    else:
        print(f"a hit of {arguments.tokens:,} tokens, {len(plan.blocks):,} blocks")
        for name, value, unit in figures:
            print(f"  {name:40s} {value:10.2f} {unit}")
        print(f"{'ok  ' if holds else 'MISS'} validation takes no longer than the match")
    sys.exit(1 if arguments.strict and not holds else 0)


if __name__ == "__main__":
    main()
