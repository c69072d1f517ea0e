"""Guard bench of the core: what a step, an event and a match cost the engine's thread.

Thread CPU time, best of several rounds; the log is on (its writer runs in a thread of its own,
whose time is not the caller's). Run it as ``python bench/core.py``; with ``--strict`` it exits 1
where a goal is missed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from stores.figures import Goal

from kvstrata import CacheConfig, CacheManager, LogConfig, Request, preset, stepping
from kvstrata.core.arena import new_arena
from kvstrata.core.matching import walk_blocks
from kvstrata.core.replay import apply_events
from kvstrata.core.words import META_LAST_SEQNO
from kvstrata.eventstore.log import read_events

NUM_SEQUENCES = 256
BLOCK = 128


def best(work: Callable[[], object], rounds: int) -> float:
    """Least thread CPU seconds of one call."""
    least = float("inf")
    for _ in range(rounds):
        start = time.thread_time_ns()
        work()
        least = min(least, time.thread_time_ns() - start)
    return least / 1e9


def open_cache(directory: Path, num_blocks: int, shared: Path) -> CacheManager:
    layout = preset("deepseek-v4-flash", block_tokens=BLOCK)
    history = {group.name for group in layout.history_groups}
    slots = {group.name: num_blocks if group.name in history else 1200 for group in layout.groups}
    config = CacheConfig(
        slots=slots,
        max_sequences=NUM_SEQUENCES,
        max_tokens_per_sequence=BLOCK * 1100,
        log=LogConfig(ring_events=1 << 18, shared_memory_root=shared),
    )
    return CacheManager.open(layout, config, directory)


def bench_step(cache: CacheManager, rounds: int) -> Goal:
    """A decode step of 256 sequences, reserve and commit, no block boundary crossed."""
    dice = np.random.default_rng(0)
    sequences = []
    for _ in range(NUM_SEQUENCES):
        prompt = dice.integers(0, 1000, size=20, dtype=np.int32)
        sequences.append(cache.begin(cache.match(Request(prompt, model="bench"))))
    ids = np.array([sequence.id for sequence in sequences])
    ones = np.ones(NUM_SEQUENCES, dtype=np.int32)
    cache.reserve(ids, 20 * ones).commit()

    def step() -> None:
        cache.reserve(ids, ones).commit(tokens=ones)

    step()
    seconds = best(step, min(rounds, 90))
    for sequence in sequences:
        sequence.cancel()
    return Goal("step over 256 sequences", seconds * 1e6, 20, "us")


def bench_events(cache: CacheManager, rounds: int) -> tuple[list[Goal], np.ndarray]:
    """Prefill chunks of 64 blocks into full pools: evict, allocate, write and seal each block.

    The compiled calls alone (tables, index, idle lists, ring), and the manager's whole calls, with
    keys and the bookkeeping of checkpoints around them.
    """
    dice = np.random.default_rng(1)
    tokens = 1024 * BLOCK
    compiled = Stopwatch(stepping, ("reserve", "commit", "commit_at_once"))
    costs, compiled_costs = [], []
    prompt = np.zeros(0, np.int32)
    for _ in range(rounds):
        prompt = dice.integers(0, 1000, size=tokens + 5, dtype=np.int32)
        sequence = cache.begin(cache.match(Request(prompt, model="bench")))
        for _ in range(0, tokens, 64 * BLOCK):
            before, compiled.spent_ns = int(cache.arena[META_LAST_SEQNO]), 0
            start = time.thread_time_ns()
            cache.reserve([sequence.id], [64 * BLOCK]).commit()
            spent = time.thread_time_ns() - start
            num_events = int(cache.arena[META_LAST_SEQNO]) - before
            costs.append(spent / num_events)
            compiled_costs.append(compiled.spent_ns / num_events)
        sequence.finish()
    compiled.stop()
    return [
        Goal("one event, compiled calls of 64 blocks", min(compiled_costs), 30, "ns"),
        Goal("one event, whole calls of the manager", min(costs), 60, "ns"),
    ], prompt


class Stopwatch:
    """Sums the time spent in compiled functions that a module calls."""

    def __init__(self, module: Any, names: tuple[str, ...]) -> None:
        self._module = module
        self._functions = {name: getattr(module, name) for name in names}
        self.spent_ns = 0
        for name, function in self._functions.items():
            setattr(module, name, partial(self._timed, function))

    def _timed(self, function: Callable[..., int], *arguments: Any) -> int:
        start = time.perf_counter_ns()
        try:
            return function(*arguments)
        finally:
            self.spent_ns += time.perf_counter_ns() - start

    def stop(self) -> None:
        for name, function in self._functions.items():
            setattr(self._module, name, function)


def bench_match(cache: CacheManager, prompt: np.ndarray, rounds: int) -> Goal:
    """The index walk of a fully cached prompt of 128k tokens; hashing apart."""
    keys = Request(prompt, model="bench").keys(BLOCK)[:1024]
    plan = np.zeros((1024, 2), dtype=np.int64)
    assert walk_blocks(cache.arena, keys, plan) == 1024
    seconds = best(lambda: walk_blocks(cache.arena, keys, plan), rounds)
    return Goal("match of 128k tokens", seconds * 1e6, 40, "us")


def bench_replay(cache: CacheManager, directory: Path, rounds: int) -> tuple[Goal, Goal]:
    """The log of all that, applied to a new arena; and what apply alone costs an event."""
    params = cache.config.arena_params(cache.layout)
    events = np.concatenate(list(read_events(directory)))
    words = np.ascontiguousarray(events).view(np.int64).reshape(-1, 8)
    seconds = float("inf")
    for _ in range(rounds):
        arena = new_arena(cache.layout, params)
        start = time.thread_time_ns()
        assert apply_events(arena, words) == len(words)
        seconds = min(seconds, (time.thread_time_ns() - start) / 1e9)
    rate = len(words) / seconds
    return (
        Goal("replay", rate / 1e6, 10, "M events/s", at_most=False),
        Goal("apply alone", 1e9 / rate, 30, "ns an event"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=65_536, help="pages of each history pool")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a goal is missed")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kvstrata-bench-") as folder,
        tempfile.TemporaryDirectory(prefix="kvstrata-bench-", dir="/dev/shm") as shared,
    ):
        directory = Path(folder) / "log"
        cache = open_cache(directory, arguments.blocks, Path(shared))
        figures = [bench_step(cache, 90)]
        events, prompt = bench_events(cache, max(arguments.rounds, arguments.blocks // 900))
        figures += [*events, bench_match(cache, prompt, arguments.rounds)]
        cache.flush()
        figures += bench_replay(cache, directory, 5)
        cache.close()
    if arguments.json:
        print(json.dumps([figure.to_json() for figure in figures]))
    else:
        for figure in figures:
            print(figure)
    sys.exit(1 if arguments.strict and not all(figure.holds for figure in figures) else 0)


if __name__ == "__main__":
    main()
