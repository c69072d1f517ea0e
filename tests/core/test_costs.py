"""What a way costs: exact where a machine could be meant, and no wrap makes it cheap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstrata.core.planner import Rates, cost_ns

NS = 10**9
NUMBERS = st.integers(0, 1 << 50)
RATES = st.integers(1, 1 << 61)


@given(st.integers(0, 1 << 26), RATES, st.integers(0, 9 * NS), RATES)
def test_costs_are_exact(tokens: int, tokens_per_s: int, load: int, bytes_per_s: int) -> None:
    exact = tokens * NS // tokens_per_s + load * NS // bytes_per_s
    assert cost_ns(Rates(tokens_per_s, bytes_per_s), tokens, load) == exact


@given(NUMBERS, RATES, NUMBERS, RATES)
def test_huge_costs_do_not_wrap(
    tokens: int, tokens_per_s: int, load: int, bytes_per_s: int
) -> None:
    longest = 1 << 60
    each = [min(tokens * NS // tokens_per_s, longest), min(load * NS // bytes_per_s, longest)]
    found = cost_ns(Rates(tokens_per_s, bytes_per_s), tokens, load)
    assert found == pytest.approx(sum(each), rel=1e-9, abs=2)
