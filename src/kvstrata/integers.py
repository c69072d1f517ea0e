"""Arrays of integers from what a caller gives: exact, or refused."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import ConfigError

__all__ = ["int32s", "int64s"]

_INT32: Final = np.iinfo(np.int32)
_TOKEN: Final = np.dtype(np.int32)
_WORD: Final = np.dtype(np.int64)


def int64s(name: str, given: Any) -> npt.NDArray[np.int64]:
    """One-dimensional int64 array of ``given``.

    Raises:
        ConfigError: it is no list of integers, or holds one beyond 63 bits.
    """
    if type(given) is np.ndarray and given.dtype == _WORD and given.ndim == 1:
        return _for_compiled(given)
    array = _integers(name, given)
    if array.dtype == np.uint64 and len(array) and array.max() > np.iinfo(np.int64).max:
        raise ConfigError(f"{name}: expected integers below 2**63, found {int(array.max())}")
    return array.astype(np.int64)


def int32s(name: str, given: Any) -> npt.NDArray[np.int32]:
    """One-dimensional contiguous int32 array of ``given``.

    Raises:
        ConfigError: it is no list of integers, or holds one beyond 32 bits.
    """
    if type(given) is np.ndarray and given.dtype == _TOKEN and given.ndim == 1:
        return _for_compiled(given)
    array = _integers(name, given)
    if array.dtype != np.int32 and len(array):
        least, most = int(array.min()), int(array.max())
        if least < _INT32.min or most > _INT32.max:
            raise ConfigError(f"{name}: expected integers of 32 bits, found {least} to {most}")
    return array.astype(np.int32)


def _for_compiled(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, or a copy where compiled code would need a form of its own for it."""
    return array if array.flags.carray else array.copy()


def _integers(name: str, given: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name}: expected a list of integers, found {given!r}") from error
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size > 0):
        raise ConfigError(
            f"{name}: expected a list of integers, found {array.dtype} of shape {array.shape}"
        )
    return array
