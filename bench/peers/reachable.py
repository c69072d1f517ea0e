"""Bytes of the objects that a cache written in Python holds."""

import gc
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

_ELSEWHERE = (ModuleType, type, FunctionType, BuiltinFunctionType, MethodType, torch.dtype)


def reachable(root: Any, leave_out: Iterable[Any] = ()) -> int:
    """Bytes of what a Python object holds, directly or not.

    Args:
        root: where to begin.
        leave_out: objects not to count nor to look into.
    """
    gc.collect()
    seen = {id(one) for one in leave_out}
    storages: set[int] = set()
    total, waiting = 0, [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _ELSEWHERE):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            if storage.data_ptr() not in storages:
                storages.add(storage.data_ptr())
                total += storage.nbytes()
        waiting.extend(gc.get_referents(one))
    return total
