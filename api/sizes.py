"""Byte sizes as people write them: ``40GB`` is 40·10⁹ bytes, ``40GiB`` is 40·2³⁰."""

from __future__ import annotations

import re

from kvstrata.core.errors import ConfigError

__all__ = ["format_bytes", "parse_bytes"]

_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<prefix>[KMGT]?)(?P<binary>I?)B?", re.IGNORECASE
)


def parse_bytes(text: str) -> int:
    """Read a byte size.

    Args:
        text: a number with a unit, such as ``512``, ``64MB``, ``40GB`` or ``1.5GiB``.

    Returns:
        Bytes, rounded down.

    Raises:
        ConfigError: the text is no byte size.
    """
    match = _SIZE.fullmatch(text.strip())
    prefix = match["prefix"].upper() if match else ""
    if match is None or (match["binary"] and not prefix):
        raise ConfigError(
            f"byte size: expected a number with B, KB, MB, GB, TB or KiB to TiB, found {text!r}"
        )
    unit = _BINARY[prefix] if match["binary"] else _DECIMAL[prefix]
    whole, _, fraction = match["number"].partition(".")
    scale: int = 10 ** len(fraction)
    return int(whole) * unit + int(fraction or 0) * unit // scale


def format_bytes(num_bytes: int) -> str:
    """Write a byte size for people, in powers of ten and three digits: ``40.0 GB``."""
    for prefix, unit in sorted(_DECIMAL.items(), key=lambda item: -item[1]):
        if prefix and num_bytes >= unit:
            return f"{num_bytes / unit:.3g} {prefix}B"
    return f"{num_bytes} B"
