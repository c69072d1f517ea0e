"""Cases EVT: readers of events."""

from pathlib import Path

from kvstrata.core.words import UNIT_INDEXED, UNIT_STATE
from kvstrata.eventstore.history.follower import Follower
from tests.cases.support import layout_of
from tests.cases.tallied import read_all, tallied
from tests.face.tiered import corner, served, text


def indexed(follower: Follower) -> int:
    rows = follower.tables.blocks.rows
    return int((rows[: len(follower.tables.blocks.pages), UNIT_STATE] == UNIT_INDEXED).sum())


def test_evt_01_a_reader_that_restarts_loses_no_parents(tmp_path: Path) -> None:
    """B1; B2 on B1; the reader restarts; B3 on B1; B4 on B3: it knows all four.

    What was logged while it was away is seen as missing, and read.
    """
    memory = tmp_path / "tally"
    with corner(layout_of(16)) as place, place.opened(tiers=None) as cache:
        served(cache, text(("B1", 17)))
        with tallied(cache, memory) as reader:
            assert indexed(reader) == 1
            served(cache, text(("B1", 16), ("B2", 17)))
            read_all(reader, cache)
            assert indexed(reader) == 2
            told, seqno = reader.tally.totals["requests"], reader.position().seqno
        served(cache, text(("B1", 16), ("B3", 17)))
        with tallied(cache, memory) as reader:
            assert indexed(reader) == 3
            assert reader.tally.totals["requests"] == told + 1
            assert reader.position().seqno > seqno
            served(cache, text(("B1", 16), ("B3", 16), ("B4", 17)))
            read_all(reader, cache)
            assert indexed(reader) == 4
            assert reader.tally.since_seqno == 1
