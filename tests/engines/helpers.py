"""Models, managers and prompts that the tests of the adapter share."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DeepseekV4ForCausalLM

from kvstrata import CacheConfig, CacheManager, LogConfig, Request, Sequence
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model

SEED = 3


@cache
def tiny_model(dtype: torch.dtype) -> DeepseekV4ForCausalLM:
    """The model that the tests of one process share."""
    return build_tiny_model(SEED, dtype)


def tokens(count: int, seed: int = 0) -> NDArray[np.int32]:
    """Bytes with the repetitions of a text, the same on every machine."""
    chooser = random.Random(seed)
    words = [bytes(chooser.choices(range(256), k=chooser.randint(2, 9))) for _ in range(40)]
    text = b" ".join(chooser.choices(words, k=count))
    return np.frombuffer(text[:count], dtype=np.uint8).astype(np.int32)


def open_engine(
    model: DeepseekV4ForCausalLM, slots: int = 160, directory: Path | None = None
) -> Engine:
    """An engine over a fresh manager without a log, or over what a directory holds."""
    layout = layout_for_model(model)
    log = LogConfig() if directory is None else LogConfig(shared_memory_root=directory)
    config = CacheConfig(
        slots={group.name: slots for group in layout.groups},
        max_sequences=4,
        max_tokens_per_sequence=1024,
        log=log,
    )
    if directory is None:
        return Engine(model, CacheManager.open(layout, config, pools="private"))
    return Engine(model, CacheManager.open(layout, config, directory / "log", pools="shared"))


def request(prompt: NDArray[np.int32], **fields: Any) -> Request:
    """A request of the tiny model."""
    return Request(tokens=prompt, model="tiny", weights=f"seed-{SEED}", **fields)


def begin(engine: Engine, prompt: NDArray[np.int32], **fields: Any) -> Sequence:
    """Match and begin a prompt."""
    return engine.manager.begin(engine.manager.match(request(prompt, **fields)))


def same(ours: torch.Tensor, stock: torch.Tensor) -> bool:
    """Whether two tensors are equal in dtype, shape and every bit."""
    return ours.dtype == stock.dtype and torch.equal(ours, stock)
