"""The stock cache of transformers as oracle: fed the same calls, truncated by plain functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DeepseekV4ForCausalLM, DynamicCache

ROWS = ("kv", "gate", "overlap_kv", "overlap_gate", "entries")


@dataclass
class LayerHistory:
    """Every raw row one stock layer was given or made, by name, each [1, count, ...]."""

    keys: list[Tensor] = field(default_factory=list)
    kv: dict[str, list[Tensor]] = field(default_factory=dict)
    gate: dict[str, list[Tensor]] = field(default_factory=dict)
    overlap_kv: dict[str, list[Tensor]] = field(default_factory=dict)
    overlap_gate: dict[str, list[Tensor]] = field(default_factory=dict)
    entries: dict[str, list[Tensor]] = field(default_factory=dict)


class StockModel:
    """A model with the stock cache, which remembers the raw rows so that it can be truncated."""

    def __init__(self, model: DeepseekV4ForCausalLM) -> None:
        self.model = model
        self.cache = DynamicCache(config=model.config)
        self.history = [record_layer(layer) for layer in self.cache.layers]

    def forward(self, tokens: Sequence[int]) -> Tensor:
        """Feed one call; returns its logits, [len(tokens), vocabulary]."""
        with torch.no_grad():
            ids = torch.tensor([list(tokens)], dtype=torch.long)
            logits: Tensor = self.model(input_ids=ids, cache=self.cache).logits[0]
        return logits

    def feed(self, tokens: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """Feed calls of the given sizes over `tokens`; returns all logits in order."""
        assert sum(sizes) == len(tokens)
        logits, start = [], 0
        for size in sizes:
            logits.append(self.forward(tokens[start : start + size]))
            start += size
        return torch.cat(logits)

    def fork(self, position: int) -> StockModel:
        """Copy the state this cache had after `position` tokens of its calls, at least 1."""
        copy = StockModel(self.model)
        layers: list[Any] = list(copy.cache.layers)
        for layer, ours, theirs in zip(layers, self.history, copy.history, strict=True):
            theirs.keys = list(ours.keys)
            for rows in ROWS:
                getattr(theirs, rows).update(
                    {name: list(tensors) for name, tensors in getattr(ours, rows).items()}
                )
            layer.lazy_initialization(ours.keys[0], ours.keys[0])
        copy.truncate(position)
        return copy

    def truncate(self, position: int) -> None:
        """Put the cache back to the state it has after `position` tokens of these calls."""
        for layer, history in zip(self.cache.layers, self.history, strict=True):
            truncate_layer(layer, history, position)


def record_layer(layer: Any) -> LayerHistory:
    """Wrap the four entry points of a stock layer so that what passes through is kept."""
    history = LayerHistory()

    def keep(rows: dict[str, list[Tensor]], name: str, tensor: Tensor) -> None:
        rows.setdefault(name, []).append(tensor.detach().clone())

    def wrap(method: str, record: Callable[..., None]) -> None:
        stock = getattr(layer, method, None)
        if stock is not None:

            def recorded(*args: Any, **kwargs: Any) -> Any:
                record(*args)
                return stock(*args, **kwargs)

            setattr(layer, method, recorded)

    def on_update(keys: Tensor, *_: Any) -> None:
        history.keys.append(keys.detach().clone())

    def on_store(name: str, kv: Tensor, gate: Tensor) -> None:
        keep(history.kv, name, kv)
        keep(history.gate, name, gate)

    def on_overlap(name: str, kv: Tensor, gate: Tensor, head_dim: int) -> None:
        keep(history.overlap_kv, name, kv[..., :head_dim])
        keep(history.overlap_gate, name, gate[..., :head_dim])

    def on_entries(name: str, entries: Tensor) -> None:
        keep(history.entries, name, entries)

    wrap("update", on_update)
    wrap("store_compression_weights", on_store)
    wrap("update_overlap_state", on_overlap)
    wrap("update_compressor_states", on_entries)
    return history


def truncate_layer(layer: Any, history: LayerHistory, position: int) -> None:
    """Rebuild one stock layer's state at `position` from its raw rows, and forget the rest."""
    keys = torch.cat(history.keys, dim=2)[:, :, :position]
    history.keys = [keys]
    layer.keys = layer.values = keys[:, :, max(0, position - layer.sliding_window + 1) :]
    layer.cumulative_length = position
    for name in history.kv:
        ratio = layer.compress_rate
        closed = position // ratio
        kv = _cut(history.kv, name, position)
        gate = _cut(history.gate, name, position)
        layer.buffer_kv[name], layer.buffer_gate[name] = (
            kv[:, closed * ratio :],
            gate[:, closed * ratio :],
        )
        layer.compressed_kv[name] = _cut(history.entries, name, closed)
        layer.entry_count[name] = closed
        if name in history.overlap_kv:
            overlap_kv = _cut(history.overlap_kv, name, closed)
            overlap_gate = _cut(history.overlap_gate, name, closed)
            layer.overlap_kv[name] = overlap_kv[:, -1] if closed else None
            layer.overlap_gate[name] = overlap_gate[:, -1] if closed else None


def _cut(rows: dict[str, list[Tensor]], name: str, count: int) -> Tensor:
    whole = torch.cat(rows[name], dim=1)[:, :count]
    rows[name] = [whole]
    return whole
