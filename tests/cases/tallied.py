"""What a follower's tally says of a manager."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvstrata import CacheManager
from kvstrata.eventstore.history.follower import Follower


@contextmanager
def tallied(cache: CacheManager, memory: Path | None = None) -> Iterator[Follower]:
    """A follower of a manager's log that has read all of it."""
    assert cache.log is not None
    root = cache.config.log.shared_memory_root
    directory = cache.log._paths.root
    with Follower(directory, shared_memory_root=root, memory=memory) as follower:
        read_all(follower, cache)
        yield follower


def read_all(follower: Follower, cache: CacheManager) -> None:
    cache.flush()
    while follower.step():
        pass
    assert follower.position().seqno == cache.stats().last_seqno
