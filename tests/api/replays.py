"""Small traces, and replays of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from kvstrata import CacheLayout
from kvstrata.api.replay import Outcome, Replay
from kvstrata.api.traces import Trace, read_trace
from kvstrata.core.presets import attention_layout

BLOCK = 4
FULL = attention_layout(block_tokens=BLOCK, rollback_tokens=4)
"""History groups alone."""
HYBRID = attention_layout(sliding_layers=(1,), window=6, block_tokens=BLOCK, rollback_tokens=4)
"""A sliding window besides, so that a hit needs a checkpoint or computes again."""
PLENTY = 10_000_000
"""Bytes in which every small trace fits whole."""


def write_trace(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def random_lines(seed: int, requests: int = 40, longest: int = 60) -> list[dict[str, Any]]:
    """Prompts that share prefixes of any length with prompts and answers before them."""
    dice = np.random.default_rng(seed)
    texts: list[list[int]] = [[]]
    lines = []
    for number in range(requests):
        known = texts[dice.integers(len(texts))]
        kept = known[: dice.integers(min(len(known), longest) + 1)]
        fresh = dice.integers(0, 3, dice.integers(1, 20)).tolist()
        output = dice.integers(0, 3, dice.integers(1, 12)).tolist()
        prompt = kept + fresh
        texts.append(prompt + output)
        session = {} if dice.random() < 0.5 else {"session": number % 5}
        lines.append({"tokens": prompt, "output": output, **session})
    return lines


def replayed(
    trace: Trace | Path,
    directory: Path,
    root: Path,
    layout: CacheLayout = FULL,
    budget: int = PLENTY,
    concurrency: int = 1,
) -> Outcome:
    """What a whole replay comes to."""
    if isinstance(trace, Path):
        trace = read_trace(trace)
    replay = Replay(trace, layout, budget, directory, concurrency, root)
    try:
        replay.run(lambda done: None)
    finally:
        replay.close()
    return replay.outcome()
