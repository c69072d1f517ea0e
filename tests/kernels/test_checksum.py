"""Page checksums of pools: torch equals compiled, and damage in real pages shows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstrata.core.checksum import checksum_bytes
from kvstrata.core.presets import attention_layout
from kvstrata.kernels.checksum import page_checksums, page_checksums_reference
from kvstrata.kernels.pools import PoolSet


@settings(max_examples=40, deadline=None)
@given(
    lines=st.sampled_from([1, 2, 255, 256, 257, 700]),
    slots=st.lists(st.integers(0, 4), max_size=6),
    seed=st.integers(0, 1000),
)
def test_compiled_torch_and_numpy_agree(lines: int, slots: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    storage = torch.from_numpy(random.integers(0, 256, (5, 64 * lines), dtype=np.uint8))
    wanted = np.array(slots, dtype=np.int32)
    found = page_checksums(storage, wanted)
    assert found.dtype == np.int64
    assert found.tolist() == page_checksums_reference(storage, wanted).tolist()
    assert found.tolist() == [checksum_bytes(storage[slot].numpy().tobytes()) for slot in slots]


@pytest.fixture
def pools() -> PoolSet:
    layout = attention_layout(3, block_tokens=8, shape=(2, 16), dtype="bf16")
    made = PoolSet.allocate(layout, {"full": 6})
    torch.manual_seed(0)
    for name in ("k", "v"):
        view = made.view("full", name)
        view.copy_(torch.randn(view.shape))
    return made


def swap(first: torch.Tensor, second: torch.Tensor) -> None:
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)


@pytest.mark.parametrize("damage", ["rows", "layers", "components", "zeroed", "one-element"])
def test_damage_that_moves_values_is_found(pools: PoolSet, damage: str) -> None:
    keys, values = pools.view("full", "k"), pools.view("full", "v")
    before = page_checksums(pools.storage("full"), np.arange(6))
    if damage == "rows":
        swap(keys[2, 1, 3], keys[2, 1, 4])
    elif damage == "layers":
        swap(keys[2, 0], keys[2, 2])
    elif damage == "components":
        swap(keys[2], values[2])
    elif damage == "zeroed":
        values[2, 1, 7].zero_()
    else:
        keys[2, 2, 7, 1, 15] *= -1
    after = page_checksums(pools.storage("full"), np.arange(6))
    assert np.flatnonzero(before != after).tolist() == [2]


def test_swapped_pages_are_found(pools: PoolSet) -> None:
    before = page_checksums(pools.storage("full"), np.arange(6))
    swap(pools.storage("full")[1], pools.storage("full")[4])
    after = page_checksums(pools.storage("full"), np.arange(6))
    assert np.flatnonzero(before != after).tolist() == [1, 4]
    assert after[1] == before[4]


def test_every_bit_flip_in_a_pool_page_is_found(pools: PoolSet) -> None:
    storage, slot = pools.storage("full"), np.array([3])
    original = int(page_checksums(storage, slot)[0])
    page = storage[3]
    for byte in range(page.numel()):
        for bit in range(8):
            page[byte] ^= 1 << bit
            assert int(page_checksums(storage, slot)[0]) != original
            page[byte] ^= 1 << bit
    assert int(page_checksums(storage, slot)[0]) == original
