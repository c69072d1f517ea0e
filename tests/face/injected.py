"""What is put in the place of clocks and stores: a clock that is set, a store with hooks."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from kvstrata.tiering import Tiering
from kvstrata.tiers.store import Flags


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Managers opened from here on have it for their tiers, outages and limits."""
        monkeypatch.setattr("kvstrata.tiering.Tiering", partial(Tiering, clock=self))


class Hooked:
    """A store that tells hooks of its calls before they are made; what they raise, it raises.

    Attributes:
        calls: (method, name of the object), in order.
        hooks: by method, called with the object's name.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[tuple[str, str]] = []
        self.hooks: dict[str, Callable[[str], object]] = {}

    def count(self, method: str) -> int:
        return Counter(method for method, _ in list(self.calls))[method]

    def read_many(self, names: Sequence[str], *_: Any) -> Flags:
        """None of them: each is to come by a read that is told of."""
        return np.zeros(len(names), dtype=np.bool_)

    def put_many(self, names: Sequence[str], objects: Any) -> Flags:
        """None of them: each is to come by a put that is told of."""
        return np.zeros(len(names), dtype=np.bool_)

    def __getattr__(self, method: str) -> Any:
        found = getattr(self.inner, method)
        if method not in ("put", "read", "size", "delete", "set_aside", "claim", "head_bytes"):
            return found

        def call(name: str, *arguments: Any) -> Any:
            self.calls.append((method, name))
            if method in self.hooks:
                self.hooks[method](name)
            return found(name, *arguments)

        return call
