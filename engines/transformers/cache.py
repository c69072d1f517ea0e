"""A transformers cache for DeepSeek-V4 whose storage is kvstrata's pools.

The model's code runs unmodified. In each layer it hands the cache the rows of this call and asks
for the window before it, for the rows of the open compression window, for the overlap of the
window closed last, and for the entries of the whole history. All of that follows from the step's
position and size and lies in the pools: a cache lives for one step and keeps nothing, so a step
that is aborted or accepted in part, and a sequence that resumes, need no code here.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from kvstrata import ConfigError, InvariantViolation, Kind, Sequence, Step

from .pages import PoolRows
from .step import StepSpan

__all__ = ["KvstrataCache"]

# What the model calls a layer's compressors, and the kind and component of their history.
_COMPRESSORS = {"compressor": (Kind.COMPRESSED, "entry"), "indexer": (Kind.INDEXER, "key")}


class KvstrataCache(Cache):
    """The cache of one sequence during one step.

    Args:
        rows: the pools of the manager that the step was reserved from.
        sequence: the sequence, begun.
        step: a step of it, reserved and neither committed nor aborted.
        row: the sequence's row in the step.

    Mutates: the step's second state image, where it has one, starts as a copy of the first.
    """

    def __init__(self, rows: PoolRows, sequence: Sequence, step: Step, row: int = 0) -> None:
        span = StepSpan(rows.manager, sequence, step, row)
        if span.start > span.origin:
            _copy_images(rows, span)
        num_layers = rows.manager.layout.num_layers
        super().__init__(layers=[_StepLayer(rows, span, layer) for layer in range(num_layers)])


def _copy_images(rows: PoolRows, span: StepSpan) -> None:
    """Carry rows over that a large step does not write but its end or a rollback may read."""
    for group in rows.manager.layout.state_groups:
        source, target = span.read_slots[group.name], span.write_slots[group.name]
        if source != target:
            rows.copy_page(span.sequence, group.name, source, target)


class _Compressor:
    """One compressor of one layer during one step."""

    def __init__(
        self, rows: PoolRows, span: StepSpan, layer: int, history: str, entry: str
    ) -> None:
        tail = f"{history}.tail"
        group = rows.manager.layout.group(tail)
        self.ratio = group.ratio
        self.sequence = span.sequence
        self.span = span.tails[tail]
        self.entry_span = span.entries[history]
        self.entries = rows(history, entry, layer)
        self.kv = rows(tail, "kv", layer)
        self.gate = rows(tail, "gate", layer)
        if group.overlap:
            self.overlap_kv = rows(tail, "overlap_kv", layer)
            self.overlap_gate = rows(tail, "overlap_gate", layer)

    def store(self, kv: Tensor, gate: Tensor) -> tuple[Tensor, Tensor, int]:
        """Put the step's rows behind the open window's and return what closes windows."""
        all_kv = torch.cat([self.kv.read(self.span.open), kv], dim=1)
        all_gate = torch.cat([self.gate.read(self.span.open), gate], dim=1)
        self.kv.write(self.sequence, self.span.written, kv)
        self.gate.write(self.sequence, self.span.written, gate)
        usable = all_kv.shape[1] // self.ratio * self.ratio
        first_position = self.entry_span.computed.first * self.ratio
        return all_kv[:, :usable], all_gate[:, :usable], first_position

    def exchange_overlap(self, kv: Tensor, gate: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the window closed last and keep those the step closes, [1, windows, ...]."""
        prior, closed = self.span.prior, self.span.closed
        if prior is None or closed is None:
            raise InvariantViolation(
                f"ratio {self.ratio}: expected an overlap state only where the layout has one, "
                "found it asked for elsewhere; open the pools with layout_for_model(model)"
            )
        before: tuple[Tensor | None, Tensor | None] = (None, None)
        if len(prior):
            before = self.overlap_kv.read(prior)[:, 0], self.overlap_gate.read(prior)[:, 0]
        self.overlap_kv.write(self.sequence, closed, kv)
        self.overlap_gate.write(self.sequence, closed, gate)
        return before

    def append(self, entries: Tensor) -> Tensor:
        """Write the step's entries and return those of the whole history."""
        if entries.shape[1] != len(self.entry_span.computed):
            raise InvariantViolation(
                f"ratio {self.ratio}: expected {len(self.entry_span.computed)} new entries, found "
                f"{entries.shape[1]}; open the pools with layout_for_model(model)"
            )
        self.entries.write(self.sequence, self.entry_span.written, entries)
        return self.entries.read(self.entry_span.all)


