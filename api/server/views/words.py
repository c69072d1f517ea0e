"""Small readings of table words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvstrata.core.keys import words_key

__all__ = ["finite", "hex_key", "hex_word", "key_words_of", "time_or_none"]


def finite(value: Any) -> Any:
    """A value for JSON, which knows no NaN and no infinity: None in place of one."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def hex_key(first: int, second: int) -> str | None:
    """32 hexadecimal digits of a key, None where there is none."""
    return words_key(first, second).hex() if first or second else None


def hex_word(word: int) -> str:
    """16 hexadecimal digits of a 64-bit word."""
    return f"{word & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def key_words_of(key: str) -> tuple[int, int]:
    """The two words of a key of 32 hexadecimal digits."""
    first, second = np.frombuffer(bytes.fromhex(key), dtype="<i8").tolist()
    return first, second


def time_or_none(time_s: float) -> float | None:
    """A time for JSON, which knows no NaN; to the millisecond."""
    return None if math.isnan(time_s) else round(time_s, 3)
