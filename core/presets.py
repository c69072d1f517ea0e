"""Layouts of known models: DeepSeek-V4 by geometry or by config, and simple attention models.

DeepSeek-V4 mixes three attention types. CSA layers compress 4 tokens into an entry, each entry
made from two windows (overlap), and rank entries by an index key; HCA layers compress 128 tokens
without overlap; every layer has a sliding window over raw keys. The numbers of the presets are
the published ones of DeepSeek-V4-Flash and -Pro: fp8 entries of 584 bytes with their scales, fp4
index keys of 68 bytes with theirs, fp32 compressor rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

from .errors import ConfigError
from .groups import Component, GroupSpec, Kind, dtype_name
from .layout import CacheLayout, expected_rows

__all__ = [
    "PRESETS",
    "attention_layout",
    "layout_from_hf_config",
    "layout_from_preset",
    "sized_group",
]

CSA = "compressed_sparse_attention"
HCA = "heavily_compressed_attention"
SLIDING = "sliding_attention"


@dataclass(frozen=True)
class Row:
    """One row of a component before its number of rows is known."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def sized_group(
    name: str,
    kind: Kind,
    layers: Sequence[int],
    rows: Sequence[Row],
    block_tokens: int,
    rollback_tokens: int,
    ratio: int = 1,
    window: int = 0,
) -> GroupSpec:
    """Build a group whose components get the number of rows that the layout's rules demand.

    Args:
        name: of the group.
        kind: of the group.
        layers: model layers in ascending order.
        rows: one row of each component.
        block_tokens: tokens of a block.
        rollback_tokens: how many tokens a state image can be rolled back.
        ratio: tokens one history entry stands for.
        window: tokens a query sees, itself included; SWA only.

    Raises:
        ConfigError: the parts contradict each other.
    """
    unsized = tuple(Component(row.name, row.dtype, 1, row.shape) for row in rows)
    overlap = any(component.is_overlap for component in unsized)
    group = GroupSpec(name, kind, tuple(layers), ratio, window, overlap, unsized)
    components = tuple(
        Component(c.name, c.dtype, expected_rows(group, c, block_tokens, rollback_tokens), c.shape)
        for c in unsized
    )
    return GroupSpec(name, kind, tuple(layers), ratio, window, overlap, components)


@dataclass(frozen=True)
class DeepseekV4Geometry:
    """What a DeepSeek-V4 layout depends on; rows are (dtype, shape).

    ``csa_layers`` and ``hca_layers`` are layer numbers, the rest slide only.
    """

    num_layers: int
    csa_layers: tuple[int, ...]
    hca_layers: tuple[int, ...]
    csa_ratio: int
    hca_ratio: int
    window: int
    head_dim: int
    index_head_dim: int
    entry: tuple[str, tuple[int, ...]]
    index_key: tuple[str, tuple[int, ...]]
    tail_dtype: str
    overlap_gate_dtype: str


def _deepseek_v4_layout(
    name: str,
    geometry: DeepseekV4Geometry,
    block_tokens: int | None,
    rollback_tokens: int,
    component_dtypes: Mapping[str, str],
) -> CacheLayout:
    g = geometry
    ratios = [
        ratio
        for ratio, layers in ((g.csa_ratio, g.csa_layers), (g.hca_ratio, g.hca_layers))
        if layers
    ]
    block = block_tokens if block_tokens is not None else lcm(*ratios)
    unused = set(component_dtypes)

    def group(
        group_name: str, kind: Kind, layers: Sequence[int], rows: Sequence[Row], **sizes: int
    ) -> GroupSpec:
        keys = [f"{group_name}.{row.name}" for row in rows]
        unused.difference_update(keys)
        named = [
            Row(row.name, dtype_name(component_dtypes.get(key, row.dtype)), row.shape)
            for key, row in zip(keys, rows, strict=True)
        ]
        return sized_group(group_name, kind, layers, named, block, rollback_tokens, **sizes)

    def tail_rows(width: int) -> list[Row]:
        tail = g.tail_dtype
        return [Row("kv", tail, (width,)), Row("gate", tail, (width,))]

    def overlap_rows(head_dim: int) -> list[Row]:
        shape = (g.csa_ratio, head_dim)
        return [
            Row("overlap_kv", g.tail_dtype, shape),
            Row("overlap_gate", g.overlap_gate_dtype, shape),
        ]

    csa, hca, index = f"c{g.csa_ratio}", f"c{g.hca_ratio}", f"c{g.csa_ratio}.index"
    history: list[GroupSpec] = []
    state = [group("swa", Kind.SWA, range(g.num_layers), [Row("kv", *g.entry)], window=g.window)]
    if g.csa_layers:
        entry, key = [Row("entry", *g.entry)], [Row("key", *g.index_key)]
        history.append(group(csa, Kind.COMPRESSED, g.csa_layers, entry, ratio=g.csa_ratio))
        history.append(group(index, Kind.INDEXER, g.csa_layers, key, ratio=g.csa_ratio))
        for owner, head_dim in ((csa, g.head_dim), (index, g.index_head_dim)):
            rows = tail_rows(2 * head_dim) + overlap_rows(head_dim)
            state.append(group(f"{owner}.tail", Kind.TAIL, g.csa_layers, rows, ratio=g.csa_ratio))
    if g.hca_layers:
        entry = [Row("entry", *g.entry)]
        history.insert(
            min(1, len(history)),
            group(hca, Kind.COMPRESSED, g.hca_layers, entry, ratio=g.hca_ratio),
        )
        rows = tail_rows(g.head_dim)
        state.append(group(f"{hca}.tail", Kind.TAIL, g.hca_layers, rows, ratio=g.hca_ratio))
    if unused:
        names = ", ".join(f"{gr.name}.{c.name}" for gr in history + state for c in gr.components)
        raise ConfigError(
            f"component_dtypes: expected keys among {names}, found {', '.join(sorted(unused))}"
        )
    return CacheLayout(name, tuple(history + state), block, rollback_tokens, g.num_layers)


