"""How commands print: tables for people on stdout, JSON for machines, errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

__all__ = [
    "FOUND_SOMETHING_WRONG",
    "JsonFlag",
    "fail",
    "print_facts",
    "print_json",
    "print_json_line",
    "print_table",
]

FOUND_SOMETHING_WRONG = 1
"""Exit code of a command that ran and found something wrong; 2 is bad input."""

_PIPE_WIDTH = 120

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def console() -> Console:
    """A console on stdout, wide enough for tables when stdout is no terminal."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def fail(message: str) -> None:
    """Print one line on stderr, as every error of the command line looks."""
    typer.echo(f"kvstrata: {' '.join(message.split())}", err=True)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document, indented."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def print_json_line(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    typer.echo(json.dumps(value, separators=(",", ":"), default=_plain))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str | None = None,
    numbers: Collection[int] | None = None,
) -> None:
    """Print a table; ``numbers`` are the columns that stand right, all but two by default."""
    table = Table(title=title, title_justify="left", header_style="bold")
    right = range(2, len(header)) if numbers is None else numbers
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print pairs of label and value, a line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for label, value in facts:
        grid.add_row(label, value)
    console().print(grid)


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"expected a JSON value, found {type(value).__name__}")
