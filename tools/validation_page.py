"""Writes the table of checks in docs/validation.md from the table the code runs.

``python -m tools.validation_page`` brings the page up to date; a test fails where it is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvstrata.core.checks import CHECKS, LAYERS

__all__ = ["BEGIN", "END", "PAGE", "render", "table"]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "validation.md"
BEGIN: Final = "<!-- checks: begin -->\n"
END: Final = "<!-- checks: end -->"


def table() -> str:
    """The checks, one row each, layers in order."""
    lines = [
        "| layer | reason | metric label | groups | what must hold |",
        "|---|---|---|---|---|",
    ]
    for check in sorted(CHECKS, key=lambda check: check.layer):
        cells = (
            f"{check.layer} {LAYERS[check.layer]}",
            f"`{check.reason.name}`",
            f"`{check.reason.name.lower()}`",
            check.kinds,
            " ".join(check.question.split()),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def render(text: str) -> str:
    """The page with its table of checks made anew.

    Raises:
        ValueError: the page has no markers.
    """
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"expected {BEGIN.strip()} and {END} in {PAGE.name}, found none")
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
