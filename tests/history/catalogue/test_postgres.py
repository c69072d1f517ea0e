from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services import database_of_its_own

from .contract import CatalogueContract


@pytest.fixture
def catalogue_url(postgresql: str) -> Iterator[str]:
    with database_of_its_own(postgresql) as found:
        yield found


class TestPostgresql(CatalogueContract):
    """The contract, on a server."""
