"""The log with the core's own tables: what the engine has is what a replay gives."""

import time
from pathlib import Path

import numpy as np
import pytest

from kvstrata.core.arena import ArenaParams
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EventType
from kvstrata.core.quarantine import note
from kvstrata.core.words import META_LAST_SEQNO
from kvstrata.eventstore.log import EventLog, open_replayed
from kvstrata.eventstore.log.reader import stored_projection

from .support import LAYOUT, PARAMS, Bench


def open_log(bench: Bench) -> EventLog:
    return EventLog.open(bench.directory, LAYOUT, bench.config(), PARAMS)


def write_notes(log: EventLog, count: int) -> None:
    payload = np.zeros(4, dtype=np.int64)
    for number in range(count):
        payload[2] = number
        assert (
            note(
                log.arena, log.ring, EventType.MANAGER_OPENED, 0, 0, 0, payload, time.monotonic_ns()
            )
            >= 0
        )


def test_killed_and_reopened(bench: Bench) -> None:
    log = open_log(bench)
    log.start()
    write_notes(log, 5)
    log.flush()
    write_notes(log, 3)
    live = log.arena.copy()
    log.close(clean=False)
    arena, report = open_replayed(bench.directory, bench.shared)
    assert np.array_equal(arena, live)
    assert (report.last_seqno, report.bytes_trusted) == (8, True)
    again = open_log(bench)
    assert np.array_equal(again.arena, live)
    again.start()
    write_notes(again, 2)
    again.close()
    last = open_log(bench)
    last.close()
    assert last.recovery.snapshot_seqno == last.recovery.last_seqno == 10
    assert np.array_equal(last.arena, again.arena)
    assert int(last.arena[META_LAST_SEQNO]) == 10


def test_the_directory_says_its_layout_and_sizes(bench: Bench) -> None:
    log = open_log(bench)
    log.close()
    identity, projection = stored_projection(bench.directory)
    assert projection.layout_digest == LAYOUT.digest() == identity.layout_digest
    assert np.array_equal(projection.fresh(), log.arena)
    with pytest.raises(ConfigError, match="open it with those sizes"):
        EventLog.open(
            bench.directory.parent / "log",
            LAYOUT,
            bench.config(),
            ArenaParams(slots={"full": 9}),
        )


def test_reading_changes_nothing(bench: Bench) -> None:
    log = open_log(bench)
    log.start()
    write_notes(log, 5)
    log.close(clean=False)

    def contents(root: Path) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    before = contents(bench.directory), contents(bench.shared)
    open_replayed(bench.directory, bench.shared)
    assert (contents(bench.directory), contents(bench.shared)) == before
