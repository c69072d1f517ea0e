"""Gather and scatter: equal to the one-by-one reference, in ranges of every alignment."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstrata.core.errors import InvariantViolation
from kvstrata.core.groups import DTYPE_BYTES, Kind
from kvstrata.core.layout import CacheLayout
from kvstrata.core.presets import Row, sized_group
from kvstrata.kernels.gather import (
    gather_entries,
    gather_entries_reference,
    gather_ring,
    gather_ring_reference,
)
from kvstrata.kernels.pools import TORCH_DTYPES, PoolSet
from kvstrata.kernels.scatter import (
    scatter_entries,
    scatter_entries_reference,
    scatter_ring,
    scatter_ring_reference,
)

NUM_SLOTS = 7
DTYPES = sorted(DTYPE_BYTES)


def filled(view: torch.Tensor) -> torch.Tensor:
    """Give every element of a view a value of its own (as far as the dtype can)."""
    values = torch.arange(view.numel()) % 251
    view.copy_(values.view(view.shape).to(view.dtype))
    return view


def pool_view(dtype: str, per_page: int, shape: tuple[int, ...] = (3,)) -> torch.Tensor:
    """A component between two others, so that writing beyond it would show."""
    rows = [Row("a", "u8", (1,)), Row("b", dtype, shape), Row("c", "u8", (1,))]
    group = sized_group("g", Kind.COMPRESSED, (0, 1, 2), rows, per_page, 1)
    pools = PoolSet.allocate(CacheLayout("test", (group,), per_page, 1, 3), {"g": NUM_SLOTS})
    return filled(pools.view("g", "b"))


def poison(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, float("nan") if dtype.is_floating_point else 255).to(dtype)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, list[int], int, int]:
    """Entries a page, a slot table, and a range of entries in it."""
    per_page = draw(st.sampled_from([1, 2, 4, 5]))
    slots = draw(st.permutations(range(1, NUM_SLOTS)))[: draw(st.integers(0, NUM_SLOTS - 1))]
    first = draw(st.integers(0, per_page * len(slots)))
    return per_page, list(slots), first, draw(st.integers(first, per_page * len(slots)))


@settings(max_examples=150, deadline=None)
@given(drawn=ranges(), dtype=st.sampled_from(DTYPES), shape=st.sampled_from([(3,), (2, 4)]))
def test_gather_entries(
    drawn: tuple[int, list[int], int, int], dtype: str, shape: tuple[int, ...]
) -> None:
    per_page, table, first, last = drawn
    view = pool_view(dtype, per_page, shape)
    slots = np.array(table, dtype=np.int32)
    expected = gather_entries_reference(view, slots, first, last)
    out = poison(tuple(expected.shape), view.dtype)
    assert gather_entries(view, slots, first, last, out=out) is out
    assert torch.equal(out, expected)
    assert torch.equal(gather_entries(view, slots, first, last), expected)
    for layer in range(3):
        out = poison(tuple(expected.shape[1:]), view.dtype)
        gather_entries(view, slots, first, last, layer=layer, out=out)
        assert torch.equal(out, expected[layer])


@settings(max_examples=150, deadline=None)
@given(drawn=ranges(), dtype=st.sampled_from(DTYPES), shape=st.sampled_from([(3,), (2, 4)]))
def test_scatter_entries(
    drawn: tuple[int, list[int], int, int], dtype: str, shape: tuple[int, ...]
) -> None:
    per_page, table, first, last = drawn
    slots = np.array(table, dtype=np.int32)
    found, expected = pool_view(dtype, per_page, shape), pool_view(dtype, per_page, shape)
    values = torch.randint(0, 200, (3, last - first, *shape)).to(found.dtype)
    scatter_entries_reference(expected, slots, first, values)
    scatter_entries(found, slots, first, values)
    assert torch.equal(found, expected)
    by_layer = pool_view(dtype, per_page, shape)
    for layer in range(3):
        scatter_entries(by_layer, slots, first, values[layer], layer=layer)
    assert torch.equal(by_layer, expected)
    assert torch.equal(gather_entries(found, slots, first, last), values)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(1, 6),
    first=st.integers(0, 40),
    share=st.floats(0, 1),
    dtype=st.sampled_from(DTYPES),
)
def test_rings(rows: int, first: int, share: float, dtype: str) -> None:
    last = first + round(share * rows)
    found, expected = pool_view(dtype, rows), pool_view(dtype, rows)
    gathered = gather_ring_reference(found, 4, first, last)
    out = poison(tuple(gathered.shape), found.dtype)
    assert gather_ring(found, 4, first, last, out=out) is out
    assert torch.equal(out, gathered)
    values = torch.randint(0, 200, (3, last - first, 3)).to(found.dtype)
    scatter_ring_reference(expected, 4, first, values)
    scatter_ring(found, 4, first, values)
    assert torch.equal(found, expected)
    for layer in range(3):
        scatter_ring(found, 4, first, values[layer].flip(0), layer=layer)
        assert torch.equal(gather_ring(found, 4, first, last, layer=layer), values[layer].flip(0))


def test_values_that_are_strided_or_need_a_gradient_are_taken() -> None:
    view = pool_view("fp32", 4)
    values = torch.randn(3, 3, 8, requires_grad=True).transpose(1, 2)
    with torch.no_grad():
        scatter_entries(view, np.array([2, 5]), 0, values)
    assert torch.equal(gather_entries(view, np.array([2, 5]), 0, 8), values)


def test_neighbours_in_the_page_are_not_touched() -> None:
    rows = [Row("a", "u8", (1,)), Row("b", "bf16", (5,)), Row("c", "u8", (1,))]
    group = sized_group("g", Kind.COMPRESSED, (0, 1), rows, 3, 1)
    pools = PoolSet.allocate(CacheLayout("test", (group,), 3, 1, 2), {"g": 4})
    scatter_entries(pools.view("g", "b"), np.array([1, 3]), 1, torch.ones(2, 5, 5).bfloat16())
    assert not pools.view("g", "a").any()
    assert not pools.view("g", "c").any()
    assert pools.storage("g").count_nonzero() == 2 * 5 * 5 * 2


@pytest.mark.parametrize(
    ("slots", "first", "last", "message"),
    [
        ([1, 2], 3, 9, r"within \[0, 8\), found \[3, 9\)"),
        ([1, 2], 5, 4, r"within \[0, 8\), found \[5, 4\)"),
        ([1, 2], -1, 4, r"found \[-1, 4\)"),
        ([1, 7], 0, 8, r"slots in \[0, 7\), found \[1, 7\]"),
        ([-1, 2], 0, 4, r"slots in \[0, 7\), found \[-1\]"),
    ],
    ids=["beyond", "backwards", "negative", "slot-above", "slot-below"],
)
def test_ranges_outside_are_refused(slots: list[int], first: int, last: int, message: str) -> None:
    view = pool_view("fp32", 4)
    with pytest.raises(InvariantViolation, match=message):
        gather_entries(view, np.array(slots), first, last)


def test_rings_refuse_what_would_overwrite_itself() -> None:
    view = pool_view("fp32", 4)
    with pytest.raises(InvariantViolation, match=r"at most 4 positions, found \[0, 5\)"):
        gather_ring(view, 1, 0, 5)
    with pytest.raises(InvariantViolation, match=r"at most 4 positions, found \[2, 7\)"):
        scatter_ring(view, 1, 2, torch.zeros(3, 5, 3))
    with pytest.raises(InvariantViolation, match=r"slot in \[0, 7\), found 7"):
        gather_ring(view, 7, 0, 1)


@pytest.mark.parametrize(
    ("values", "layer", "message"),
    [
        (torch.zeros(3, 4, 3, dtype=torch.float64), None, r"float32 \[3, 4, 3\], found .*float64"),
        (torch.zeros(3, 4, 2), None, r"\[3, 4, 3\], found torch.float32 \[3, 4, 2\]"),
        (torch.zeros(4, 2), 0, r"\[4, 3\], found torch.float32 \[4, 2\]"),
        (torch.zeros(4, 3), 3, r"layer: expected an index in \[0, 3\), found 3"),
    ],
    ids=["dtype", "shape", "one-layer-shape", "no-such-layer"],
)
def test_values_are_never_cast_or_broadcast(
    values: torch.Tensor, layer: int | None, message: str
) -> None:
    view = pool_view("fp32", 4)
    before = view.clone()
    with pytest.raises(InvariantViolation, match=message):
        scatter_entries(view, np.array([1]), 0, values, layer=layer)
    with pytest.raises(InvariantViolation, match=message):
        scatter_ring(view, 1, 0, values, layer=layer)
    assert torch.equal(view, before)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_of_a_layout_has_one_in_torch(name: str) -> None:
    assert TORCH_DTYPES[name].itemsize == DTYPE_BYTES[name]
