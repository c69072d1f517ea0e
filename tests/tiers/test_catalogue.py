from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from kvstrata.core.errors import ConfigError, StoreError
from kvstrata.tiers import database, migrations
from kvstrata.tiers.catalogue import Catalogue, Entry

from .catalogue_contract import CatalogueContract, entry, keys


@pytest.fixture
def catalogue_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'catalogue.sqlite'}"


class TestSqlite(CatalogueContract):
    """The contract, on one file."""


def test_the_table_has_the_columns_of_an_entry() -> None:
    assert tuple(database.OBJECTS.c.keys()) == Entry._fields


def test_the_migrations_lead_to_the_table_of_the_code(catalogue_url: str) -> None:
    catalogue = Catalogue.open(catalogue_url)
    with catalogue._engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": database.VERSION_TABLE}
        )
        assert compare_metadata(context, database.OBJECTS.metadata) == []
    catalogue.close()
    (folder,) = migrations.__path__
    assert ScriptDirectory(folder).get_heads() == [database.REVISION]


def test_an_open_of_what_is_up_to_date_needs_no_alembic(catalogue_url: str) -> None:
    Catalogue.open(catalogue_url).close()
    code = (
        "import sys; from kvstrata.tiers.catalogue import Catalogue; "
        f"Catalogue.open({catalogue_url!r}).close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_file_has_a_write_ahead_log(catalogue_url: str, tmp_path: Path) -> None:
    Catalogue.open(catalogue_url).close()
    with sqlite3.connect(tmp_path / "catalogue.sqlite") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_writer_waits_for_another_one(catalogue_url: str, tmp_path: Path) -> None:
    catalogue = Catalogue.open(catalogue_url)
    other = sqlite3.connect(
        tmp_path / "catalogue.sqlite", isolation_level=None, check_same_thread=False
    )
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, other.execute, ["COMMIT"])
    timer.start()
    catalogue.add([entry(1)])
    timer.join()
    other.close()
    assert keys(catalogue.entries("disk")) == [1]
    catalogue.close()


def test_a_writer_that_waits_too_long_is_an_error(
    catalogue_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvstrata.eventstore.database._BUSY_S", 0.1)
    catalogue = Catalogue.open(catalogue_url)
    catalogue.add([entry(1)])
    other = sqlite3.connect(tmp_path / "catalogue.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"database is locked; another process .* try again"):
        catalogue.touch("disk", [entry(1).name], 5.0)
    assert keys(catalogue.entries("disk")) == [1]
    other.execute("COMMIT")
    other.close()
    catalogue.touch("disk", [entry(1).name], 5.0)
    catalogue.close()


def test_a_file_that_is_no_database_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.sqlite"
    file.write_bytes(b"no database, and longer than the header of one would be" * 10)
    with pytest.raises(StoreError, match=r"not a database; move it away.*kvstrata tiers rebuild"):
        Catalogue.open(f"sqlite:///{file}")
    assert file.read_bytes().startswith(b"no database")


def test_a_damaged_page_is_named_with_what_to_do(catalogue_url: str, tmp_path: Path) -> None:
    catalogue = Catalogue.open(catalogue_url)
    catalogue.add([entry(number) for number in range(2000)])
    catalogue.close()
    file = tmp_path / "catalogue.sqlite"
    size = file.stat().st_size
    with file.open("r+b") as out:
        out.seek(4096 * 3)
        out.write(b"\xa5" * (size - 4096 * 3))
    catalogue = Catalogue.open(catalogue_url)
    with pytest.raises(StoreError, match="malformed; move it away"):
        list(catalogue.entries("disk"))
    catalogue.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open database file; its folder must exist"):
        Catalogue.open(f"sqlite:///{tmp_path}/nowhere/catalogue.sqlite")


@pytest.mark.parametrize(
    ("found", "advice"),
    [
        ("attempt to write a readonly database", "let this user write the file"),
        ("database or disk is full", "make room on its disk"),
        ("something unheard of\nin two lines", "kvstrata tiers rebuild makes a catalogue anew"),
    ],
)
def test_an_error_is_one_line_with_advice(found: str, advice: str) -> None:
    with pytest.raises(StoreError) as hit, database.explained("sqlite:///x"):
        raise sqlite3.OperationalError(found)
    assert str(hit.value).startswith(f"catalogue sqlite:///x: {' '.join(found.split())}; {advice}")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        pytest.param("", "found ''", id="nothing"),
        pytest.param("/var/lib/catalogue.sqlite", "found '/var/lib", id="a path"),
        pytest.param("sqlite://", "without a file", id="memory"),
        pytest.param("sqlite:///:memory:", "without a file", id="memory by name"),
        pytest.param("mysql://user:secret@host/database", "found a URL of 'mysql'", id="mysql"),
        pytest.param("postgresql+asyncpg://host/x", "of 'postgresql.asyncpg'", id="async"),
        pytest.param("user:secret@host", "found no URL", id="no scheme"),
    ],
)
def test_other_urls_are_refused_without_their_password(url: str, found: str) -> None:
    with pytest.raises(ConfigError, match=f"expected sqlite:///PATH or postgresql.*{found}") as hit:
        Catalogue.open(url)
    assert "secret" not in str(hit.value)


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        ConfigError, match=r"expected psycopg .* pip install 'kvstrata\[postgres\]'"
    ):
        Catalogue.open("postgresql://user@host/database")
