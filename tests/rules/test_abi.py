"""The ABI descriptor: identity, JSON, and what its differences say."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstrata.core.abi import Abi, AbiComponent, Rope, abi_of
from kvstrata.core.abi_compare import differences
from kvstrata.core.errors import ConfigError
from kvstrata.core.groups import DTYPE_BYTES, Kind
from kvstrata.core.layout import preset
from kvstrata.core.presets import attention_layout

names = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,8}", fullmatch=True)
sizes = st.integers(1, 1 << 20)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000)
ropes = st.builds(
    Rope,
    theta=numbers,
    dim=sizes,
    scaling=st.dictionaries(names, numbers | st.text(max_size=4), max_size=3).map(
        lambda found: tuple(sorted(found.items()))
    ),
)
components = st.builds(
    AbiComponent,
    name=names,
    dtype=st.sampled_from(sorted(DTYPE_BYTES)),
    rows=sizes,
    shape=st.lists(sizes, min_size=1, max_size=3).map(tuple),
    offset=st.integers(0, 1 << 20),
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "group": names,
    "kind": st.sampled_from([kind.name for kind in Kind]),
    "layers": st.sets(st.integers(0, 60), min_size=1, max_size=5).map(
        lambda found: tuple(sorted(found))
    ),
    "components": st.lists(
        components, min_size=1, max_size=3, unique_by=lambda part: part.name
    ).map(tuple),
    "heads": sizes,
    "head_dim": sizes,
    "page_bytes": sizes,
    "ratio": sizes,
    "window": st.integers(0, 1 << 20),
    "overlap": st.booleans(),
    "quantisation": names,
    "rope": st.none() | ropes,
    "kernel": names,
    "kernel_version": st.text(min_size=1, max_size=6),
}
PARTS: dict[type, dict[str, st.SearchStrategy[Any]]] = {
    AbiComponent: {
        "name": names,
        "dtype": st.sampled_from(sorted(DTYPE_BYTES)),
        "rows": sizes,
        "shape": st.lists(sizes, min_size=1, max_size=3).map(tuple),
        "offset": st.integers(0, 1 << 20),
    },
    Rope: {
        "theta": numbers,
        "dim": sizes,
        "scaling": st.dictionaries(names, numbers, max_size=3).map(
            lambda found: tuple(sorted(found.items()))
        ),
    },
}
abis = st.builds(Abi, **FIELDS)


def changed(data: st.DataObject, whole: Any, table: dict[str, Any], field: str) -> Any:
    """The same value with another value in one field."""
    now = getattr(whole, field)
    return replace(whole, **{field: data.draw(table[field].filter(lambda new: new != now))})


def test_the_strategies_know_every_field() -> None:
    assert [field.name for field in fields(Abi)] == list(FIELDS)
    for part, table in PARTS.items():
        assert [field.name for field in fields(part)] == list(table)


@pytest.mark.parametrize("field", FIELDS)
@settings(max_examples=25)
@given(data=st.data(), abi=abis)
def test_another_field_is_another_digest(field: str, data: st.DataObject, abi: Abi) -> None:
    other = changed(data, abi, FIELDS, field)
    assert other != abi
    assert other.canonical() != abi.canonical()
    assert other.digest() != abi.digest()
    found = differences(abi, other)
    assert found
    assert all("expected" in sentence and "found" in sentence for sentence in found)


@pytest.mark.parametrize("field", PARTS[AbiComponent])
@settings(max_examples=25)
@given(data=st.data(), abi=abis)
def test_a_component_changed_is_another_digest(field: str, data: st.DataObject, abi: Abi) -> None:
    last = changed(data, abi.components[-1], PARTS[AbiComponent], field)
    others = {part.name for part in abi.components[:-1]}
    if last.name in others:
        return
    other = replace(abi, components=(*abi.components[:-1], last))
    assert other.digest() != abi.digest()
    assert len(differences(abi, other)) == 1


@pytest.mark.parametrize("field", PARTS[Rope])
@settings(max_examples=25)
@given(data=st.data(), abi=abis, rope=ropes)
def test_a_rope_changed_is_another_digest(
    field: str, data: st.DataObject, abi: Abi, rope: Rope
) -> None:
    one = replace(abi, rope=rope)
    other = replace(abi, rope=changed(data, rope, PARTS[Rope], field))
    assert one.digest() != other.digest()
    (sentence,) = differences(one, other)
    assert sentence.startswith(f"rope {field}: expected ")


@given(abi=abis, other=abis)
def test_differences_are_empty_exactly_where_equal(abi: Abi, other: Abi) -> None:
    assert differences(abi, replace(abi)) == ()
    assert (differences(abi, other) == ()) == (abi == other)


@given(abi=abis)
def test_json_round_trip(abi: Abi) -> None:
    text = json.dumps(abi.to_json())
    back = Abi.from_json(json.loads(text))
    assert back == abi
    assert back.digest() == abi.digest()
    assert hash(back) == hash(abi)


@given(abi=abis)
def test_word_is_31_bits_and_never_0(abi: Abi) -> None:
    assert 0 < abi.word() < 1 << 31
    assert len(abi.digest()) == 16


def test_word_of_a_digest_of_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Abi, "digest", lambda _: bytes(3) + b"\x80" + bytes(12))
    assert abi_of(preset("deepseek-v4-flash"), "c4").word() == 1


def test_canonical_form_is_pinned() -> None:
    abi = abi_of(attention_layout(num_layers=1, shape=(2, 4)), "full", heads=2)
    assert abi.canonical() == (
        b'{"components":[{"dtype":"fp32","name":"k","offset":0,"rows":16,"shape":[2,4]},'
        b'{"dtype":"fp32","name":"v","offset":512,"rows":16,"shape":[2,4]}],"group":"full",'
        b'"head_dim":4,"heads":2,"kernel":"reference","kernel_version":"1","kind":"COMPRESSED",'
        b'"layers":[0],"overlap":false,"page_bytes":1024,"quantisation":"none","ratio":1,'
        b'"rope":null,"window":0}'
    )


# A digest that changes makes every stored page unreadable: change these only with a new format.
@pytest.mark.parametrize(
    ("group", "digest", "word"),
    [
        ("c4", "af9b821a96816f62d47e0ab2bcfcc04b", 444767151),
        ("c128", "7dd5fd3c203df3df316fcd7658ed2781", 1023268221),
        ("c4.index", "ce19e7758b5250de73a1df1a4e3c8dea", 1978079694),
        ("swa", "896c271f3c97df0222e40a24e314fd77", 522677385),
        ("c4.tail", "ea1e66af5a4befd7db07a17d482efb0b", 795221738),
    ],
)
def test_golden_digests(group: str, digest: str, word: int) -> None:
    rope = Rope(10000, 64, (("factor", 16), ("type", "yarn")))
    abi = abi_of(preset("deepseek-v4-flash"), group, rope=rope, quantisation="fp8")
    assert (abi.digest().hex(), abi.word()) == (digest, word)


def test_a_group_of_a_preset() -> None:
    layout = preset("deepseek-v4-flash")
    abi = abi_of(layout, "c4.tail")
    group = layout.group("c4.tail")
    assert (abi.kind, abi.overlap, abi.ratio, abi.window) == ("TAIL", True, 4, 0)
    assert abi.page_bytes == group.page_bytes
    assert [part.offset for part in abi.components] == [
        group.component_offset(part.name) for part in group.components
    ]
    assert abi.head_dim == 1024
    assert sum(len(abi.layers) * part.layer_bytes for part in abi.components) <= abi.page_bytes


def test_sentences() -> None:
    layout = preset("deepseek-v4-flash")
    abi = abi_of(layout, "c4", rope=Rope(10000, 64))
    (entry,) = abi.components
    other = replace(
        abi, components=(replace(entry, dtype="bf16", offset=64),), rope=None, kernel_version="2"
    )
    assert differences(abi, other) == (
        "dtype of entry: expected u8, found bf16",
        "offset of entry: expected 0, found 64",
        "rope: expected theta 10000.0, dim 64, scaling (), found none",
        "kernel_version: expected 1, found 2",
    )
    two = replace(abi, components=(entry, replace(entry, name="scale")))
    assert differences(abi, two) == ("components: expected (entry), found (entry, scale)",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heads": 0}, "heads: expected at least 1, found 0"),
        ({"heads": "8"}, "heads: expected at least 1, found '8'"),
        ({"kind": "MAMBA"}, "kind: expected COMPRESSED or .*, found 'MAMBA'"),
        ({"layers": [2, 1]}, "layers: expected ascending layer numbers"),
        ({"layers": 3}, "layers: expected a list, found 3"),
        ({"components": []}, "components: expected one or more"),
        ({"components": [{"name": "k"}]}, "fields of a component: expected dtype, name"),
        ({"overlap": 1}, "overlap: expected true or false, found 1"),
        ({"quantisation": ""}, "quantisation: expected a name, found ''"),
        ({"rope": {"theta": 1.0}}, "fields of rope: expected dim, scaling, theta"),
        ({"rope": {"theta": "x", "dim": 1, "scaling": []}}, "rope theta: expected a finite number"),
        ({"rope": {"theta": 1, "dim": 1, "scaling": [["b", 1], ["a", 1]]}}, "names sorted"),
        ({"rope": {"theta": 1, "dim": 1, "scaling": [["b"]]}}, "expected the fields"),
        ({"group": None}, "expected the fields"),
        ({"colour": 1}, "fields: expected components, group,"),
    ],
)
def test_json_that_is_no_abi(change: dict[str, Any], words: str) -> None:
    plain = abi_of(preset("deepseek-v4-flash"), "c4").to_json()
    with pytest.raises(ConfigError, match=words):
        Abi.from_json({**plain, **change})


def test_json_that_lacks_a_field() -> None:
    plain = abi_of(preset("deepseek-v4-flash"), "c4").to_json()
    del plain["ratio"]
    with pytest.raises(ConfigError, match=r"expected components, .*ratio.*, found \["):
        Abi.from_json(plain)


def test_heads_divide_a_row() -> None:
    layout = attention_layout(shape=(3, 4))
    assert abi_of(layout, "full", heads=3).head_dim == 4
    with pytest.raises(ConfigError, match="heads of full: expected a divisor of 12, found 5"):
        abi_of(layout, "full", heads=5)
    with pytest.raises(ConfigError, match="expected group one of"):
        abi_of(layout, "none")
