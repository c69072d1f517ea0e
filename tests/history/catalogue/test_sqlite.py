from __future__ import annotations

from pathlib import Path

import pytest

from kvstrata.core.errors import ConfigError, StoreError
from kvstrata.eventstore.history.catalogue import Catalogue, default_url

from .contract import CatalogueContract, file_url


@pytest.fixture
def catalogue_url(tmp_path: Path) -> str:
    return file_url(tmp_path)


class TestSqlite(CatalogueContract):
    """The contract, on a file."""


def test_the_default_stands_beside_the_log(tmp_path: Path) -> None:
    url = default_url(tmp_path / "log")
    assert url == f"sqlite:///{tmp_path / 'log.catalogue.sqlite'}"


def test_a_file_that_is_no_database_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.sqlite"
    file.write_bytes(b"no database, and longer than the header of one would be" * 10)
    with pytest.raises(StoreError, match=r"not a database; move it away and name it again"):
        Catalogue.open(f"sqlite:///{file}")


def test_another_kind_of_database_is_refused() -> None:
    with pytest.raises(ConfigError, match="found a URL of 'mysql'"):
        Catalogue.open("mysql://host/database")