def layout_from_hf_config(
    config: Any,
    dtype: object,
    block_tokens: int | None,
    rollback_tokens: int,
    component_dtypes: Mapping[str, str],
) -> CacheLayout:
    """Build a DeepSeek-V4 layout; see :meth:`CacheLayout.from_hf_config`."""
    model_type = getattr(config, "model_type", type(config).__name__)
    needed = ("layer_types", "compress_rates", "sliding_window", "head_dim", "index_head_dim")
    missing = [name for name in needed if getattr(config, name, None) is None]
    if missing:
        raise ConfigError(
            f"config of {model_type!r}: expected the attributes of DeepseekV4Config, "
            f"found no {', '.join(missing)}; build a CacheLayout from GroupSpecs for other models"
        )
    types = list(config.layer_types)
    unknown = sorted(set(types) - {CSA, HCA, SLIDING})
    if unknown:
        raise ConfigError(
            f"config of {model_type!r}: expected layer types {CSA}, {HCA} or {SLIDING}, "
            f"found {', '.join(unknown)}; build a CacheLayout from GroupSpecs for other models"
        )
    model_dtype = dtype_name(dtype)
    rates = config.compress_rates
    geometry = DeepseekV4Geometry(
        num_layers=len(types),
        csa_layers=tuple(i for i, layer_type in enumerate(types) if layer_type == CSA),
        hca_layers=tuple(i for i, layer_type in enumerate(types) if layer_type == HCA),
        csa_ratio=int(rates[CSA]),
        hca_ratio=int(rates[HCA]),
        window=int(config.sliding_window),
        head_dim=int(config.head_dim),
        index_head_dim=int(config.index_head_dim),
        entry=(model_dtype, (int(config.head_dim),)),
        index_key=(model_dtype, (int(config.index_head_dim),)),
        tail_dtype=model_dtype,
        overlap_gate_dtype="fp32",
    )
    name = str(model_type).replace("_", "-").lower()
    return _deepseek_v4_layout(name, geometry, block_tokens, rollback_tokens, component_dtypes)


def _published(
    csa_layers: Sequence[int], hca_layers: Sequence[int], num_layers: int
) -> DeepseekV4Geometry:
    return DeepseekV4Geometry(
        num_layers=num_layers,
        csa_layers=tuple(csa_layers),
        hca_layers=tuple(hca_layers),
        csa_ratio=4,
        hca_ratio=128,
        window=128,
        head_dim=512,
        index_head_dim=128,
        entry=("u8", (584,)),
        index_key=("u8", (68,)),
        tail_dtype="fp32",
        overlap_gate_dtype="fp32",
    )


# Flash: two layers that only slide, then CSA and HCA in turn. Pro: two HCA layers, then the same.
PRESETS: Mapping[str, DeepseekV4Geometry] = {
    "deepseek-v4-flash": _published(range(2, 43, 2), range(3, 43, 2), 43),
    "deepseek-v4-pro": _published(range(2, 61, 2), (0, 1, *range(3, 61, 2)), 61),
}


def layout_from_preset(
    name: str, block_tokens: int | None = None, rollback_tokens: int = 8
) -> CacheLayout:
    """Build a published model's layout; see :func:`kvstrata.core.layout.preset`."""
    if name not in PRESETS:
        raise ConfigError(f"preset: expected one of {', '.join(PRESETS)}, found {name!r}")
    return _deepseek_v4_layout(name, PRESETS[name], block_tokens, rollback_tokens, {})


def attention_layout(
    num_layers: int = 2,
    sliding_layers: Sequence[int] = (),
    window: int = 0,
    block_tokens: int = 16,
    rollback_tokens: int = 8,
    shape: tuple[int, ...] = (8,),
    dtype: str = "fp32",
    name: str = "attention",
) -> CacheLayout:
    """Build the layout of a model with full and sliding-window attention layers.

    Args:
        num_layers: layers of the model.
        sliding_layers: the layers that slide; the others see everything.
        window: tokens a query of a sliding layer sees, itself included.
        block_tokens: tokens of a block.
        rollback_tokens: how many tokens a state image can be rolled back.
        shape: shape of one token's keys (and values), such as (heads, head size).
        dtype: of keys and values.
        name: of the layout.

    Returns:
        A layout with a COMPRESSED group ``full`` of ratio 1 and, if any layer slides, a SWA group
        ``swa``; both with components ``k`` and ``v``.

    Raises:
        ConfigError: no layer is full, or the sizes contradict each other.
    """
    sliding = sorted(set(sliding_layers))
    full = [layer for layer in range(num_layers) if layer not in sliding]
    rows = [Row("k", dtype_name(dtype), shape), Row("v", dtype_name(dtype), shape)]
    groups = [sized_group("full", Kind.COMPRESSED, full, rows, block_tokens, rollback_tokens)]
    if sliding:
        groups.append(
            sized_group(
                "swa", Kind.SWA, sliding, rows, block_tokens, rollback_tokens, window=window
            )
        )
    return CacheLayout(name, tuple(groups), block_tokens, rollback_tokens, num_layers)
