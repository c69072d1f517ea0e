"""What may be asked, beside whom, and what is refused."""

import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import duckdb
import numpy as np
import pytest

from kvstrata.core.errors import ConfigError, CorruptSegment, LogError
from kvstrata.core.events import EVENT_DTYPE, LAST_OF_CALL, PAYLOADS, EventType
from kvstrata.eventstore.history import analytics
from kvstrata.eventstore.history.analytics import Query, queries, run_query
from kvstrata.eventstore.history.analytics.running import open_database
from kvstrata.eventstore.log import EventLog, read_events
from tests.api.logs import LAYOUT, closed_log, crashed_log, open_cache, run_prompt
from tests.core.cases import CASES
from tests.core.subjects import Words
from tests.eventstore.support import edit, put_in_ring, segments_of, shared_corner

from .support import log_config

QUERIES = {query.name: query for query in queries()}


@pytest.fixture
def shared() -> Iterator[Path]:
    with shared_corner() as corner:
        yield corner


def test_every_sql_file_is_a_query_and_says_what_it_is_for() -> None:
    sources = {
        Path(str(file)).stem for file in files(analytics).iterdir() if str(file).endswith(".sql")
    }
    assert sources == set(QUERIES)
    for query in QUERIES.values():
        assert query.sql.startswith("-- ")
        for parameter in query.parameters:
            assert (f"${parameter.name}" in query.sql) == (parameter.name != "last_s")


@pytest.mark.parametrize("query", QUERIES.values(), ids=lambda query: query.name)
def test_a_query_reads_fields_there_are(query: Query) -> None:
    for field in query.feed.fields:
        owners = [kind for kind in query.feed.types if field in (PAYLOADS[kind].names or ())]
        assert field in (EVENT_DTYPE.names or ()) or owners, field


@pytest.mark.parametrize("name", QUERIES)
def test_answers_have_their_columns_and_times(name: str, tmp_path: Path, shared: Path) -> None:
    answer = run_query(crashed_log(tmp_path / "log", shared), name, shared_memory_root=shared)
    assert answer.columns == QUERIES[name].columns
    for row in answer.records():
        assert list(row) == [column.name for column in answer.columns]
        assert "time" not in row or row["time"] is None or row["time"].endswith("Z")


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("nothing", {}, ("expected one of activity, admission", "'nothing'")),
        ("failures", {"color": 1}, ("bucket_s, last_s", "'color'")),
        ("failures", {"bucket_s": 0}, ("whole number from 1", "found 0")),
        ("failures", {"bucket_s": "soon"}, ("a whole number", "'soon'")),
        ("failures", {"bucket_s": 1.5}, ("a whole number", "1.5")),
        ("failures", {"bucket_s": True}, ("a whole number", "True")),
        ("failures", {"bucket_s": "9" * 5000}, ("a whole number",)),
        ("failures", {"last_s": "nan"}, ("a number from 0", "'nan'")),
        ("failures", {"last_s": float("inf")}, ("a number from 0",)),
        ("page_history", {"page": -1}, ("whole number from 1",)),
        ("pages", {"group": None}, ("expected text", "None")),
    ],
)
def test_what_may_not_be_asked(
    name: str, parameters: dict[str, object], words: tuple[str, ...], tmp_path: Path, shared: Path
) -> None:
    closed_log(tmp_path / "log", shared)
    with pytest.raises(ConfigError) as caught:
        run_query(tmp_path / "log", name, parameters, shared_memory_root=shared)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_parameter_is_a_value_and_never_sql(tmp_path: Path, shared: Path) -> None:
    closed_log(tmp_path / "log", shared)
    for text in ("' OR 1=1 --", "full'; DROP TABLE events; --", "$state"):
        answer = run_query(tmp_path / "log", "pages", {"group": text}, shared_memory_root=shared)
        assert answer.rows == ()


def test_rows_are_cut_and_it_says_so(tmp_path: Path, shared: Path) -> None:
    closed_log(tmp_path / "log", shared)
    answer = run_query(tmp_path / "log", "pages", max_rows=3, shared_memory_root=shared)
    assert (len(answer.rows), answer.is_cut) == (3, True)
    whole = run_query(tmp_path / "log", "pages", shared_memory_root=shared)
    assert (whole.rows[:3], whole.is_cut) == (answer.rows, False)


def test_no_log_and_a_damaged_one(tmp_path: Path, shared: Path) -> None:
    with pytest.raises(ConfigError, match="expected a kvstrata log directory"):
        run_query(tmp_path, "failures", shared_memory_root=shared)
    closed_log(tmp_path / "log", shared)
    edit(segments_of(tmp_path / "log")[0], 5000, b"\xff\xff")
    with pytest.raises(CorruptSegment):
        run_query(tmp_path / "log", "failures", shared_memory_root=shared)
    assert issubclass(CorruptSegment, LogError)


def test_beside_a_living_engine_only_what_is_durable(tmp_path: Path, shared: Path) -> None:
    directory = tmp_path / "log"
    with open_cache(directory, shared) as cache:
        run_prompt(cache).finish()
        cache.flush()
        durable = sum(map(len, read_events(directory)))
        counted = run_query(directory, "activity", shared_memory_root=shared)
        assert sum(row["events"] for row in counted.records()) == durable


def test_asked_again_and_again_while_an_engine_works(tmp_path: Path, shared: Path) -> None:
    """Every answer is whole: no page is counted twice or not at all."""
    directory, ended = tmp_path / "log", threading.Event()
    found: list[int] = []
    with open_cache(directory, shared) as cache:
        num_pages = sum(cache.config.arena_params(LAYOUT).slots.values()) - len(LAYOUT.groups)

        def ask() -> None:
            while not ended.is_set() or not found:
                answer = run_query(directory, "pages", shared_memory_root=shared)
                found.append(len(answer.rows))

        asking = threading.Thread(target=ask)
        asking.start()
        while not found:
            run_prompt(cache).finish()
        ended.set()
        asking.join()
    assert set(found) == {num_pages}


def test_the_database_reaches_no_file(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with open_database(64) as connection:
        with pytest.raises(duckdb.PermissionException):
            connection.execute(f"SELECT * FROM '{tmp_path / 'secret.csv'}'")
        with pytest.raises(duckdb.Error):
            connection.execute("SET enable_external_access = true")


def test_every_type_of_event_is_read_by_some_query() -> None:
    assert {kind for query in QUERIES.values() for kind in query.feed.types} == set(EventType)


def test_what_is_written_and_not_synced_is_not_asked(tmp_path: Path, shared: Path) -> None:
    """A power failure could take it back."""
    case = CASES["plain"]
    log = EventLog.open(
        tmp_path / "log", case.layout, log_config(shared, durability="none"), case.params
    )
    log.start()
    try:
        put_in_ring(log.ring, note(1))
        log.flush()
        put_in_ring(log.ring, note(2))
        end_s = time.monotonic() + 20
        while sum(map(len, read_events(tmp_path / "log"))) < 2:
            assert time.monotonic() < end_s, "it was not written"
        answer = run_query(tmp_path / "log", "activity", shared_memory_root=shared)
        assert [row["events"] for row in answer.records()] == [1]
    finally:
        log.close(clean=False)


def note(seqno: int) -> Words:
    """An event that changes no table."""
    found = np.zeros(1, dtype=EVENT_DTYPE)
    found["seqno"], found["type"], found["flags"] = seqno, EventType.SCRUBBED, LAST_OF_CALL
    return found.view(np.int64).reshape(1, 8)
