"""docs/validation.md shows the whole fault matrix; each cell's own test compares its row."""

from __future__ import annotations

import pytest

from tools.fault_page import BEGIN, COLUMNS, END, PAGE, cells, published, render

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_cell_has_a_row() -> None:
    shown = [(kind, fault.replace(" ", "_")) for kind, fault, *_ in published(TEXT)]
    assert shown == [(kind.name, fault) for kind, fault in cells()], (
        "run python -m tools.fault_page"
    )


def test_the_page_is_what_its_rows_render() -> None:
    """Nothing stands between the markers but the generated table."""
    assert render(TEXT, published(TEXT)) == TEXT, "run python -m tools.fault_page"


def test_rows_replace_those_before() -> None:
    row = tuple(f"cell {number}" for number in range(len(COLUMNS)))
    page = f"before\n{BEGIN}old\n{END}\nafter\n"
    again = render(page, [row])
    assert published(again) == [row]
    assert (again.startswith("before\n"), again.endswith("\nafter\n")) == (True, True)
    assert "old" not in again


@pytest.mark.parametrize("page", ["", f"{BEGIN}| kind |\n|---|\n{END}\n"], ids=["none", "others"])
def test_a_page_without_this_matrix_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="fault matrix"):
        published(page)
