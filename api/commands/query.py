"""``kvstrata query``: questions to a log, by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvstrata.core.errors import ConfigError

from ..directories import (
    DEFAULT_SHARED_MEMORY_ROOT,
    DirectoryArgument,
    LogDirectory,
    SharedMemoryRoot,
)
from ..output import JsonFlag, fail, print_facts, print_json, print_table

if TYPE_CHECKING:
    from kvstrata.eventstore.history.analytics import Column, Parameter, Query, Table

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata query DIR

kvstrata query DIR failures --param bucket_s=3600 --param last_s=86400

kvstrata query DIR pages --param state=SEALED --json

Without NAME it lists the queries, with what may be set. Only durable events are asked. It needs an
extra: kvstrata\\[history].
"""

_WORDS = ("name", "time")
_NUMBERS_OF_THINGS = ("page", "seqno", "generation", "layer", "tier")


def run(
    directory: DirectoryArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Of the query; the list by default.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="K=V", help="Set a parameter; may be given several times."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Print at most so many rows.")] = 10_000,
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Ask a log: failures, hits, pages by state, evictions, waits, drift, over time."""
    _check_extra()
    from kvstrata.eventstore.history.analytics import find_query, queries, run_query

    log = LogDirectory.read(directory)
    if name is None:
        _list(queries(), as_json)
        return
    answer = run_query(
        log.path,
        name,
        _parameters(settings or ()),
        max_rows=limit,
        shared_memory_root=shared_memory_root,
    )
    query = find_query(name)
    if as_json:
        print_json(
            {
                "query": query.name,
                "columns": [_column(column) for column in answer.columns],
                "rows": answer.records(),
                "is_cut": answer.is_cut,
            }
        )
        return
    _print(query, answer)


def _check_extra() -> None:
    if importlib.util.find_spec("duckdb") is None:
        raise ConfigError(
            "query: expected the extra 'history', found no duckdb; pip install 'kvstrata[history]'"
        )


def _parameters(settings: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise ConfigError(f"--param: expected NAME=VALUE, found {setting!r}")
        if name in found:
            raise ConfigError(f"--param: expected each parameter once, found {name} twice")
        found[name] = value
    return found


def _list(known: Sequence[Query], as_json: bool) -> None:
    if as_json:
        print_json([_described(query) for query in known])
        return
    rows = [
        (
            query.name,
            query.title,
            ", ".join(f"{one.name}={_default(one)}" for one in query.parameters),
        )
        for query in known
    ]
    print_table(("query", "what it answers", "parameters"), rows, numbers=())


def _default(parameter: Parameter) -> str:
    value = parameter.default
    return value if isinstance(value, str) else f"{value:g}"


def _described(query: Query) -> dict[str, Any]:
    return {
        "name": query.name,
        "title": query.title,
        "parameters": [
            {
                "name": one.name,
                "type": one.type,
                "default": one.default,
                "meaning": one.meaning,
            }
            for one in query.parameters
        ],
        "columns": [_column(column) for column in query.columns],
    }


def _column(column: Column) -> dict[str, str]:
    return {"name": column.name, "unit": column.unit, "meaning": column.meaning}


def _print(query: Query, answer: Table) -> None:
    if not answer.rows:
        print_facts([(query.title, "nothing")])
        return
    print_table(
        [_heading(column) for column in answer.columns],
        (
            [_text(column, value) for column, value in zip(answer.columns, row, strict=True)]
            for row in answer.rows
        ),
        title=query.title,
        numbers=[n for n, column in enumerate(answer.columns) if column.unit not in _WORDS],
    )
    if answer.is_cut:
        fail(f"only the first {len(answer.rows):,} rows; a higher --limit gives more")


def _heading(column: Column) -> str:
    name = column.name.replace("_", " ")
    if column.unit in _WORDS or column.unit in ("1", *column.name.split("_")):
        return name
    return f"{name}\n{column.unit}"


def _text(column: Column, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return str(value) if column.name in _NUMBERS_OF_THINGS else f"{value:,}"
    text = str(value)
    return (
        text.replace("T", " ").removesuffix("Z").removesuffix(".000")
        if column.unit == "time"
        else text
    )
