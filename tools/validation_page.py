"""Writes the table of checks in docs/validation.md from the table the code runs.

``python -m tools.validation_page`` brings the page up to date; a test fails where it is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvstrata.core.checks import CHECKS, LAYERS

from . import markdown

__all__ = ["BEGIN", "END", "PAGE", "render", "table"]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "validation.md"
BEGIN: Final = "<!-- checks: begin -->\n"
END: Final = "<!-- checks: end -->"


def table() -> str:
    """The checks, one row each, layers in order."""
    rows = [
        (
            f"{check.layer} {LAYERS[check.layer]}",
            f"`{check.reason.name}`",
            f"`{check.reason.name.lower()}`",
            check.kinds,
            " ".join(check.question.split()),
        )
        for check in sorted(CHECKS, key=lambda check: check.layer)
    ]
    return markdown.table("layer | reason | metric label | groups | what must hold", rows) + "\n"


def render(text: str) -> str:
    """The page with its table of checks made anew.

    Raises:
        ValueError: the page has no markers.
    """
    return markdown.between(text, BEGIN, END, table())


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
