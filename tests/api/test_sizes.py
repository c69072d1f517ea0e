from __future__ import annotations

import pytest

from kvstrata.api.sizes import format_bytes, parse_bytes
from kvstrata.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("40GB", 40 * 10**9),
        ("40 gb", 40 * 10**9),
        ("40G", 40 * 10**9),
        ("1.5MB", 1_500_000),
        ("0.1KB", 100),
        ("1GiB", 2**30),
        ("1.5GiB", 3 * 2**29),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_units_are_powers_of_ten_and_of_two_with_an_i(text: str, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1e9", "4PB", "40iB", "4 0GB", "1.GB", "½GB"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a number with"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (449_856, "450 KB"), (40 * 10**9, "40 GB")],
)
def test_sizes_are_written_in_powers_of_ten(num_bytes: int, text: str) -> None:
    assert format_bytes(num_bytes) == text
