"""The layout: published sizes, rules of a page, refusals, and the round trip through JSON."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstrata.core.errors import ConfigError
from kvstrata.core.groups import Component, GroupSpec, Kind
from kvstrata.core.layout import CacheLayout, preset, render, render_totals
from kvstrata.core.presets import Row, attention_layout, sized_group

CSA, HCA, SLIDING = (
    "compressed_sparse_attention",
    "heavily_compressed_attention",
    "sliding_attention",
)


def tiny_config(**changes: object) -> SimpleNamespace:
    """The attributes of a small DeepseekV4Config that a layout depends on."""
    fields: dict[str, object] = {
        "model_type": "deepseek_v4",
        "layer_types": [SLIDING, CSA, HCA, CSA],
        "compress_rates": {CSA: 4, HCA: 16},
        "sliding_window": 16,
        "head_dim": 32,
        "index_head_dim": 16,
    }
    return SimpleNamespace(**{**fields, **changes})


# The geometry section of the project's comparison notes: layers, 584-byte entries, 68-byte keys.
@pytest.mark.parametrize(
    ("name", "layers", "bytes_per_token", "window_megabytes"),
    [
        ("deepseek-v4-flash", (43, 21, 20), 3514.25, 3.21),
        ("deepseek-v4-pro", (61, 30, 31), 5031.4375, 4.56),
    ],
)
def test_presets_have_the_published_sizes(
    name: str, layers: tuple[int, int, int], bytes_per_token: float, window_megabytes: float
) -> None:
    layout = preset(name, rollback_tokens=1)
    found = (layout.num_layers, layout.group("c4").num_layers, layout.group("c128").num_layers)
    assert found == layers
    assert layout.bytes_per_token == bytes_per_token
    assert layout.group("swa").rows == 128
    assert round(layout.group("swa").page_bytes / 1e6, 2) == window_megabytes
    assert layout.block_tokens == layout.hit_unit == 128


def test_groups_of_a_small_deepseek_v4() -> None:
    layout = CacheLayout.from_hf_config(tiny_config(), "torch.bfloat16")
    assert [(g.name, g.kind, g.ratio, g.layers) for g in layout.groups] == [
        ("c4", Kind.COMPRESSED, 4, (1, 3)),
        ("c16", Kind.COMPRESSED, 16, (2,)),
        ("c4.index", Kind.INDEXER, 4, (1, 3)),
        ("swa", Kind.SWA, 1, (0, 1, 2, 3)),
        ("c4.tail", Kind.TAIL, 4, (1, 3)),
        ("c4.index.tail", Kind.TAIL, 4, (1, 3)),
        ("c16.tail", Kind.TAIL, 16, (2,)),
    ]
    shapes = {
        f"{g.name}.{c.name}": (c.dtype, g.component_shape(c.name))
        for g in layout.groups
        for c in g.components
    }
    assert shapes == {
        "c4.entry": ("bf16", (2, 4, 32)),
        "c16.entry": ("bf16", (1, 1, 32)),
        "c4.index.key": ("bf16", (2, 4, 16)),
        "swa.kv": ("bf16", (4, 23, 32)),
        "c4.tail.kv": ("bf16", (2, 12, 64)),
        "c4.tail.gate": ("bf16", (2, 12, 64)),
        "c4.tail.overlap_kv": ("bf16", (2, 3, 4, 32)),
        "c4.tail.overlap_gate": ("fp32", (2, 3, 4, 32)),
        "c4.index.tail.kv": ("bf16", (2, 12, 32)),
        "c4.index.tail.gate": ("bf16", (2, 12, 32)),
        "c4.index.tail.overlap_kv": ("bf16", (2, 3, 4, 16)),
        "c4.index.tail.overlap_gate": ("fp32", (2, 3, 4, 16)),
        "c16.tail.kv": ("bf16", (1, 24, 32)),
        "c16.tail.gate": ("bf16", (1, 24, 32)),
    }


def test_the_transformers_config_is_understood() -> None:
    transformers = pytest.importorskip("transformers")
    fields = vars(tiny_config())
    fields.pop("model_type")
    config = transformers.DeepseekV4Config(num_hidden_layers=4, **fields)
    expected = CacheLayout.from_hf_config(tiny_config(), "fp32")
    assert CacheLayout.from_hf_config(config, "float32") == expected


def test_component_dtypes_override_one_component() -> None:
    changes = {"c4.tail.gate": "fp32", "c4.tail.overlap_gate": "bf16"}
    layout = CacheLayout.from_hf_config(tiny_config(), "bf16", component_dtypes=changes)
    tail = layout.group("c4.tail")
    assert [c.dtype for c in tail.components] == ["bf16", "fp32", "bf16", "bf16"]
    with pytest.raises(ConfigError, match=r"expected keys among c4\.entry.*found c5\.entry"):
        CacheLayout.from_hf_config(tiny_config(), "bf16", component_dtypes={"c5.entry": "bf16"})


def test_a_model_without_one_of_the_compressors() -> None:
    only_hca = CacheLayout.from_hf_config(tiny_config(layer_types=[SLIDING, HCA]), "fp32")
    assert [g.name for g in only_hca.groups] == ["c16", "swa", "c16.tail"]
    only_csa = CacheLayout.from_hf_config(tiny_config(layer_types=[CSA]), "fp32")
    assert (only_csa.block_tokens, only_csa.lcm) == (4, 4)
    with pytest.raises(ConfigError, match="at least one COMPRESSED group"):
        CacheLayout.from_hf_config(tiny_config(layer_types=[SLIDING]), "fp32")


def test_attention_layout_has_full_and_sliding_groups() -> None:
    layout = attention_layout(4, sliding_layers=[0, 2], window=8, shape=(2, 4), rollback_tokens=3)
    full, swa = layout.groups
    assert (full.name, full.ratio, full.layers) == ("full", 1, (1, 3))
    assert (swa.name, swa.rows, swa.layers) == ("swa", 10, (0, 2))
    assert layout.bytes_per_token == 2 * 2 * 8 * 4
    assert attention_layout(2).state_groups == ()


def test_components_begin_and_pages_end_at_64_bytes() -> None:
    rows = [Row("a", "u8", (3,)), Row("b", "bf16", (5,)), Row("c", "fp32", (1,))]
    group = sized_group("g", Kind.COMPRESSED, (0, 1, 2), rows, 7, 1)
    # a: 3 layers * 7 rows * 3 bytes = 63 -> b at 64; b: 210 bytes -> c at 320; c: 84 -> page 448
    assert [group.component_offset(name) for name in "abc"] == [0, 64, 320]
    assert group.page_bytes == 448
    assert group.entry_bytes == 3 * (3 + 10 + 4)


@given(
    block_blocks=st.integers(1, 5),
    rollback=st.integers(1, 40),
    window=st.integers(2, 40),
    dtype=st.sampled_from(["bf16", "fp16", "fp32"]),
)
def test_json_round_trip_and_digest(
    block_blocks: int, rollback: int, window: int, dtype: str
) -> None:
    config = tiny_config(sliding_window=window)
    layout = CacheLayout.from_hf_config(config, dtype, 16 * block_blocks, rollback)
    assert CacheLayout.from_json(layout.to_json()) == layout
    assert CacheLayout.from_json(layout.to_json()).digest() == layout.digest()
    assert len(layout.digest()) == 16
    assert replace(layout, name="other").digest() != layout.digest()
    for index, group in enumerate(layout.groups):
        assert layout.group_id(group.name) == index
        assert layout.page_bytes(index) % 64 == 0


def test_the_digest_is_fixed() -> None:
    """A digest that changes without a new format would set every stored directory aside."""
    assert preset("deepseek-v4-flash").digest().hex() == "ea00a9e28ab8e2427ce8a8acb547bd05"
    assert preset("deepseek-v4-pro").digest().hex() == "df0b0eead4cbc31a8f06e5553b48ccf5"


def test_state_rings_hold_what_a_rollback_needs() -> None:
    """From any P, every P' in [P - rollback, P] finds its rows not yet overwritten."""
    for rollback in range(1, 20):
        layout = CacheLayout.from_hf_config(tiny_config(), "fp32", rollback_tokens=rollback)
        swa, tail = layout.group("swa"), layout.group("c4.tail")
        for position in range(rollback, 64):
            resumed = position - rollback
            kept = range(position - swa.rows, position)
            assert kept.start <= resumed - (swa.window - 1)
            assert position - tail.rows <= resumed - resumed % 4
            windows = tail.component("overlap_kv").rows
            assert position // 4 - windows <= max(resumed // 4 - 1, 0)


