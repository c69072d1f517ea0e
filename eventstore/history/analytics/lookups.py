"""Tables of names beside the events: what the numbers in them stand for."""

from collections.abc import Iterable
from typing import Any

import duckdb

from kvstrata.core.arena import ArenaParams
from kvstrata.core.checks import LAYERS
from kvstrata.core.events import EventType, Reason, ResumeSource
from kvstrata.core.groups import Kind
from kvstrata.core.layout import CacheLayout
from kvstrata.core.states import PageState

__all__ = ["add_lookups"]


def add_lookups(
    connection: duckdb.DuckDBPyConnection, layout: CacheLayout, params: ArenaParams
) -> None:
    """Make the tables ``types``, ``reasons``, ``states``, ``sources``, ``layers`` and ``groups``.

    All have ``code`` and ``name``; ``groups`` has ``kind``, ``is_history``, ``page_bytes`` and
    ``pages`` (scratch left out) too, and a row of its own for what is of no group, code -1.

    Mutates: the database.
    """
    for table, names in (
        ("types", [(int(one), one.name) for one in EventType]),
        ("reasons", [(int(one), one.name) for one in Reason]),
        ("states", [(int(one), one.name) for one in PageState]),
        ("sources", [(int(one), one.name.lower()) for one in ResumeSource]),
        ("layers", list(LAYERS.items())),
    ):
        connection.execute(f"CREATE TABLE {table} (code INTEGER PRIMARY KEY, name VARCHAR)")
        _insert(connection, table, names)
    connection.execute(
        "CREATE TABLE groups (code INTEGER PRIMARY KEY, name VARCHAR, kind VARCHAR, "
        "is_history BOOLEAN, page_bytes BIGINT, pages BIGINT)"
    )
    rows: list[tuple[Any, ...]] = [(-1, "", "", False, 0, 0)]
    for code, group in enumerate(layout.groups):
        pages = params.slots[group.name] - 1
        kind = Kind(group.kind).name
        rows.append((code, group.name, kind, group.is_history, group.page_bytes, pages))
    _insert(connection, "groups", rows)


def _insert(
    connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[tuple[Any, ...]]
) -> None:
    values = [list(row) for row in rows]
    marks = ", ".join("?" * len(values[0]))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
