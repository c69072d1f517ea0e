from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from .contract import CatalogueContract


@pytest.fixture
def catalogue_url(postgresql: str) -> Iterator[str]:
    """A database of its own for each test."""
    name = f"test_{time.monotonic_ns()}"
    server = create_engine(postgresql, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield postgresql.replace("/postgres?", f"/{name}?")
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


class TestPostgresql(CatalogueContract):
    """The contract, on a server."""
