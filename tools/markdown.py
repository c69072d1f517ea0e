"""Tables of Markdown, and the places of a page that they are written to."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["between", "table"]


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """A table.

    Args:
        head: names of its columns, a bar between each two.
        rows: their cells; a bar in one is shown as such.
    """
    columns = head.split(" | ")
    lines = ["| " + head + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def between(page: str, begin: str, end: str, text: str) -> str:
    """A page with what stands between two markers made anew.

    Raises:
        ValueError: it does not have both.
    """
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"expected {begin.strip()} and {end.strip()} behind it, found none")
    return f"{before}{begin}{text}{end}{after}"
