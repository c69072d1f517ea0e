"""Writes the part of docs/queries.md that the queries say themselves.

``python -m tools.queries_page`` brings the page up to date; a test fails where it is not.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kvstrata.eventstore.history.analytics import Query, queries

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
    return re.sub(
        r"(<!-- queries -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{generated}\n\n{found[2]}",
        text,
        flags=re.DOTALL,
    )


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
        "| parameter | default | meaning |",
        "|---|---|---|",
    ]
    for parameter in query.parameters:
        default = parameter.default
        shown = "empty" if isinstance(default, str) else f"`{default:g}`"
        lines.append(f"| `{parameter.name}` | {shown} | {parameter.meaning} |")
    lines += ["", "| column | unit | meaning |", "|---|---|---|"]
    for column in query.columns:
        unit = {"1": "", "name": "", "time": "UTC"}.get(column.unit, column.unit)
        lines.append(f"| `{column.name}` | {unit} | {column.meaning} |")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
