"""Fixtures of the adapter's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from transformers import DeepseekV4ForCausalLM

from .helpers import tiny_model


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Products of one shape split over threads by load would not be reproducible."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"], scope="package")
def model(request: pytest.FixtureRequest) -> DeepseekV4ForCausalLM:
    """The tiny model in each dtype."""
    dtype: torch.dtype = request.param
    return tiny_model(dtype)
