"""The catalogue: an index of what the tiers hold, shared by processes.

The stores are the truth. A row says what an object is, how big, and when it was last used;
losing rows costs a rebuild, never an object. SQLite serves the processes of one machine,
PostgreSQL those of several; there a folder's tier needs a name of its own per machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, Select, bindparam, case, func, select
from sqlalchemy.dialects import postgresql, sqlite

from kvstrata.core.errors import StoreError

from .database import OBJECTS, explained, open_engine, writing

__all__ = ["Catalogue", "Entry"]

_T = TypeVar("_T")

_BATCH: Final = 500  # rows of one transaction: others wait for it
_COLUMNS: Final = OBJECTS.c
_LEAST_RECENT_FIRST: Final = (
    # Blocks of one prefix are used together: of those the last one goes first, a checkpoint
    # before the block it hangs from.
    _COLUMNS.used_s,
    _COLUMNS.position.desc(),
    _COLUMNS.is_checkpoint.desc(),
    _COLUMNS.name,
)
_LATEST_FIRST: Final = (
    _COLUMNS.used_s.desc(),
    _COLUMNS.position,
    _COLUMNS.is_checkpoint,
    _COLUMNS.name,
)


class Entry(NamedTuple):
    """One object in one tier.

    Attributes:
        namespace: 32 hex digits, of what its objects agree on.
        name: of the object in its store.
        is_checkpoint: whether it is a checkpoint; otherwise a block.
        key: 16 bytes.
        parent: 16 bytes, the key of the block before; zeros at the root and for checkpoints.
        position: in tokens, of the block or checkpoint in its prefix.
        num_bytes: of the whole object.
        tier: the tier's name.
        owner: the instance that stored it first.
        created_s: when, in seconds of the Unix epoch.
        used_s: when it was last used, likewise.
    """

    namespace: str
    name: str
    is_checkpoint: bool
    key: bytes
    parent: bytes
    position: int
    num_bytes: int
    tier: str
    owner: str
    created_s: float
    used_s: float


class Catalogue:
    """The rows of one database; threads and processes may share it.

    Every method raises `StoreError` where the database fails. Its users go on without it.
    """

    def __init__(self, engine: Engine, where: str) -> None:
        self.where: Final = where
        self._engine: Final = engine
        self._is_closed = False

    @classmethod
    def open(cls, url: str) -> Catalogue:
        """Open a catalogue, made or brought up to date where necessary.

        Args:
            url: ``sqlite:///PATH`` or ``postgresql+psycopg://USER@HOST/DATABASE``.

        Raises:
            ConfigError: no such URL, or the driver is not installed.
            StoreError: the database cannot be used, or a later version has made it.
        """
        return cls(*open_engine(url))

    def add(self, entries: Sequence[Entry]) -> None:
        """Add rows; one that is there keeps its owner, its creation and the later use."""
        statement = _upsert(self._engine.dialect.name)
        # Two processes that lock the same rows in the same order never wait for each other.
        ordered = sorted(entries, key=lambda entry: (entry.tier, entry.name))
        for batch in _batches(ordered):
            with self._writing() as connection:
                connection.execute(statement, [entry._asdict() for entry in batch])

    def touch(self, tier: str, names: Sequence[str], used_s: float) -> None:
        """Say that objects were used; a use that is later already stays.

        Args:
            tier: name of the tier.
            names: of the objects; unknown ones are passed over.
            used_s: when, in seconds of the Unix epoch.
        """
        row = (_COLUMNS.tier == tier) & (_COLUMNS.name == bindparam("of"))
        statement = OBJECTS.update().where(row, _COLUMNS.used_s < used_s).values(used_s=used_s)
        for batch in _batches(sorted(set(names))):
            with self._writing() as connection:
                connection.execute(statement, [{"of": name} for name in batch])

    def remove(self, tier: str, names: Sequence[str]) -> list[str]:
        """Remove rows.

        Returns:
            The names whose rows were there: of several callers each is told to one.
        """
        removed: list[str] = []
        for batch in _batches(sorted(set(names))):
            rows = (_COLUMNS.tier == tier) & _COLUMNS.name.in_(batch)
            locked = select(_COLUMNS.name).where(rows).order_by(_COLUMNS.name).with_for_update()
            with self._writing() as connection:
                found = list(connection.execute(locked).scalars())
                connection.execute(OBJECTS.delete().where(rows & _COLUMNS.name.in_(found)))
            removed += found
        return removed

    def entries(
        self, tier: str, namespace: str | None = None, limit: int | None = None
    ) -> Iterator[Entry]:
        """Rows of a tier, latest used first, as they were at the first one's time.

        Args:
            tier: name of the tier.
            namespace: only of this one.
            limit: at most so many.
        """
        query = select(OBJECTS).where(_COLUMNS.tier == tier).order_by(*_LATEST_FIRST)
        if namespace is not None:
            query = query.where(_COLUMNS.namespace == namespace)
        if limit is not None:
            query = query.limit(limit)
        with self._reading() as connection:
            for row in connection.execution_options(yield_per=1000).execute(query):
                yield Entry(*row)

    def num_bytes(self, tier: str) -> int:
        """Bytes of all objects of a tier."""
        query = select(func.coalesce(func.sum(_COLUMNS.num_bytes), 0)).where(_COLUMNS.tier == tier)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def oldest(self, tier: str, is_checkpoint: bool | None, limit: int) -> list[Entry]:
        """The least recently used of a tier, in the order in which they are to go.

        Args:
            tier: name of the tier.
            is_checkpoint: only checkpoints, only blocks, or None for both.
            limit: at most so many.
        """
        query = select(OBJECTS).where(_COLUMNS.tier == tier)
        if is_checkpoint is not None:
            query = query.where(_COLUMNS.is_checkpoint == is_checkpoint)
        return self._list(query.order_by(*_LEAST_RECENT_FIRST).limit(limit))

    def expired(
        self, tier: str, is_checkpoint: bool, used_before_s: float, limit: int
    ) -> list[Entry]:
        """Blocks or checkpoints of a tier not used since, in the order in which they are to go.

        Args:
            tier: name of the tier.
            is_checkpoint: checkpoints; otherwise blocks.
            used_before_s: in seconds of the Unix epoch.
            limit: at most so many.
        """
        query = select(OBJECTS).where(
            _COLUMNS.tier == tier,
            _COLUMNS.is_checkpoint == is_checkpoint,
            _COLUMNS.used_s < used_before_s,
        )
        return self._list(query.order_by(*_LEAST_RECENT_FIRST).limit(limit))

    def close(self) -> None:
        """Close its connections; calling it again does nothing."""
        self._is_closed = True
        self._engine.dispose()

    def _list(self, query: Select[Any]) -> list[Entry]:
        with self._reading() as connection:
            return [Entry(*row) for row in connection.execute(query)]

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._check_open()
        with explained(self.where), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        self._check_open()
        with explained(self.where), writing(self._engine) as connection:
            yield connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"catalogue {self.where}: expected it open, found it closed")


@lru_cache
def _upsert(dialect: str) -> Any:
    make: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
    insert = make(OBJECTS)
    new = insert.excluded
    kept = ("tier", "name", "owner", "created_s", "used_s")
    changed = {name: new[name] for name in _COLUMNS.keys() if name not in kept}  # noqa: SIM118
    later = case((new.used_s > _COLUMNS.used_s, new.used_s), else_=_COLUMNS.used_s)
    return insert.on_conflict_do_update(
        index_elements=["tier", "name"], set_={**changed, "used_s": later}
    )


def _batches(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]
