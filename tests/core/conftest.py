"""Pairs of the reference and the manager for short histories."""

import pytest

from .cases import CASES
from .live import Live
from .pair import Pair


@pytest.fixture
def replay() -> Pair:
    """A layout with state groups: blocks of 2 tokens, rollback of 2, a replay of 6."""
    return Pair(CASES["replay"], Live(CASES["replay"]))


@pytest.fixture
def plain() -> Pair:
    """A layout without state groups: blocks of 4 tokens."""
    return Pair(CASES["plain"], Live(CASES["plain"]))


@pytest.fixture
def loads() -> Pair:
    """A layout with state groups and lower tiers: blocks of 4 tokens, 20 stored keys."""
    return Pair(CASES["loads"], Live(CASES["loads"]))


@pytest.fixture
def stored() -> Pair:
    """A layout without state groups, with lower tiers: blocks of 4 tokens, 12 stored keys."""
    return Pair(CASES["stored"], Live(CASES["stored"]))
