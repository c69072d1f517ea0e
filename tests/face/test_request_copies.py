"""Copies of a request are requests of their own: with read-only tokens, and keys of these."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvstrata import ConfigError, Request

from .support import memory_manager

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_equals_and_shares_nothing_that_can_change(copied: Callable[[Any], Any]) -> None:
    request = Request(np.arange(40), "m", "w", "a", b"t", {1: b"x"}, 30, 5, 1.5, True)
    keys = request.keys(16)
    found = copied(request)
    assert found._keys == {}
    assert np.array_equal(found.keys(16), keys)
    assert np.array_equal(found.tokens, request.tokens)
    for name in ("weights", "adapter", "tenant", "extras", "max_resume", "deadline_s", "join"):
        assert getattr(found, name) == getattr(request, name)
    with pytest.raises(ValueError, match="read-only"):
        found.tokens[:] = 9


@pytest.mark.parametrize("salt", [bytearray(b"x"), memoryview(b"x")])
def test_a_tenant_may_be_any_bytes(salt: Any) -> None:
    assert Request([1, 2], "m", tenant=salt).seed(16) == Request([1, 2], "m", tenant=b"x").seed(16)  # type: ignore[arg-type]


@pytest.mark.parametrize("salt", ["x", 5, None])
def test_and_nothing_else(salt: Any) -> None:
    with pytest.raises(ConfigError, match="tenant: expected bytes, found"):
        Request(np.arange(2), "m", tenant=salt)


def test_a_plan_equals_itself_alone() -> None:
    cache = memory_manager()
    first, second = (cache.match(Request(np.arange(40), "m")) for _ in range(2))
    same = first
    assert (first == same, first != same) == (True, False)
    assert (first == second, first != second) == (False, True)
    assert len({first, second}) == 2
