"""Every fault of every kind, planted in a page that a real model is about to reuse.

Each is found before anything is computed, answered by computing again, and the tokens are those of
the stock cache fed the same calls. Without the check the same faults are served.
"""

import pytest

from kvstrata import Kind
from kvstrata.core.events import EventType
from tools.fault_page import PAGE, device_cells, published, row

from .fault_cells import NO_FAULT, Outcome, Verdict, layout, run_cell
from .fault_matrix import KINDS, STRONG, not_applicable

CELLS = [
    pytest.param(kind, fault, id=f"{kind.name}-{fault}")
    for kind, fault in device_cells()
    if not not_applicable(kind, fault)
]
ELSEWHERE = [
    pytest.param(kind, fault, id=f"{kind.name}-{fault}")
    for kind, fault in device_cells()
    if not_applicable(kind, fault)
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def check_published(kind: Kind, fault: str, outcome: Outcome | None) -> None:
    found = row(kind, fault, outcome)
    shown = {line[:2]: line for line in published(PAGE.read_text(encoding="utf-8"))}
    assert shown.get(found[:2]) == found, "run python -m tools.fault_page"


@pytest.mark.parametrize(("kind", "fault"), CELLS)
def test_found_and_computed_again(kind: Kind, fault: str) -> None:
    outcome = run_cell(kind, fault)
    assert outcome.verdicts == [Verdict(*outcome.damaged, "CHECKSUM_MISMATCH", "bytes")]
    assert outcome.fate == [
        EventType.VALIDATION_FAILED,
        EventType.PAGE_QUARANTINED,
        EventType.PAGE_FREED,
    ], "before the sequence begins"
    assert outcome.resumed_at < outcome.resume_at
    assert outcome.tokens_equal
    assert outcome.logits_equal
    check_published(kind, fault, outcome)


@pytest.mark.parametrize(("kind", "fault"), ELSEWHERE)
def test_no_place_for_it(kind: Kind, fault: str) -> None:
    """A fault that a kind cannot have: its pages hold no such rows."""
    assert fault == "overlap_missing"
    groups = [group for group in layout().groups if group.kind is kind]
    assert not any(component.is_overlap for group in groups for component in group.components)
    check_published(kind, fault, None)


@every_kind
def test_an_unharmed_page_is_served(kind: Kind) -> None:
    """The first control: it is the fault that is found."""
    outcome = run_cell(kind, NO_FAULT)
    assert (outcome.verdicts, outcome.fate) == ([], [])
    assert outcome.resumed_at == outcome.resume_at == 112
    assert outcome.tokens_equal
    assert outcome.logits_equal


@every_kind
def test_never_serves_the_fault(kind: Kind) -> None:
    """The second control: unchecked, the same faults make the same comparisons come out false."""
    outcomes = [run_cell(kind, fault, "never") for fault in STRONG]
    for outcome in outcomes:
        assert outcome.verdicts == []
        assert outcome.resumed_at == outcome.resume_at == 112
        assert not outcome.logits_equal
    assert not all(outcome.tokens_equal for outcome in outcomes)
