from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from kvstrata.core.errors import StoreError
from kvstrata.tiers.catalogue import Catalogue
from tests.services import database_of_its_own

from .catalogue_contract import CatalogueContract, entry, keys


@pytest.fixture
def catalogue_url(postgresql: str) -> Iterator[str]:
    """A database of its own for each test."""
    with database_of_its_own(postgresql) as found:
        yield found


class TestPostgresql(CatalogueContract):
    """The contract, on a server."""


def test_a_server_that_does_not_answer_is_named_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="start the server, or correct the URL") as hit:
        Catalogue.open(f"postgresql+psycopg://user:secret@/database?host={tmp_path}")
    assert "secret" not in str(hit.value)
    assert "user:***@" in str(hit.value)


def test_a_database_that_is_not_there_is_named(postgresql: str) -> None:
    with pytest.raises(StoreError, match='database "nowhere" does not exist; create it'):
        Catalogue.open(postgresql.replace("/postgres?", "/nowhere?"))


def test_a_user_without_rights_is_told_which(catalogue_url: str) -> None:
    Catalogue.open(catalogue_url).close()
    owner = create_engine(catalogue_url, isolation_level="AUTOCOMMIT")
    with owner.connect() as connection:
        connection.execute(text("DROP ROLE IF EXISTS reader"))
        connection.execute(text("CREATE ROLE reader LOGIN"))
        connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"))
    catalogue = Catalogue.open(catalogue_url.replace("kvstrata@", "reader@"))
    with pytest.raises(StoreError, match=r"permission denied .*; grant this user"):
        catalogue.add([entry(1)])
    assert list(catalogue.entries("disk")) == []
    catalogue.close()
    with owner.connect() as connection:
        connection.execute(text("DROP OWNED BY reader"))
        connection.execute(text("DROP ROLE reader"))
    owner.dispose()


def test_a_connection_that_broke_is_made_anew(catalogue_url: str) -> None:
    catalogue = Catalogue.open(catalogue_url)
    catalogue.add([entry(1)])
    server = create_engine(catalogue_url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        ended = connection.execute(
            text(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name = 'kvstrata' AND datname = current_database()"
            )
        ).scalar()
    server.dispose()
    assert ended
    assert keys(catalogue.entries("disk")) == [1]
    catalogue.close()
