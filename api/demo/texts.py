"""Real text that comes with Python itself: its licence, and docstrings of its modules."""

from __future__ import annotations

import ast
import importlib.util
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path

__all__ = ["docstring", "licence", "pieces"]


def licence() -> str:
    """Python's licence where it is installed, else the docstring of a module that speaks of it."""
    library = Path(os.__file__).parent
    for folder in (library, library.parent):
        for name in ("LICENSE.txt", "LICENSE"):
            if (folder / name).is_file():
                return (folder / name).read_text(encoding="utf-8")
    return docstring("argparse")


def docstring(module: str) -> str:
    """The docstring of a standard module, read from its source: it need not be imported.

    Args:
        module: its name.

    Returns:
        Its text; empty where the source is not installed.
    """
    found = importlib.util.find_spec(module)
    if found is None or not isinstance(found.loader, SourceFileLoader):
        return ""
    source = found.loader.get_source(module)
    return ast.get_docstring(ast.parse(source or "")) or ""


def pieces(text: str, num_bytes: int) -> list[str]:
    """Cut a text into whole lines of at least ``num_bytes`` together; a shorter rest is left out.

    Args:
        text: any text.
        num_bytes: in UTF-8.
    """
    found: list[str] = []
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(line)
        piece = "\n".join(lines).strip()
        if len(piece.encode()) >= num_bytes:
            found.append(piece)
            lines = []
    return found
