"""Writes the fault matrix of docs/validation.md from a run of it.

``python -m tools.fault_page`` runs every cell and brings the page up to date; each cell's test
fails where its row differs from what it found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvstrata import Kind
from tests.system.disk_cells import DISK_CELLS, DiskOutcome, run_disk_cell
from tests.system.fault_cells import Outcome, run_cell
from tests.system.fault_matrix import FAULTS, KINDS, not_applicable

from .markdown import between, table

__all__ = [
    "BEGIN",
    "COLUMNS",
    "END",
    "PAGE",
    "cells",
    "device_cells",
    "disk_row",
    "published",
    "render",
    "row",
    "run",
]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "validation.md"
BEGIN: Final = "<!-- fault matrix: begin -->\n"
END: Final = "<!-- fault matrix: end -->"
COLUMNS: Final = (
    "kind",
    "fault",
    "found as",
    "at layer",
    "resumed at",
    "instead of",
    "tokens equal",
)

Cell = tuple[Kind, str]
Row = tuple[str, ...]


def device_cells() -> list[Cell]:
    """Every kind of page on the device with every fault, in the table's order."""
    return [(kind, fault) for kind in KINDS for fault in FAULTS]


def cells() -> list[Cell]:
    """Every kind with every fault that it can be given, in the table's order."""
    return [*device_cells(), *((Kind.DISK, fault) for fault in DISK_CELLS)]


def row(kind: Kind, fault: str, outcome: Outcome | None) -> Row:
    """A cell as the page shows it.

    Args:
        kind: the kind.
        fault: the fault's name.
        outcome: what was found; None where the kind cannot have the fault.
    """
    first = (kind.name, fault.replace("_", " "))
    if outcome is None:
        return (*first, f"not applicable: {not_applicable(kind, fault)}", "", "", "", "")
    found = [verdict for verdict in outcome.verdicts if verdict.place == outcome.damaged]
    return (
        *first,
        ", ".join(f"`{verdict.reason}`" for verdict in found) or "not found",
        ", ".join(verdict.layer for verdict in found),
        str(outcome.resumed_at),
        str(outcome.resume_at),
        "yes" if outcome.tokens_equal and outcome.logits_equal else "no",
    )


def disk_row(cell: str, outcome: DiskOutcome) -> Row:
    """A cell of an object on disk as the page shows it.

    Args:
        cell: what is damaged, and how.
        outcome: what was found.
    """
    found = [(reason, layer) for key, reason, layer in outcome.found if key == outcome.damaged]
    return (
        Kind.DISK.name,
        cell.replace("_", " "),
        ", ".join(f"`{reason}`" for reason, _ in found) or "not found",
        ", ".join(layer for _, layer in found),
        str(outcome.resumed_at),
        str(outcome.resume_at),
        "yes" if outcome.tokens_equal and outcome.logits_equal else "no",
    )


def run() -> Iterator[Row]:
    """Run every cell, one after another."""
    for kind, fault in device_cells():
        yield row(kind, fault, None if not_applicable(kind, fault) else run_cell(kind, fault))
    for cell in DISK_CELLS:
        yield disk_row(cell, run_disk_cell(cell))


def published(page: str) -> list[Row]:
    """The rows that a page shows.

    Raises:
        ValueError: it has no matrix, or not these columns.
    """
    lines = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in _matrix(page).splitlines()
        if not line.startswith("|---")
    ]
    if lines[:1] != [COLUMNS]:
        raise ValueError(f"fault matrix: expected the columns {COLUMNS}, found {lines[:1]}")
    return lines[1:]


def render(page: str, rows: Iterator[Row] | list[Row]) -> str:
    """A page with these rows for its matrix.

    Raises:
        ValueError: it has no matrix.
    """
    return between(page, BEGIN, END, table(" | ".join(COLUMNS), rows) + "\n")


def _matrix(page: str) -> str:
    found = re.search(re.escape(BEGIN) + "(.*?)" + re.escape(END), page, re.DOTALL)
    if found is None:
        raise ValueError(f"expected a page with {BEGIN.strip()} and {END}, found none of them")
    return found[1]


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), run()), encoding="utf-8")
