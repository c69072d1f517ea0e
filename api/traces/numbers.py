"""Values of a trace, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BadLine", "field", "id_array", "ranges_of", "shown", "whole"]

_END = 2**31
_SHOWN_CHARACTERS = 60


class BadLine(ValueError):
    """A line is none of its format; says what was expected and what was found."""


def shown(value: Any) -> str:
    """A value as messages show it: JSON's kinds by name, long ones cut."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def field(value: dict[str, Any], name: str) -> Any:
    """A field that must be there.

    Raises:
        BadLine: it is not.
    """
    if name not in value:
        keys = ", ".join(map(str, value))
        raise BadLine(f"expected {name}, found {shown(keys) if keys else 'no key at all'}")
    return value[name]


def whole(value: Any, name: str, least: int = 0) -> int:
    """A whole number of a trace.

    Raises:
        BadLine: it is none, or less or more than it may be.
    """
    if type(value) is not int or not least <= value < _END:
        raise BadLine(
            f"{name}: expected a whole number from {least} to 2**31 - 1, found {shown(value)}"
        )
    return value


def id_array(values: Any, name: str) -> npt.NDArray[np.int64]:
    """Ids of a trace, each from 0 to 2**31 - 1.

    Raises:
        BadLine: they are no list, or one of them is no id.
    """
    if not isinstance(values, list):
        raise BadLine(f"{name}: expected a list of ids, found {shown(values)}")
    if set(map(type, values)) <= {int}:  # bool is another type
        try:
            ids = np.array(values, dtype=np.int64)
        except OverflowError:
            ids = np.array([-1], dtype=np.int64)
        if len(ids) == 0 or (ids.min() >= 0 and ids.max() < _END):
            return ids
    return np.array([whole(value, f"{name}: id") for value in values], dtype=np.int64)


def ranges_of(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Ids as ranges of consecutive ones: int64[n, 2], first id and how many."""
    starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] - 2) != 1)
    return np.stack([ids[starts], np.diff(starts, append=len(ids))], axis=1)
