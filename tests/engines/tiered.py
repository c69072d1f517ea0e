"""Engines above lower tiers, and conversations that are held against the stock cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DeepseekV4ForCausalLM

from kvstrata import CacheConfig, CacheManager, LogConfig, TieringStats
from kvstrata.engines.transformers.calls import Call
from kvstrata.engines.transformers.engine import Engine, Generation
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.stock import CallHistory, replay_stock
from kvstrata.tiers.config import TierConfig, TiersConfig
from kvstrata.tiers.format import ObjectId, Schema

from .helpers import request, same

Tokens = NDArray[np.int32]
BLOCK = 16
WAIT_S = 20.0


@contextmanager
def tiered_engine(
    model: DeepseekV4ForCausalLM,
    root: Path,
    log: str = "log",
    place: str | None = None,
    **tiers: Any,
) -> Iterator[Engine]:
    """An engine whose pools die with it, above a folder that does not.

    Args:
        model: the model.
        root: of all its folders.
        log: name of the log's folder.
        place: of the only tier; a folder by default.
        **tiers: fields of TiersConfig.
    """
    layout = layout_for_model(model)
    tier = TierConfig(str(root / "disk"), "disk") if place is None else TierConfig(place)
    config = CacheConfig(
        slots={group.name: 100 for group in layout.groups},
        max_sequences=4,
        max_tokens_per_sequence=512,
        log=LogConfig(ring_events=1 << 14, segment_bytes=4 << 20, shared_memory_root=root / "shm"),
        tiers=TiersConfig((tier,), **tiers),
    )
    (root / "shm").mkdir(exist_ok=True)
    with CacheManager.open(layout, config, root / log, pools="private") as manager:
        yield Engine(model, manager)
        manager.check_integrity()


class Talk:
    """A conversation whose every answer is compared with the stock cache fed the same calls."""

    def __init__(self, model: DeepseekV4ForCausalLM, said: Tokens) -> None:
        self.model = model
        self.said = said
        self._history = CallHistory()

    def answer(
        self, engine: Engine, num_tokens: int = 10, more: Tokens | None = None
    ) -> Generation:
        """Say more and have it answered.

        Mutates: what was said.
        """
        if more is not None:
            self.said = np.concatenate([self.said, more])
        made = engine.generate(request(self.said), num_tokens, wait_s=WAIT_S)
        fed = np.concatenate([self.said, np.array(made.tokens, np.int32)])
        calls = self._history.add(fed, made.resumed_at, made.calls)
        logits = replay_stock(self.model, fed, calls)[-num_tokens:]
        assert same(made.logits, logits)
        assert made.tokens == logits.argmax(dim=-1).tolist()
        self.said = fed
        return made


def tier_stats(engine: Engine) -> TieringStats:
    """Of a manager that has tiers."""
    found = engine.manager.tier_stats()
    assert found is not None
    return found


def schema_of(engine: Engine) -> Schema:
    """What the objects of an engine agree on."""
    assert engine.manager._tiering is not None
    return engine.manager._tiering.objects.schema()


def identity_at(prompt: Tokens, position: int, is_checkpoint: bool) -> ObjectId:
    """The object of a prompt's block that ends, or checkpoint that is, at a position."""
    key = request(prompt).keys(BLOCK)[position // BLOCK - 1]
    return ObjectId(key.astype("<i8").tobytes(), is_checkpoint)


def place_of_part(schema: Schema, group: str) -> tuple[bool, int]:
    """Whether a group's pages are in checkpoints, and a byte in the middle of its page there."""
    for is_checkpoint in (False, True):
        at = schema.header_bytes(is_checkpoint)
        for part in schema.parts(is_checkpoint):
            if part.name == group:
                return is_checkpoint, at + part.page_bytes // 2
            at += part.page_bytes
    raise KeyError(group)


def uncached(model: DeepseekV4ForCausalLM, prompt: Tokens, new: list[int]) -> torch.Tensor:
    """Logits of new tokens where nothing is ever reused: the prompt in one call, then each."""
    ids = np.concatenate([prompt, np.array(new[:-1], np.int32)])
    calls = [Call(0, len(prompt), len(prompt))]
    calls += [Call(len(prompt) + at, 1, 1) for at in range(len(new) - 1)]
    return replay_stock(model, ids, calls)[len(prompt) - 1 :]
