"""SQLite by SQLAlchemy, and LMDB, as stores of events."""

from pathlib import Path
from typing import Any

import lmdb
import sqlalchemy as sql

from kvstrata.core.events import EVENT_DTYPE

from .store import Transactions, Words


class Sqlite(Transactions):
    """SQLite by SQLAlchemy Core, the way a service would keep events."""

    name = "sqlalchemy_sqlite"
    how = "SQLAlchemy Core on SQLite: WAL, synchronous=FULL, executemany of 1024 rows"
    calls_at_once = 16

    def __init__(self, folder: Path, shared_memory: Path) -> None:
        super().__init__(folder, shared_memory)
        self._engine = sql.create_engine(f"sqlite:///{folder / 'events.db'}")
        names = EVENT_DTYPE.names
        assert names is not None
        self._names = names
        columns = [sql.Column(name, sql.BigInteger) for name in names[1:]]
        key = sql.Column(names[0], sql.Integer, primary_key=True, autoincrement=False)
        table = sql.Table("events", sql.MetaData(), key, *columns)
        self._insert = table.insert()
        self._connection = self._engine.connect()
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            self._connection.exec_driver_sql(f"PRAGMA {pragma}")
        table.create(self._connection)
        self._connection.commit()

    def begin(self) -> None:
        self._connection.begin()

    def put(self, events: Words) -> None:
        rows = events.reshape(-1).view(EVENT_DTYPE).tolist()
        names = self._names
        self._connection.execute(self._insert, [dict(zip(names, row, strict=True)) for row in rows])

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()


class SqliteTuples(Sqlite):
    """The same without a dictionary a row: the driver's own executemany, for speed."""

    name = "sqlalchemy_sqlite_tuples"
    how = "the same statement on tuples, by exec_driver_sql"

    def __init__(self, folder: Path, shared_memory: Path) -> None:
        super().__init__(folder, shared_memory)
        self._text = str(self._insert.compile(dialect=self._engine.dialect))

    def put(self, events: Words) -> None:
        rows = events.reshape(-1).view(EVENT_DTYPE).tolist()
        self._connection.exec_driver_sql(self._text, rows)


class Lmdb(Transactions):
    """LMDB, an event a record under its seqno."""

    name = "lmdb"
    how = "LMDB, an event a record, appended in order, synced by its commit"

    def __init__(self, folder: Path, shared_memory: Path) -> None:
        super().__init__(folder, shared_memory)
        self._environment = lmdb.open(str(folder / "lmdb"), map_size=1 << 36)
        self._transaction: Any = None

    def begin(self) -> None:
        self._transaction = self._environment.begin(write=True)

    def put(self, events: Words) -> None:
        keys = events[:, 0].astype(">u8").tobytes()
        values = events.tobytes()
        items = [
            (keys[8 * place : 8 * place + 8], values[64 * place : 64 * place + 64])
            for place in range(len(events))
        ]
        with self._transaction.cursor() as cursor:
            cursor.putmulti(items, append=True)

    def commit(self) -> None:
        self._transaction.commit()

    def close(self) -> None:
        self._environment.close()


class LmdbCalls(Lmdb):
    """LMDB, a whole call a record: fewer and larger ones, at the price of single events."""

    name = "lmdb_calls"
    how = "LMDB, a call of 64 events a record, appended in order, synced by its commit"

    def put(self, events: Words) -> None:
        key = int(events[0, 0]).to_bytes(8, "big")
        self._transaction.put(key, events.data, append=True)
