"""When units were used last: ages of what is evicted, gaps between two hits of a prefix."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["Uses"]

Words = npt.NDArray[np.int64]

_USED: Final = 0
_HIT: Final = 1
_EVICTED: Final = 2


class Uses:
    """Follows the units of one side, blocks or images, through their first group's events.

    A unit is used when it is sealed, and when it is hit as the end of a prefix. All of a batch is
    done at once; what it gives does not depend on how events were cut into batches.

    Args:
        num_units: units of this side.
    """

    def __init__(self, num_units: int) -> None:
        self._key_of: Words = np.zeros(num_units + 1, dtype=np.int64)
        self._used_ns: dict[int, int] = {}
        self._most_keys = 4 * num_units + 1024

    def add(
        self,
        seals: Words,
        freed: Words,
        is_eviction: npt.NDArray[np.bool_],
        pinned: Words,
        is_hit: npt.NDArray[np.bool_],
    ) -> tuple[Words, Words]:
        """Add what one batch says of this side.

        Args:
            seals: int64[n, 4]: seqno, time, unit, first word of the key.
            freed: int64[m, 3]: seqno, time, unit, of units that are free again.
            is_eviction: bool[m], which of them made room.
            pinned: int64[k, 3]: seqno, time, first word of the key of a prefix's end.
            is_hit: bool[k], which of them were pinned by a request that begins.

        Returns:
            Nanoseconds since their last use, of the units evicted and of the prefixes hit, where
            that is known.
        """
        keys = self._keys_of_freed(seals, freed)
        gone = np.flatnonzero(is_eviction & (keys != 0))
        sizes = len(seals), len(pinned), len(gone)
        what = np.repeat(np.array([_USED, _USED, _EVICTED]), sizes)
        what[len(seals) : len(seals) + len(pinned)][is_hit] = _HIT
        seqno = np.concatenate([seals[:, 0], pinned[:, 0], freed[gone, 0]])
        time_ns = np.concatenate([seals[:, 1], pinned[:, 1], freed[gone, 1]])
        key = np.concatenate([seals[:, 3], pinned[:, 2], keys[gone]])
        order = np.lexsort((seqno, key))
        what, time_ns, key = what[order], time_ns[order], key[order]
        begins = np.ones(len(key), dtype=bool)
        begins[1:] = key[1:] != key[:-1]
        before = np.full(len(key), -1, dtype=np.int64)
        before[1:][~begins[1:]] = time_ns[:-1][~begins[1:]]
        for place in np.flatnonzero(begins & (what != _USED)).tolist():
            before[place] = self._used_ns.get(int(key[place]), -1)
        ends = np.ones(len(key), dtype=bool)
        ends[:-1] = begins[1:]
        ends &= what != _EVICTED
        self._used_ns.update(zip(key[ends].tolist(), time_ns[ends].tolist(), strict=True))
        if len(self._used_ns) > self._most_keys:
            self._forget_absent()
        since = time_ns - before
        known = (before >= 0) & (since >= 0)
        return since[known & (what == _EVICTED)], since[known & (what == _HIT)]

    def _keys_of_freed(self, seals: Words, freed: Words) -> Words:
        """The keys under which units had been sealed that are free again, 0 for none."""
        unit = np.concatenate([seals[:, 2], freed[:, 2]])
        seqno = np.concatenate([seals[:, 0], freed[:, 0]])
        key = np.concatenate([seals[:, 3], np.zeros(len(freed), dtype=np.int64)])
        order = np.lexsort((seqno, unit))
        unit, key = unit[order], key[order]
        before = np.empty_like(key)
        before[1:] = key[:-1]
        begins = np.ones(len(unit), dtype=bool)
        begins[1:] = unit[1:] != unit[:-1]
        before[begins] = self._key_of[unit[begins]]
        ends = np.ones(len(unit), dtype=bool)
        ends[:-1] = begins[1:]
        self._key_of[unit[ends]] = key[ends]
        back = np.empty_like(before)
        back[order] = before
        return back[len(seals) :]

    def _forget_absent(self) -> None:
        """Forget keys under which nothing is sealed: what is not here is not hit."""
        here = set(self._key_of.tolist())
        self._used_ns = {key: at for key, at in self._used_ns.items() if key in here}

    def arrays(self) -> dict[str, Any]:
        """What is to be kept across a restart."""
        return {
            "key_of": self._key_of,
            "keys": np.fromiter(self._used_ns.keys(), np.int64, len(self._used_ns)),
            "used_ns": np.fromiter(self._used_ns.values(), np.int64, len(self._used_ns)),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """Take up what :meth:`arrays` gave.

        Raises:
            ValueError: it is of other sizes.
        """
        if arrays["key_of"].shape != self._key_of.shape:
            raise ValueError(f"expected {len(self._key_of)} units")
        self._key_of = arrays["key_of"].astype(np.int64)
        self._used_ns = dict(zip(arrays["keys"].tolist(), arrays["used_ns"].tolist(), strict=True))
