"""Rules of alignment: the table, the look-up, and what breaks a rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstrata.core.alignment import CUDA_ALLOCATION_BYTES, RULES, misaligned, rule_for
from kvstrata.core.errors import ConfigError
from kvstrata.core.groups import PAGE_ALIGNMENT
from kvstrata.core.layout import preset


@pytest.mark.parametrize(
    ("device", "capability", "address", "stride"),
    [
        ("cpu", None, 64, 64),
        ("cpu:0", None, 64, 64),
        ("cuda", (7, 5), 16, 16),
        ("cuda:3", (8, 9), 16, 16),
        ("cuda", (9, 0), 16, 16),
        ("cuda", (10, 3), 32, 32),
        ("cuda", (12, 0), 32, 32),
        ("direct", None, 4096, 4096),
        ("direct:512", None, 512, 512),
    ],
)
def test_rules(device: str, capability: tuple[int, int] | None, address: int, stride: int) -> None:
    rule = rule_for(device, capability)
    assert (rule.address, rule.stride) == (address, stride)
    assert rule.why


@pytest.mark.parametrize(
    ("device", "capability", "words"),
    [
        ("tpu", None, "expected a device one of cpu, cuda:7, .*found tpu"),
        ("cuda", None, "expected its compute capability, found none"),
        ("cuda:9", None, "expected its compute capability, found none"),
        ("cuda", (6, 1), r"cuda:7, .*found cuda, compute capability \(6, 1\)"),
    ],
)
def test_unknown_devices(device: str, capability: tuple[int, int] | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        rule_for(device, capability)


def test_pages_of_a_layout_meet_every_rule_of_a_processor() -> None:
    for name, rule in RULES.items():
        assert name == rule.device
        for number in (rule.address, rule.stride):
            assert number > 0
            assert number & (number - 1) == 0
        if not name.startswith("direct"):
            assert PAGE_ALIGNMENT % rule.stride == 0
            assert PAGE_ALIGNMENT % rule.address == 0
            assert CUDA_ALLOCATION_BYTES % rule.address == 0
    strides = np.array([group.page_bytes for group in preset("deepseek-v4-pro").groups])
    bases = np.arange(1, len(strides) + 1) * CUDA_ALLOCATION_BYTES
    assert misaligned(rule_for("cuda", (10, 0)), bases, strides) == []


def test_what_breaks_a_rule_is_named_in_order() -> None:
    addresses = np.array([64, 65, 128, 96], dtype=np.int64)
    strides = np.array([64, 63, 100, 0], dtype=np.int64)
    assert misaligned(rule_for("cpu"), addresses, strides) == [
        (1, "UNALIGNED_ADDRESS", 64, 65),
        (1, "UNALIGNED_STRIDE", 64, 63),
        (2, "UNALIGNED_STRIDE", 64, 100),
        (3, "UNALIGNED_ADDRESS", 64, 96),
    ]


def test_shapes_that_do_not_fit() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert misaligned(rule_for("cpu"), none, none) == []
    with pytest.raises(ConfigError, match=r"found shapes \(2,\) and \(1,\)"):
        misaligned(rule_for("cpu"), np.zeros(2, np.int64), np.zeros(1, np.int64))


@given(
    name=st.sampled_from(sorted(RULES)),
    pairs=st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 40)), max_size=20),
)
def test_found_is_exactly_what_is_no_multiple(name: str, pairs: list[tuple[int, int]]) -> None:
    rule = RULES[name]
    addresses = np.array([address for address, _ in pairs], dtype=np.int64)
    strides = np.array([stride for _, stride in pairs], dtype=np.int64)
    wanted = []
    for item, (address, stride) in enumerate(pairs):
        if address % rule.address:
            wanted.append((item, "UNALIGNED_ADDRESS", rule.address, address))
        if stride % rule.stride:
            wanted.append((item, "UNALIGNED_STRIDE", rule.stride, stride))
    assert misaligned(rule, addresses, strides) == wanted