def _group(**changes: object) -> GroupSpec:
    base = attention_layout(2).groups[0]
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a/b"}, "found 'a/b'"),
        ({"kind": Kind.DISK}, "group full: expected kind COMPRESSED.*DISK"),
        ({"layers": (1, 0)}, r"ascending layer numbers, found \(1, 0\)"),
        ({"layers": ()}, "one or more ascending layer numbers"),
        ({"ratio": 0}, "ratio of at least 1, found 0"),
        ({"window": 4}, "window 0 in a COMPRESSED group, found 4"),
        ({"kind": Kind.SWA, "window": 1}, "window of at least 2 and ratio 1, found window 1"),
        ({"overlap": True}, "components named overlap_\\*"),
        ({"components": ()}, "one or more components"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_group_refusals(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _group(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_tokens": 24}, "block_tokens to be a multiple of 16.*found 24"),
        ({"rollback_tokens": 0}, "at least 1"),
        ({"rollback_tokens": 9}, r"24 rows in swa\.kv, found 23"),
        ({"num_layers": 3}, "layers of group c4 below 3, found 3"),
        ({"name": ""}, "layout: expected a name"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_layout_refusals(changes: dict[str, object], message: str) -> None:
    layout = CacheLayout.from_hf_config(tiny_config(), "fp32")
    with pytest.raises(ConfigError, match=message):
        replace(layout, **changes)  # type: ignore[arg-type]


def test_groups_in_the_wrong_company_are_refused() -> None:
    layout = CacheLayout.from_hf_config(tiny_config(), "fp32")
    c4, c16, index, swa, *_ = layout.groups
    for groups, message in [
        ((swa, c4), "history groups before state groups, found swa, c4"),
        ((c4, c4), "unique group names"),
        ((index,), "a COMPRESSED group with the ratio 4 and the layers of c4.index, found none"),
        ((c16, layout.group("c4.tail")), "a COMPRESSED or INDEXER group with the ratio 4"),
    ]:
        with pytest.raises(ConfigError, match=message):
            replace(layout, groups=groups)


def test_component_and_lookup_refusals() -> None:
    layout = attention_layout(2)
    for dtype, rows, shape in [("int8", 1, (1,)), ("u8", 0, (1,)), ("u8", 1, ()), ("u8", 1, (0,))]:
        with pytest.raises(ConfigError, match="component k: expected"):
            Component("k", dtype, rows, shape)
    with pytest.raises(ConfigError, match=r"expected group one of full, found 'c4'"):
        layout.group("c4")
    with pytest.raises(ConfigError, match=r"expected component one of k, v, found 'x'"):
        layout.groups[0].component_offset("x")
    with pytest.raises(ConfigError, match=r"preset: expected one of deepseek-v4-flash.*'v5'"):
        preset("v5")


@pytest.mark.parametrize(
    "config",
    [
        SimpleNamespace(model_type="llama", head_dim=8),
        tiny_config(layer_types=["full_attention", CSA]),
        tiny_config(layer_types=None),
    ],
    ids=["other-model", "other-layer-type", "no-layer-types"],
)
def test_other_architectures_are_refused(config: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match=r"config of '.*': expected .* found"):
        CacheLayout.from_hf_config(config, "fp32")
    with pytest.raises(ConfigError, match="dtype: expected one of"):
        CacheLayout.from_hf_config(tiny_config(), "int4")


@pytest.mark.parametrize("damage", ["groups", "block_tokens", "extra", "kind", "not-a-list"])
def test_damaged_json_is_refused(damage: str) -> None:
    fields = attention_layout(2).to_json()
    if damage == "extra":
        fields["colour"] = "red"
    elif damage == "kind":
        fields["groups"][0]["kind"] = "RECURRENT"
    elif damage == "not-a-list":
        fields["groups"] = 3
    else:
        del fields[damage]
    with pytest.raises(ConfigError, match="layout: expected the fields"):
        CacheLayout.from_json(fields)


def test_render_shows_every_group_and_the_totals() -> None:
    layout = preset("deepseek-v4-flash", rollback_tokens=1)
    rows = render(layout)
    assert rows[0] == (
        "group", "kind", "ratio", "layers", "rows a page", "page bytes", "bytes a block",
    )  # fmt: skip
    assert [row[0] for row in rows[1:]] == [group.name for group in layout.groups]
    assert rows[1] == ("c4", "COMPRESSED", "4", "21", "32", "392,448", "392,448")
    assert rows[4] == ("swa", "SWA", "-", "43", "128", "3,214,336", "-")
    assert dict(render_totals(layout)) == {
        "bytes a token": "3,514.25",
        "bytes a block": "449,856",
        "image bytes": "15,717,376",
        "lcm of ratios": "128 tokens",
        "effective hit unit": "128 tokens",
    }


def test_printing_a_layout_shows_its_table() -> None:
    layout = preset("deepseek-v4-flash")
    printed = str(layout)
    for row in render(layout):
        assert all(cell in printed for cell in row)
    for name, value in render_totals(layout):
        assert f"{name}: {value}" in printed