class _StepLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # its hook is untyped
    """One attention layer during one step; answers what the stock layer of its type would."""

    # A layer type would register this class as every model's cache of that type.
    _layer_type = None
    is_sliding = True

    def __init__(self, rows: PoolRows, span: StepSpan, layer: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        self.layer = layer
        self._span = span
        self._length = span.start
        self.is_initialized = span.start > span.origin
        self._compressors: dict[str, _Compressor] = {}
        for group in rows.manager.layout.groups:
            if layer not in group.layers:
                continue
            if group.kind is Kind.SWA:
                self._keys = rows(group.name, "kv", layer)
                self._window = span.windows[group.name]
                self.sliding_window = group.window
            for name, (kind, entry) in _COMPRESSORS.items():
                if group.kind is kind:
                    self._compressors[name] = _Compressor(rows, span, layer, group.name, entry)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the window before the step and its rows as keys and as values; keep the rows.

        Args:
            key_states: [1, 1, tokens of the step, head size]; keys are values in this model.
            value_states: the same tensor.
            *args: nothing.
            **kwargs: what the attention layer was called with; unused.

        Returns:
            [1, 1, window rows + tokens, head size], twice the same.
        """
        expected = self._span.num_tokens
        if self._length != self._span.start or key_states.shape[:3] != (1, 1, expected):
            raise ConfigError(
                f"layer {self.layer}: expected one call of the step's {expected} tokens of one "
                f"sequence, found {list(key_states.shape)} at position {self._length}; reserve a "
                "step for each call and make a cache for each step"
            )
        full = torch.cat([self._keys.read(self._window.past), key_states[0]], dim=1).unsqueeze(0)
        self._keys.write(self._span.sequence, self._window.written, key_states[0])
        self._length = self._span.end
        self.is_initialized = True
        return full, full

    def store_compression_weights(
        self, name: str, kv: Tensor, gate: Tensor
    ) -> tuple[Tensor, Tensor, int]:
        """Keep rows for compression and return those that close windows.

        Args:
            name: "compressor" or "indexer".
            kv: [1, tokens, width].
            gate: [1, tokens, width].

        Returns:
            kv and gate rows of whole windows, and the position of the first.
        """
        return self._compressors[name].store(kv, gate)

    def update_overlap_state(
        self, name: str, chunk_kv: Tensor, chunk_gate: Tensor, head_dim: int
    ) -> tuple[Tensor | None, Tensor | None]:
        """Exchange the first series of the last closed window for that of the step's windows.

        Args:
            name: "compressor" or "indexer".
            chunk_kv: [1, windows, ratio, 2 * head_dim].
            chunk_gate: the same, position bias added.
            head_dim: width of the first series.

        Returns:
            kv and gate [1, ratio, head_dim] of the window before, or None and None at the start.
        """
        return self._compressors[name].exchange_overlap(
            chunk_kv[..., :head_dim], chunk_gate[..., :head_dim]
        )

    def update_compressor_states(self, name: str, compressed: Tensor) -> Tensor:
        """Keep the step's entries and return all.

        Args:
            name: "compressor" or "indexer".
            compressed: [1, new entries, head size].

        Returns:
            [1, entries, head size].
        """
        return self._compressors[name].append(compressed)

    def get_seq_length(self) -> int:
        """Tokens seen, this call's included once `update` has run."""
        return self._length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and first position of the keys that `update` returns for a query."""
        past = min(self._length - self._span.origin, self.sliding_window - 1)
        return past + query_length, self._length - past

    def get_max_length(self) -> int:
        """Tokens that a query sees uncompressed."""
        return int(self.sliding_window)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to set up: pools are allocated when the manager opens."""

    def crop(self, tokens_to_remove: int) -> NoReturn:
        """Refuse: a step is rolled back by what its commit accepts."""
        self._refuse("crop", "commit(accepted=...) or abort() of the step")

    def reset(self) -> NoReturn:
        """Refuse: a cache is not reused."""
        self._refuse("reset", "a new sequence")

    def reorder_cache(self, beam_idx: Tensor) -> NoReturn:
        """Refuse: one cache holds one sequence."""
        self._refuse("reorder_cache", "one sequence for each beam")

    def _refuse(self, found: str, instead: str) -> NoReturn:
        raise ConfigError(f"layer {self.layer}: expected {instead}, found a call of {found}")
