from collections.abc import Iterator

import pytest

from kvstrata import CacheManager
from tests.eventstore.support import shared_corner

from .support import Place, memory_manager


@pytest.fixture
def place() -> Iterator[Place]:
    """An empty place for a log, itself in memory: syncs there cost nothing."""
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        yield Place(corner / "log", corner / "shared")


@pytest.fixture
def cache() -> CacheManager:
    """A manager of metadata alone."""
    return memory_manager()
