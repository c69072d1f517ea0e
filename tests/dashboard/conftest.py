from collections.abc import Iterator

import pytest

from tests.eventstore.support import shared_corner
from tests.face.support import Place


@pytest.fixture
def place() -> Iterator[Place]:
    """An empty place for a log, itself in memory: syncs there cost nothing."""
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        yield Place(corner / "log", corner / "shared")
