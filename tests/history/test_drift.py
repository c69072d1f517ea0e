"""Projection drift: a byte that changed behind the log is found, and since when."""

import numpy as np
import pytest

from kvstrata import CacheManager
from kvstrata.core.arena import slice_digest, slice_words
from kvstrata.core.events import EventType
from kvstrata.core.words import UNIT_LAST_USE, Arena
from kvstrata.eventstore.history.drift import DriftFound
from kvstrata.eventstore.history.follower import Follower
from kvstrata.upkeep import SLICE_BYTES
from tests.face.support import Place, request, serve

from .following import agree, catch_up, follow, work

LARGE = {"slots": {"full": 3000, "swa": 200}}
"""Tables of several slices."""


def cycle(cache: CacheManager) -> int:
    """Log a digest of every slice; how many there are."""
    done = cache.log_slice_digest(cache.arena.nbytes)
    assert done >= cache.arena.nbytes
    return -(-cache.arena.nbytes // SLICE_BYTES)


def word_of_last_block(arena: Arena, cache: CacheManager) -> int:
    """A word far into the tables that nothing reads: when a block was used last."""
    rows = cache.tables.blocks.rows
    row = len(cache.tables.blocks.pages) - 1
    offset = (rows.ctypes.data - cache.arena.ctypes.data) // 8
    place = offset + row * rows.shape[1] + UNIT_LAST_USE
    assert place < len(arena)
    return int(place)


def serve_two(cache: CacheManager, first: int) -> None:
    for number in range(first, first + 2):
        serve(cache, request(f"text {number}"))


@pytest.mark.parametrize("whose", ["engine", "follower"])
@pytest.mark.parametrize("cycles_before", [0, 1, 3])
def test_a_changed_byte_is_found_within_one_cycle(
    place: Place, whose: str, cycles_before: int
) -> None:
    with place.open(digest_bytes_per_s=0, **LARGE) as cache, follow(place) as follower:
        good_until = 0
        for number in range(cycles_before):
            serve_two(cache, 2 * number)
            cycle(cache)
            agree(follower, cache)
        arena = cache.arena if whose == "engine" else follower.arena
        changed = word_of_last_block(arena, cache)
        num_slices = -(-cache.arena.nbytes // SLICE_BYTES)
        number = changed // slice_words(arena, num_slices)
        assert num_slices > 3
        assert number > 0
        if cycles_before:
            digests = events_of(follower, cache, EventType.SLICE_DIGEST)
            good_until = digests[(digests["a"] & 0xFFFF_FFFF) == number]["seqno"][-1] - 1
        serve_two(cache, 100)
        cache.flush()
        catch_up(follower)
        arena[changed] ^= 1 << 17
        serve_two(cache, 102)
        cycle(cache)
        cache.flush()
        catch_up(follower)
        (found,) = follower.drift
        digests = events_of(follower, cache, EventType.SLICE_DIGEST)
        differs = digests[(digests["a"] & 0xFFFF_FFFF) == number][-1]
        assert found == DriftFound(
            kind="slice",
            slice=number,
            num_slices=num_slices,
            first_seqno=int(good_until) + 1,
            last_seqno=int(differs["seqno"]) - 1,
            time_ns=int(differs["time_ns"]),
            expected=slice_digest(cache.arena, number, num_slices).hex(),
            found=slice_digest(follower.arena, number, num_slices).hex(),
        )
        # Once: the same slice is not reported again until it was equal.
        cycle(cache)
        cache.flush()
        catch_up(follower)
        assert follower.drifts_found == 1
        equal, differed = follower.digests
        assert (equal, differed) == ((cycles_before + 2) * num_slices - 2, 2)
        arena[changed] ^= 1 << 17
        cycle(cache)
        agree(follower, cache)
        arena[changed] ^= 1
        cycle(cache)
        cache.flush()
        catch_up(follower)
        assert follower.drifts_found == 2
        arena[changed] ^= 1


def events_of(follower: Follower, cache: CacheManager, kind: EventType) -> np.ndarray:
    from kvstrata.eventstore.log import read_events

    cache.flush()
    events = np.concatenate([*read_events(follower.directory)])
    return events[events["type"] == kind]


@pytest.mark.parametrize("whose", ["engine", "follower"])
def test_a_digest_of_all_tables_is_compared_too(place: Place, whose: str) -> None:
    with place.open(digest_bytes_per_s=0) as cache, follow(place) as follower:
        work(cache, 4)
        cache.log_digest()
        agree(follower, cache)
        good_until = follower.position().seqno - 1
        arena = cache.arena if whose == "engine" else follower.arena
        changed = word_of_last_block(arena, cache)
        arena[changed] ^= 1
        cache.log_digest()
        cache.flush()
        catch_up(follower)
        (found,) = follower.drift
        assert (found.kind, found.slice, found.num_slices) == ("state", -1, 1)
        assert (found.first_seqno, found.last_seqno) == (good_until + 1, good_until + 1)
        arena[changed] ^= 1


def test_digests_come_by_themselves(place: Place) -> None:
    """Default on, small: the budget is kept, and every slice has its turn."""
    with place.open(digest_bytes_per_s=1 << 26, **LARGE) as cache, follow(place) as follower:
        num_slices = -(-cache.arena.nbytes // SLICE_BYTES)
        count = 0
        for number in range(3000):
            serve(cache, request(f"text {number % 200}"))
            count = int(cache.arena[64 + EventType.SLICE_DIGEST])
            if count > 2 * num_slices:
                break
        agree(follower, cache)
        assert count > 2 * num_slices
        assert follower.digests == (count, 0)
        digests = events_of(follower, cache, EventType.SLICE_DIGEST)
        numbers = digests["a"] & 0xFFFF_FFFF
        assert set(numbers.tolist()) == set(range(num_slices))
        took_ns = int(digests["time_ns"][-1]) - int(digests["time_ns"][0])
        size = 8 * slice_words(cache.arena, num_slices)
        assert took_ns > 0.8e9 * (count - 1) * size / (1 << 26)


def test_none_where_there_is_no_log_or_no_budget(place: Place) -> None:
    with place.open(digest_bytes_per_s=0, **LARGE) as cache:
        work(cache, 30)
        assert cache.arena[64 + EventType.SLICE_DIGEST] == 0


def test_a_follower_that_begins_with_a_snapshot_compares_from_there(place: Place) -> None:
    with place.open(digest_bytes_per_s=0, **LARGE) as cache:
        serve_two(cache, 0)
    with place.open(digest_bytes_per_s=0, **LARGE) as cache, follow(place) as follower:
        start = follower.position().seqno
        assert start > 0
        changed = word_of_last_block(cache.arena, cache)
        cache.arena[changed] ^= 1
        cycle(cache)
        cache.flush()
        catch_up(follower)
        (found,) = follower.drift
        assert found.first_seqno == start + 1
        cache.arena[changed] ^= 1
