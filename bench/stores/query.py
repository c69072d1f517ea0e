"""The same events in DuckDB: loaded once, then asked for the last state of every page.

That is less than a replay gives (no index, no free lists, no order of eviction, nothing checked);
it is what an analytical database does best with a log.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import Tables
from kvstrata.core.words import PAGE_GENERATION, PAGE_SEQNO, PAGE_STATE, POOL_FIRST

Events = npt.NDArray[np.void]

_AT_ONCE = 1 << 20
_LAST = """
    SELECT "group", page, max(seqno) AS seqno, arg_max(state, seqno) AS state,
           arg_max(generation, seqno) AS generation
    FROM events WHERE type < 16 GROUP BY "group", page
"""


class DuckDb:
    """A database file with one table of events, every field a column.

    Args:
        path: of the file; made.
        batches: of events in order.
    """

    def __init__(self, path: Path, batches: Iterable[Events]) -> None:
        self._path = path
        self._is_made = False
        with duckdb.connect(str(path)) as connection:
            waiting: list[Events] = []
            for batch in batches:
                waiting.append(batch)
                if sum(map(len, waiting)) >= _AT_ONCE:
                    self._load(connection, waiting)
                    waiting = []
            self._load(connection, waiting)
            connection.execute("CHECKPOINT")

    def _load(self, connection: Any, waiting: list[Events]) -> None:
        if not waiting:
            return
        events = np.concatenate(waiting)
        columns = {name: np.ascontiguousarray(events[name]) for name in events.dtype.names or ()}
        connection.register("columns", columns)
        how = "INSERT INTO events" if self._is_made else "CREATE TABLE events AS"
        connection.execute(f"{how} SELECT * FROM columns")
        connection.unregister("columns")
        self._is_made = True

    @property
    def file_bytes(self) -> int:
        return self._path.stat().st_size

    def last_states(self) -> dict[str, npt.NDArray[Any]]:
        """Group, page, and what was last said of it; a new connection reads the file again."""
        with duckdb.connect(str(self._path), read_only=True) as connection:
            found: dict[str, npt.NDArray[Any]] = connection.execute(_LAST).fetchnumpy()
        return found

    @staticmethod
    def check(found: dict[str, npt.NDArray[Any]], tables: Tables) -> None:
        """Fail where kvstrata's tables after the same events say otherwise."""
        first = tables.pools[:, POOL_FIRST]
        rows = tables.pages[first[found["group"]] + found["page"].astype(np.int64)]
        assert np.array_equal(rows[:, PAGE_STATE], found["state"])
        assert np.array_equal(rows[:, PAGE_GENERATION], found["generation"])
        assert np.array_equal(rows[:, PAGE_SEQNO], found["seqno"])
