from collections.abc import Iterator

import pytest

from .support import Bench, shared_corner


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A log directory, itself in memory: syncs there cost nothing."""
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        yield Bench(corner / "log", corner / "shared")
