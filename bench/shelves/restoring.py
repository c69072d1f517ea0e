"""A prompt of the demo's model: restored from disk, and computed again."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from stores.figures import timed

from kvstrata import CacheConfig, CacheManager, Rates, Request
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model
from kvstrata.tiers.config import TierConfig, TiersConfig

CHUNK = 2048


def open_engine(folder: Path, num_tokens: int) -> Engine:
    """The demo's model over empty pools and a folder of objects."""
    model = build_tiny_model()
    layout = layout_for_model(model)
    blocks = num_tokens // layout.block_tokens + 16
    slots = {group.name: blocks for group in layout.history_groups}
    slots |= {group.name: 12 for group in layout.state_groups}
    config = CacheConfig(
        slots=slots,
        max_sequences=2,
        max_tokens_per_sequence=num_tokens + 256,
        rates=Rates(1, 10_000_000_000),
        tiers=TiersConfig((TierConfig(str(folder)),), max_queued_spills=1 << 20),
    )
    return Engine(model, CacheManager.open(layout, config, None, "private"))


def measure(folder: Path, num_tokens: int, rounds: int) -> dict[str, Any]:
    """Seconds until the first token's logits, computed and restored; and the bytes restored."""
    torch.set_num_threads(1)
    tokens = np.random.default_rng(num_tokens).integers(0, 200, num_tokens + 1, dtype=np.int32)
    request = Request(tokens, model="bench")
    engine = open_engine(folder, num_tokens)
    sequence = engine.manager.begin(engine.manager.match(request))
    _, computed = timed(lambda: engine.prefill(sequence, tokens, CHUNK))
    sequence.finish()
    engine.manager.settle_tiers(600)
    engine.manager.close()
    restored = [_restore(folder, request) for _ in range(rounds)]
    middle = sorted(restored, key=lambda one: one["wall_s"])[rounds // 2]
    return {
        "tokens": num_tokens,
        "computed_wall_s": computed["wall_s"],
        "computed_cpu_s": computed["cpu_s"],
        "restored_wall_s": middle["wall_s"],
        "restored_cpu_s": middle["cpu_s"],
        "bytes": middle["bytes"],
    }


def _restore(folder: Path, request: Request) -> dict[str, float]:
    """Load the prompt and compute its last token."""
    num_tokens = len(request.tokens) - 1
    engine = open_engine(folder, num_tokens)
    sequence, took = timed(lambda: engine.manager.begin_when_ready(request, 600))
    assert sequence.position == num_tokens, sequence.plan
    engine.prefill(sequence, request.tokens)
    stats = engine.manager.tier_stats()
    assert stats is not None
    (tier,) = stats.tiers.values()
    sequence.cancel()
    engine.manager.close()
    return took | {"bytes": float(tier["read_bytes"])}


def break_even(points: list[dict[str, Any]]) -> float | None:
    """Tokens from which on restoring is quicker, by straight lines through what was measured."""
    if len(points) < 2:
        return None
    tokens = np.array([point["tokens"] for point in points], dtype=float)
    slope, fixed = np.polyfit(tokens, [point["restored_wall_s"] for point in points], 1)
    each = float(np.mean([point["computed_wall_s"] / point["tokens"] for point in points[:1]]))
    if each <= slope:
        return None
    return float(max(fixed, 0.0) / (each - slope))
