"""Writes the part of docs/queries.md that the queries say themselves.

``python -m tools.queries_page`` brings the page up to date; a test fails where it is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvstrata.eventstore.history.analytics import Query, queries
from kvstrata.eventstore.history.analytics.query import Column, Parameter

from .markdown import between, table

__all__ = ["EXAMPLES", "PAGE", "render"]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "queries.md"

EXAMPLES: Final = {
    "activity": "activity --param last_s=600",
    "admission": "admission --param bucket_s=10",
    "drift": "drift --param bucket_s=3600",
    "evictions": "evictions --param bucket_s=600",
    "failures": "failures --param bucket_s=60 --param last_s=86400",
    "hits": "hits --param bucket_s=300",
    "page_history": "page_history --param group=swa --param page=1",
    "page_states": "page_states --param bucket_s=60 --param group=full",
    "pages": "pages --param state=SEALED --limit 20",
    "recoveries": "recoveries --json",
    "resume_lengths": "resume_lengths",
    "transfers": "transfers --param bucket_s=600",
}
"""A command for each query, without the directory."""


def render(text: str) -> str:
    """The page with its generated part as it must be."""
    generated = "\n\n".join(_section(query) for query in queries())
    return between(text, "<!-- queries -->\n", "<!-- end -->", f"\n{generated}\n\n")


def _section(query: Query) -> str:
    lines = [
        f"### {query.name}",
        "",
        f"{query.title}.",
        "",
        "```sh",
        f"kvstrata query cache-log {EXAMPLES[query.name]}",
        "```",
        "",
        table("parameter | default | meaning", (_parameter(one) for one in query.parameters)),
        "",
        table("column | unit | meaning", (_column(one) for one in query.columns)),
    ]
    return "\n".join(lines)


def _parameter(parameter: Parameter) -> tuple[str, str, str]:
    default = parameter.default
    shown = "empty" if isinstance(default, str) else f"`{default:g}`"
    return f"`{parameter.name}`", shown, parameter.meaning


def _column(column: Column) -> tuple[str, str, str]:
    unit = {"1": "", "name": "", "time": "UTC"}.get(column.unit, column.unit)
    return f"`{column.name}`", unit, column.meaning


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
