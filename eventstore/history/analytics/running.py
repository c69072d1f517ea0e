"""Answering a query: the few columns it needs go into a database of this moment, then its SQL."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb

from kvstrata.core.arena import ArenaParams
from kvstrata.core.errors import ConfigError
from kvstrata.core.layout import CacheLayout
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.reader import stored_projection
from kvstrata.eventstore.log.tmpfs import DEFAULT_ROOT

from ..durable import DurableMark
from .anchors import Anchors, durable_events
from .catalogue import queries
from .feeding import columns_of, empty_columns
from .lookups import add_lookups
from .query import Query, Table
from .start import pages_at_start

__all__ = ["MAX_BUCKETS", "MAX_ROWS", "find_query", "open_database", "run_query"]

MAX_BUCKETS: Final = 20_000
"""Most buckets of time an answer is cut into."""
MAX_ROWS: Final = 10_000
_MEMORY_MB: Final = 512
_NS: Final = 1_000_000_000


def find_query(name: str) -> Query:
    """A query by its name.

    Raises:
        ConfigError: there is none of that name; says which there are.
    """
    known = {query.name: query for query in queries()}
    if name not in known:
        raise ConfigError(f"query: expected one of {', '.join(sorted(known))}, found {name!r}")
    return known[name]


def run_query(
    directory: Path,
    name: str,
    parameters: Mapping[str, object] | None = None,
    *,
    max_rows: int = MAX_ROWS,
    shared_memory_root: Path = DEFAULT_ROOT,
    memory_mb: int = _MEMORY_MB,
) -> Table:
    """Ask a log directory a question, beside a living writer or without one.

    Only durable events are asked: sealed segments and what is synced of the open one. Nothing is
    kept: what does not fit the memory goes to a temporary folder, removed before this returns.

    Args:
        directory: a log directory.
        name: of the query.
        parameters: values by name, numbers also as text; the query's defaults where left out.
        max_rows: rows to return at most.
        shared_memory_root: tmpfs folder of the engine's status page.
        memory_mb: memory of the database, in MB.

    Returns:
        Columns and rows.

    Raises:
        ConfigError: not a log directory, no such query, or a parameter that does not fit.
        LogError: the log is damaged, or of another version.
    """
    query = find_query(name)
    values = query.bind(parameters or {})
    identity, _ = stored_projection(directory)
    layout = CacheLayout.from_json(identity.layout)
    anchors = Anchors(directory)
    last = DurableMark(LogPaths(directory), identity.log_id, shared_memory_root).read()
    last_ns = _last_ns(directory, anchors, last)
    since_ns = 0
    if values.get("last_s"):
        since_ns = last_ns - int(float(values.pop("last_s")) * _NS)
    values.pop("last_s", None)
    with open_database(memory_mb) as connection:
        add_lookups(connection, layout, ArenaParams(**identity.params))
        first = anchors.seqno_before(since_ns)
        if query.feed.knows_pages:
            pages, first = pages_at_start(directory, identity, layout, anchors.first_seqno)
            connection.register("given", pages)
            connection.execute("CREATE TABLE pages_at_start AS SELECT * FROM given")
            connection.unregister("given")
        batches = durable_events(directory, first, last)
        _feed(connection, query, columns_of(batches, query.feed, anchors, values), since_ns)
        _bounds(connection, since_ns, last_ns, values.get("bucket_s"))
        connection.execute(query.sql, values)
        found = connection.fetchmany(max_rows + 1)
    rows = tuple(_plain_row(query, row) for row in found[:max_rows])
    return Table(query.columns, rows, len(found) > max_rows)


def _feed(
    connection: duckdb.DuckDBPyConnection,
    query: Query,
    batches: Iterable[Mapping[str, Any]],
    since_ns: int,
) -> None:
    """Make the table ``events`` of the query's columns."""
    connection.register("given", empty_columns(query.feed))
    connection.execute("CREATE TABLE events AS SELECT * FROM given")
    connection.unregister("given")
    # A query that knows all pages needs their whole past, and leaves out itself what is too old.
    least_ns = 0 if query.feed.knows_pages else since_ns
    for columns in batches:
        connection.register("given", columns)
        connection.execute("INSERT INTO events SELECT * FROM given WHERE wall_ns >= ?", [least_ns])
        connection.unregister("given")


def _bounds(
    connection: duckdb.DuckDBPyConnection, since_ns: int, last_ns: int, bucket_s: object
) -> None:
    """Make the table ``bounds``: the time asked about, ``since_ns`` to ``last_ns``."""
    row = connection.execute("SELECT min(wall_ns) FROM events WHERE wall_ns >= ?", [since_ns])
    (first_ns,) = row.fetchone() or (None,)
    begins_ns = last_ns if first_ns is None else int(first_ns)
    if isinstance(bucket_s, int | float) and (last_ns - begins_ns) / _NS / bucket_s > MAX_BUCKETS:
        least = -(-(last_ns - begins_ns) // _NS // MAX_BUCKETS)
        raise ConfigError(
            f"bucket_s: expected at least {least} for {(last_ns - begins_ns) / _NS:,.0f} seconds "
            f"of log, found {bucket_s:g}; or ask about less of it with last_s"
        )
    connection.execute(
        "CREATE TABLE bounds AS SELECT ? AS since_ns, ? AS last_ns", [begins_ns, last_ns]
    )


def _last_ns(directory: Path, anchors: Anchors, last: int) -> int:
    """Wall time of the last durable event, 0 of a log without any."""
    if last < anchors.first_seqno:
        return 0
    found = 0
    for batch in durable_events(directory, last, last):
        found = int(anchors.wall_ns(batch)[-1])
    return found


@contextmanager
def open_database(memory_mb: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that reaches no file and no net."""
    with tempfile.TemporaryDirectory(prefix="kvstrata-query-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": folder,
            "threads": "1",
        }
        with duckdb.connect(":memory:", config=settings) as connection:
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            yield connection


def _plain_row(query: Query, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        _moment(value) if column.unit == "time" and value is not None else value
        for column, value in zip(query.columns, row, strict=True)
    )


def _moment(wall_ns: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    seconds, nanoseconds = divmod(int(wall_ns), _NS)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{nanoseconds // 1_000_000:03d}Z"
