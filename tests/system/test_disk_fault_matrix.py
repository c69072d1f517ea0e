"""Every fault of an object on disk, planted where a real model is about to resume from it.

Each is found before anything is adopted, set aside and computed again, and the tokens are those of
the stock cache fed the same calls.
"""

import pytest

from kvstrata import Kind
from tools.fault_page import PAGE, disk_row, published

from .disk_cells import DISK_CELLS, UNITS, run_disk_cell
from .disk_faults import DISK_FAULTS

LOST = {"missing"}
"""Faults that leave nothing to set aside."""


@pytest.mark.parametrize("cell", DISK_CELLS)
def test_found_and_computed_again(cell: str) -> None:
    outcome = run_disk_cell(cell)
    unit, fault = cell.split("_", 1)
    assert outcome.found == [(outcome.damaged, DISK_FAULTS[fault].reason.name, "bytes")]
    assert outcome.num_set_aside == (fault not in LOST)
    assert outcome.resumed_at == (0 if unit == "block" else 96) < outcome.resume_at
    assert outcome.tokens_equal
    assert outcome.logits_equal
    shown = {line[:2]: line for line in published(PAGE.read_text(encoding="utf-8"))}
    row = disk_row(cell, outcome)
    assert shown.get(row[:2]) == row, "run python -m tools.fault_page"


def test_what_is_computed_again_is_stored_again() -> None:
    """The block is the same, bit for bit, since its calls are; nothing of it was left."""
    assert run_disk_cell("block_zeroed").is_whole_again


def test_an_unharmed_object_is_loaded() -> None:
    """The control: it is the fault that is found."""
    outcome = run_disk_cell("none")
    assert outcome.found == []
    assert outcome.num_set_aside == 0
    assert outcome.resumed_at == outcome.resume_at == 112
    assert outcome.tokens_equal
    assert outcome.logits_equal


def test_the_fifth_kind_is_in_the_matrix() -> None:
    shown = {line[0] for line in published(PAGE.read_text(encoding="utf-8"))}
    assert shown == {kind.name for kind in Kind}
    assert len(DISK_CELLS) == len(UNITS) * len(DISK_FAULTS)
