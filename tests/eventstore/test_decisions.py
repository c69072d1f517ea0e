"""Each set of facts meets exactly one row, and docs/recovery.md shows these tables."""

import itertools
from pathlib import Path

import pytest

from kvstrata.eventstore.log.decisions import (
    RING_TABLE,
    TAIL_TABLE,
    RingFacts,
    TailFacts,
    decide_ring,
    decide_tail,
)
from kvstrata.eventstore.log.scan import TailKind

DOCUMENT = Path(__file__).parents[2] / "docs" / "recovery.md"


def test_exactly_one_row_for_each_end_of_a_segment() -> None:
    seen = set()
    for kind, is_last, reaches in itertools.product(TailKind, (False, True), (False, True)):
        facts = TailFacts(kind, is_last, reaches)
        rows = [row for row in TAIL_TABLE if row.holds(facts)]
        assert len(rows) == 1, facts
        assert decide_tail(facts) is rows[0]
        seen.add(rows[0].name)
    assert seen == {row.name for row in TAIL_TABLE}


def test_exactly_one_row_for_each_ring() -> None:
    seen = set()
    for values in itertools.product((False, True), repeat=7):
        facts = RingFacts(*values)
        rows = [row for row in RING_TABLE if row.holds(facts)]
        assert len(rows) == 1, facts
        assert decide_ring(facts) is rows[0]
        seen.add(rows[0].name)
    assert seen == {row.name for row in RING_TABLE}


@pytest.mark.parametrize("table", [TAIL_TABLE, RING_TABLE], ids=["tail", "ring"])
def test_the_document_shows_the_table(table: tuple) -> None:  # type: ignore[type-arg]
    lines = DOCUMENT.read_text().splitlines()
    for row in table:
        assert f"| {row.name} | {row.condition} | {row.decision} | {row.meaning} |" in lines
