"""Numeric drift: sealed pages beside what the model computes again for their prefix.

A checksum says that bytes are those that were sealed, not that they were right. Here a block of a
prefix is computed from nothing with the stock cache, and its pages are compared, group by group
and layer by layer. Computed by other calls, the same tokens differ by rounding: the tolerance is
for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DeepseekV4ForCausalLM, DynamicCache

from kvstrata import Comparison, ConfigError, GroupSpec, Kind, Request

from .calls import split_calls
from .pages import EntryRange, PoolRows, RingRange

__all__ = ["PageComparer", "relative_tolerance"]

_COMPRESSORS = {Kind.COMPRESSED: ("compressor", "entry"), Kind.INDEXER: ("indexer", "key")}


def relative_tolerance(dtype: torch.dtype) -> float:
    """What rounding may come to, as a part of the largest value: 2**-10, in 16 bits 2**-3."""
    return 2.0**-10 if dtype.itemsize >= 4 else 2.0**-3


class PageComparer:
    """Computes blocks again and compares their pages.

    Args:
        model: in evaluation mode.
        rows: the pools of a manager.
        tolerance: the largest difference that is no drift, as a part of the largest value of a
            page's layer; None for what the model's dtype rounds.
        seed: of the choice of blocks.

    Raises:
        ConfigError: the tolerance is negative.
    """

    def __init__(
        self,
        model: DeepseekV4ForCausalLM,
        rows: PoolRows,
        tolerance: float | None = None,
        seed: int = 0,
    ) -> None:
        if tolerance is not None and not tolerance >= 0:
            raise ConfigError(f"tolerance: expected at least 0, found {tolerance}")
        self._model = model
        self._rows = rows
        self._tolerance = tolerance
        self._dice = np.random.default_rng(seed)

    def compare(
        self, request: Request, index: int | None = None, chunk: int | None = None
    ) -> list[Comparison]:
        """Compare one block of a prefix, and the checkpoint at its end where there is one.

        Args:
            request: whose prefix it is.
            index: of the block; None for one of those that are here, by chance.
            chunk: most tokens of a call.

        Returns:
            What was compared, a page and layer each, all of it logged; empty where nothing is here.

        Mutates: the manager's log; pages that drifted are quarantined.
        """
        manager = self._rows.manager
        block_tokens = manager.layout.block_tokens
        if index is None:
            here = manager.match(request).history_tokens // block_tokens
            if not here:
                return []
            index = int(self._dice.integers(here))
        pages = manager.sealed_pages(request, index)
        if not pages:
            return []
        layers: Any = self._compute(request, (index + 1) * block_tokens, chunk)
        found = []
        for group in manager.layout.groups:
            slot = pages.get(group.name)
            if slot is not None:
                every = (
                    self._compare_layer(group, slot, layer, layers[layer], index)
                    for layer in group.layers
                )
                found += [one for one in every if one.entries]
        # Once all were compared: what is withdrawn first might free a page of the others.
        for comparison in found:
            manager.report_comparison(comparison)
        return found

    def _compute(self, request: Request, num_tokens: int, chunk: int | None) -> Any:
        """The stock cache's layers after a prefix was computed from nothing."""
        ids = torch.from_numpy(request.tokens[:num_tokens].astype(np.int64))[None]
        cache = DynamicCache(config=self._model.config)
        with torch.no_grad():
            for start, end in split_calls(0, num_tokens, (), chunk):
                self._model(input_ids=ids[:, start:end], cache=cache)
        return cache.layers

    def _compare_layer(
        self, group: GroupSpec, slot: int, layer: int, stock: Any, index: int
    ) -> Comparison:
        worst, entries, scale = 0.0, 0, 0.0
        products = torch.zeros(3, dtype=torch.float64)
        for stored, computed in self._pairs(group, slot, layer, stock, index):
            one, other = stored.double().cpu().flatten(), computed.double().cpu().flatten()
            if len(one):
                worst = max(worst, float((one - other).abs().max()))
                scale = max(scale, float(other.abs().max()))
                products += torch.stack([one @ other, one @ one, other @ other])
            if not torch.isfinite(one).all():
                worst = float("inf")
            entries += stored.shape[1]
        dot, mine, theirs = products.tolist()
        norm = (mine * theirs) ** 0.5
        tolerance = self._tolerance
        if tolerance is None:
            tolerance = relative_tolerance(self._model.dtype)
        return Comparison(
            group=group.name,
            slot=slot,
            layer=layer,
            entries=entries,
            max_abs=worst,
            cosine=dot / norm if norm else float(mine == theirs),
            tolerance=tolerance * max(scale, 1e-6),
        )

    def _pairs(
        self, group: GroupSpec, slot: int, layer: int, stock: Any, index: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """What is stored and what was computed, [1, count, ...] each."""
        end = (index + 1) * self._rows.manager.layout.block_tokens
        if group.kind in _COMPRESSORS:
            name, component = _COMPRESSORS[group.kind]
            at = EntryRange(np.array([slot], np.int32), group.rows, 0, group.rows)
            first = index * group.rows
            entries = stock.compressed_kv[name][:, first : first + group.rows]
            yield self._rows(group.name, component, layer).read(at), entries
        elif group.kind is Kind.SWA:
            window = RingRange(slot, max(0, end - group.window + 1), end)
            keys = stock.keys[0, :, stock.keys.shape[2] - len(window) :]
            yield self._rows(group.name, "kv", layer).read(window), keys
        elif group.overlap:
            closed = end // group.ratio
            last = RingRange(slot, closed - 1, closed)
            name = "indexer" if "index" in group.name else "compressor"
            for component in ("overlap_kv", "overlap_gate"):
                row = self._rows(group.name, component, layer).read(last)[:, 0]
                yield row, getattr(stock, component)[name]
