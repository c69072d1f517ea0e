"""Copying pages: equal to the reference, and nothing else touched."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvstrata.core.errors import InvariantViolation
from kvstrata.kernels.copy import copy_pages, copy_pages_reference


def storage(num_slots: int, page_bytes: int) -> torch.Tensor:
    torch.manual_seed(num_slots)
    return torch.randint(0, 256, (num_slots, page_bytes), dtype=torch.uint8)


@given(
    num_slots=st.integers(2, 12),
    lines=st.sampled_from([1, 3, 129]),
    data=st.data(),
)
def test_equals_the_reference(num_slots: int, lines: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(num_slots)))
    num_targets = data.draw(st.integers(0, num_slots - 1))
    targets, readable = order[:num_targets], order[num_targets:]
    sources = [data.draw(st.sampled_from(readable)) for _ in targets]
    found = storage(num_slots, 64 * lines)
    expected = found.clone()
    copy_pages_reference(expected, np.array(sources, dtype=int), np.array(targets, dtype=int))
    copy_pages(found, np.array(sources, dtype=np.int32), np.array(targets, dtype=np.int32))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ([1], [1], "neither read nor written twice"),
        ([1, 2], [3, 3], "neither read nor written twice"),
        ([1, 2], [2, 3], r"found sources \[1, 2\] and targets \[2, 3\]"),
        ([1], [4], r"slots in \[0, 4\), found 1 to 4"),
        ([-1], [2], r"slots in \[0, 4\), found -1 to 2"),
        ([1, 2], [3], "as many targets as sources, found 1 and 2"),
    ],
    ids=["onto-itself", "same-target", "chain", "above", "below", "lengths"],
)
def test_refusals_change_nothing(sources: list[int], targets: list[int], message: str) -> None:
    pool = storage(4, 64)
    before = pool.clone()
    with pytest.raises(InvariantViolation, match=message):
        copy_pages(pool, np.array(sources), np.array(targets))
    assert torch.equal(pool, before)
