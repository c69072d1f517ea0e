"""Followers of small logs, and engines that write them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from kvstrata import CacheManager
from kvstrata.core.ring import RING_FLAG_POISONED, RING_FLAGS
from kvstrata.eventstore.history.follower import Follower
from kvstrata.eventstore.history.tally import Tally
from tests.face.support import Place, request, serve

SMALL_SEGMENTS: dict[str, Any] = {"segment_bytes": 24 << 10}


@contextmanager
def follow(place: Place, memory: Path | None = None) -> Iterator[Follower]:
    """A follower that steps when it is told to."""
    with followed(place, memory) as found:
        yield found


def followed(place: Place, memory: Path | None = None) -> Follower:
    return Follower(place.directory, shared_memory_root=place.shared, memory=memory)


def catch_up(follower: Follower, most: int = 1 << 16) -> int:
    """Step until there is nothing more; how many events that were."""
    count = 0
    while done := follower.step(most):
        count += done
    return count


def agree(follower: Follower, cache: CacheManager) -> None:
    """All that was logged is applied, and the tables are the engine's."""
    cache.flush()
    catch_up(follower)
    position = follower.position()
    assert position.error == ""
    assert position.seqno == position.durable_seqno == cache.stats().last_seqno
    assert position.lag_events == 0
    assert position.lag_seconds == 0.0
    assert np.array_equal(follower.arena, cache.arena)


def work(cache: CacheManager, num_requests: int, first: int = 0) -> None:
    """Serve requests, more than the pools hold."""
    for number in range(first, first + num_requests):
        serve(cache, request(f"text {number % 11}", 20 + number * 7 % 150), number % 9)


def leave(cache: CacheManager) -> None:
    """The engine dies: what its writer has not synced is not acknowledged."""
    assert cache.log is not None
    cache.log.ring[RING_FLAGS] |= RING_FLAG_POISONED
    cache.log.close(clean=False)


def values(tally: Tally) -> dict[str, int]:
    """Every counter by name."""
    found = {f"counts {place}": int(n) for place, n in np.ndenumerate(tally.counts) if n}
    found |= {f"tier {place}": int(n) for place, n in np.ndenumerate(tally.tier_failures) if n}
    found |= tally.totals
    for name, histogram in tally.histograms.items():
        found[f"{name} sum"] = histogram.steps
        found |= {f"{name} {n}": int(count) for n, count in enumerate(histogram.counts)}
    return found
