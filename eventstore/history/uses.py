"""When units were used last: ages of what is evicted, gaps between two hits of a prefix."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.compile import compiled, helper
from kvstrata.core.events import EventType, Reason

__all__ = ["Uses"]

Words = npt.NDArray[np.int64]

_SEALED: Final = int(EventType.PAGE_SEALED)
_GRANTED: Final = int(EventType.LEASE_GRANTED)
_RESUMED: Final = int(EventType.REQUEST_RESUMED)
_EVICTED: Final = int(Reason.EVICTED)
_LOW: Final = 0xFFFF_FFFF


@helper
def _home_of(places: Words, key: int) -> int:
    """Where a key is looked for first."""
    return int((key ^ (key >> 32)) & (places.shape[0] - 1))


@helper
def _place_of(places: Words, key_of: Words, key: int) -> int:
    """The place of the unit under a key, or the empty place where it would go."""
    last = places.shape[0] - 1
    place = _home_of(places, key)
    while places[place] != 0 and key_of[places[place]] != key:
        place = (place + 1) & last
    return place


@helper
def _remove(places: Words, key_of: Words, place: int) -> None:
    """Empty a place; what stands behind it moves up, so that it is still found."""
    last = places.shape[0] - 1
    places[place] = 0
    following = (place + 1) & last
    while places[following] != 0:
        home = _home_of(places, key_of[places[following]])
        # Whether its home is not between the hole and itself, round the end.
        if ((following - home) & last) >= ((following - place) & last):
            places[place] = places[following]
            places[following] = 0
            place = following
        following = (following + 1) & last


@compiled
def _follow(
    words: Words,
    which: Words,
    key_of: Words,
    used_ns: Words,
    places: Words,
    ages: Words,
    gaps: Words,
    sizes: Words,
) -> int:
    """Follow units through seals, leases and ends.

    Args:
        words: int64[n, 8], events of whole calls.
        which: int64[k], places of those that count.
        key_of: int64[units + 1], the first word of the key under which each is sealed, or 0.
        used_ns: int64[units + 1], when each was used last.
        places: int64[power of two], units by key.
        ages: int64[k], filled from the left: of evicted units, since their last use.
        gaps: int64[k], filled from the left: of prefixes hit, since their last use.
        sizes: int64[3]: how many ages, gaps, and evictions there are.

    Returns:
        0.

    Mutates:
        all but words and which.
    """
    for index in range(which.shape[0]):
        event = words[which[index]]
        kind, now_ns = event[2] & 0xFF, event[1]
        if kind == _GRANTED:
            unit = places[_place_of(places, key_of, event[4])]
            if unit == 0:
                continue
            is_last = which[index] + 1 == words.shape[0]
            # What a request that begins pins is a hit; a fork, a load or a lease only uses it.
            is_hit = not is_last and words[which[index] + 1, 2] & 0xFF == _RESUMED
            if is_hit and now_ns >= used_ns[unit]:
                gaps[sizes[1]] = now_ns - used_ns[unit]
                sizes[1] += 1
            used_ns[unit] = now_ns
        elif kind == _SEALED:
            unit, key = event[7] & _LOW, event[4]
            place = _place_of(places, key_of, key)
            if places[place] == 0:
                places[place] = unit
            else:
                used_ns[places[place]] = now_ns  # a duplicate: the first one is found
            key_of[unit], used_ns[unit] = key, now_ns
        else:
            unit = event[5] & _LOW
            key = key_of[unit]
            evicted = (event[2] >> 32) & 0xFF == _EVICTED
            sizes[2] += evicted
            if key == 0:
                continue
            if evicted and now_ns >= used_ns[unit]:
                ages[sizes[0]] = now_ns - used_ns[unit]
                sizes[0] += 1
            place = _place_of(places, key_of, key)
            if places[place] == unit:
                _remove(places, key_of, place)
            key_of[unit] = 0
    return 0


class Uses:
    """Follows the units of one side, blocks or images, through their first group's events.

    A unit is used when it is sealed, and when it is pinned as the end of a prefix.

    Args:
        num_units: units of this side.
    """

    def __init__(self, num_units: int) -> None:
        self._key_of: Words = np.zeros(num_units + 1, dtype=np.int64)
        self._used_ns: Words = np.zeros(num_units + 1, dtype=np.int64)
        size = 1 << (2 * num_units + 1).bit_length()
        self._places: Words = np.zeros(size, dtype=np.int64)

    def add(self, words: Words, which: Words) -> tuple[Words, Words, int]:
        """Add what one batch says of this side.

        Args:
            words: int64[n, 8], events of whole calls.
            which: int64[k], places of seals and ends of this side's units, and of leases.

        Returns:
            Nanoseconds since their last use, of the units evicted and of the prefixes hit, where
            that is known; and how many units were evicted.
        """
        ages, gaps = np.empty_like(which), np.empty_like(which)
        sizes: Words = np.zeros(3, dtype=np.int64)
        if len(which):
            tables = self._key_of, self._used_ns, self._places
            _follow(words, which, *tables, ages, gaps, sizes)
        num_ages, num_gaps, num_evicted = sizes.tolist()
        return ages[:num_ages], gaps[:num_gaps], num_evicted

    def arrays(self) -> dict[str, Any]:
        """What is to be kept across a restart."""
        return {"key_of": self._key_of, "used_ns": self._used_ns, "places": self._places}

    def restore(self, arrays: dict[str, Any]) -> None:
        """Take up what :meth:`arrays` gave.

        Raises:
            ValueError: it is of other sizes.
        """
        for name, now in self.arrays().items():
            if arrays[name].shape != now.shape:
                raise ValueError(f"{name}: expected {now.shape}, found {arrays[name].shape}")
            now[:] = arrays[name]
