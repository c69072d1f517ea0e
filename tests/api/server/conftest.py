from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.server.support import Served, served
from tests.eventstore.support import shared_corner
from tests.face.support import Place


@pytest.fixture
def place() -> Iterator[Place]:
    """An empty place for a log, itself in memory: syncs there cost nothing."""
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        yield Place(corner / "log", corner / "shared")


@pytest.fixture
def api(place: Place, tmp_path: Path) -> Iterator[Served]:
    """A busy engine behind the API, without tokens."""
    with served(place, tmp_path) as found:
        yield found


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same, for tests that change nothing: one for all of them."""
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        place = Place(corner / "log", corner / "shared")
        with served(place, tmp_path_factory.mktemp("quiet")) as found:
            yield found
