"""Pairing by name: which tensors of another side may be copied, and where they lie."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstrata.core.abi import Abi, AbiComponent
from kvstrata.core.abi_compare import pair_components
from kvstrata.core.errors import ConfigError

ALIGNMENT = 64


def abi(group: str, *layers: int, parts: tuple[str, ...] = ("entry",), kind: str = "SWA") -> Abi:
    """A group of some layers; every row is 16 bytes."""
    offset, components = 0, []
    for part in parts:
        components.append(AbiComponent(part, "u8", 4, (16,), offset))
        offset += -(-len(layers) * 64 // ALIGNMENT) * ALIGNMENT
    return Abi(
        group, kind, layers, tuple(components), 1, 16, offset, 1, 0, False, "none", None, "k", "1"
    )


def page_of(side: Abi, salt: int = 0) -> np.ndarray:
    """A page in which every layer's rows hold a number made from their name alone."""
    page = np.zeros(side.page_bytes, dtype=np.uint8)
    for part in side.components:
        for position, layer in enumerate(side.layers):
            begin = part.offset + position * part.layer_bytes
            mark = sum(part.name.encode()) * 7 + layer * 31 + sum(side.group.encode()) + salt
            page[begin : begin + part.layer_bytes] = mark % 251 + 1
    return page


def test_rnk_03_tensors_are_paired_by_layer_and_component_never_by_position() -> None:
    source = [abi("swa", 0), abi("swa", 1), abi("c4", 2)]
    target = [abi("c4", 2), abi("swa", 0, 1), abi("c128", 3)]
    pairing = pair_components(source, target)
    assert [(pair.layer, pair.group, pair.source, pair.target) for pair in pairing.pairs] == [
        (2, "c4", 2, 0),
        (0, "swa", 0, 1),
        (1, "swa", 1, 1),
    ]
    assert pairing.missing == ("L3/c128",)
    assert pairing.usable == ("c4", "swa")
    assert pairing.differing == ()


def test_one_layer_of_a_group_missing_makes_the_group_unusable() -> None:
    pairing = pair_components([abi("swa", 0, 2)], [abi("swa", 0, 1, 2)])
    assert [pair.layer for pair in pairing.pairs] == [0, 2]
    assert pairing.missing == ("L1/swa",)
    assert pairing.usable == ()


def test_one_component_missing_is_named() -> None:
    pairing = pair_components([abi("tail", 4)], [abi("tail", 4, parts=("gate", "entry"))])
    assert pairing.missing == ("L4/tail.gate",)
    assert [pair.target_offset for pair in pairing.pairs] == [64]
    assert pairing.usable == ()


def test_a_group_of_another_form_is_not_paired() -> None:
    target = abi("swa", 0, 1)
    (entry,) = target.components
    source = replace(target, components=(replace(entry, dtype="fp32"),), kernel_version="2")
    pairing = pair_components([source, abi("c4", 2)], [target, abi("c4", 2)])
    assert pairing.differing == (
        "swa: dtype of entry: expected u8, found fp32",
        "swa: kernel_version: expected 1, found 2",
    )
    assert [pair.group for pair in pairing.pairs] == ["c4"]
    assert (pairing.missing, pairing.usable) == ((), ("c4",))


def test_a_tensor_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"every tensor of the source once, found L1/swa\.entry"):
        pair_components([abi("swa", 0, 1), abi("swa", 1)], [abi("swa", 0)])


def test_nothing_in_common() -> None:
    pairing = pair_components([], [abi("swa", 0)])
    assert (pairing.pairs, pairing.missing, pairing.usable) == ((), ("L0/swa",), ())
    pairing = pair_components([abi("swa", 0, parts=("k",))], [abi("swa", 0, parts=("v",))])
    assert (pairing.missing, pairing.differing) == (("L0/swa",), ())


@st.composite
def stages(draw: st.DrawFn) -> list[Abi]:
    """Any cut of some layers of some groups into stages, in any order."""
    found = []
    for group in draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3)):
        layers = draw(st.lists(st.integers(0, 7), unique=True, max_size=8))
        while layers:
            cut = draw(st.integers(1, len(layers)))
            parts = tuple(draw(st.permutations(("kv", "gate")))[: draw(st.integers(1, 2))])
            found.append(abi(group, *sorted(layers[:cut]), parts=parts))
            layers = layers[cut:]
    return draw(st.permutations(found))


@given(source=stages(), target=stages())
def test_copying_the_pairs_gives_what_the_target_names(
    source: list[Abi], target: list[Abi]
) -> None:
    pairing = pair_components(source, target)
    pages = [page_of(side) for side in source]
    filled = [np.zeros(side.page_bytes, dtype=np.uint8) for side in target]
    for pair in pairing.pairs:
        rows = pages[pair.source][pair.source_offset : pair.source_offset + pair.num_bytes]
        filled[pair.target][pair.target_offset : pair.target_offset + pair.num_bytes] = rows
    assert pairing.differing == ()
    for side, page in zip(target, filled, strict=True):
        wanted = page_of(side)
        assert ((page == wanted) | (page == 0)).all()
        if side.group in pairing.usable:
            assert (page == wanted).all()
    tensors = sum(len(side.layers) * len(side.components) for side in target)
    held = {(side.group, layer) for side in source for layer in side.layers}
    whole = [name for name in pairing.missing if "." not in name]
    for name in whole:
        layer, _, group = name[1:].partition("/")
        side = next(s for s in target if s.group == group and int(layer) in s.layers)
        shared = {
            part.name
            for other in source
            if other.group == group and int(layer) in other.layers
            for part in other.components
        }
        assert (group, int(layer)) not in held or not shared & {p.name for p in side.components}
    absent = (
        len(pairing.missing)
        - len(whole)
        + sum(
            len(side.components)
            for side in target
            for layer in side.layers
            if f"L{layer}/{side.group}" in whole
        )
    )
    assert len(pairing.pairs) + absent == tensors
