"""``kvstrata explain``: why a prompt hits as far as it does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..directories import (
    DEFAULT_SHARED_MEMORY_ROOT,
    DirectoryArgument,
    LogDirectory,
    SharedMemoryRoot,
)
from ..output import JsonFlag, print_facts, print_json, print_table
from ..sizes import format_bytes

if TYPE_CHECKING:
    from kvstrata import Explanation

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata explain DIR --tokens prompt.json

kvstrata explain DIR --tokens prompt.npy --model deepseek-v4-flash --weights v1 --json

FILE holds token ids: a JSON list, numbers with spaces or commas between, or a .npy array. Without
--model the request is taken to be of the model, adapter and tenant that the log's last sequence
had. Everything is read from the log, also beside a running engine; nothing is changed.
"""


def run(
    directory: DirectoryArgument,
    tokens: Annotated[Path, typer.Option(metavar="FILE", help="The prompt's token ids.")],
    model: Annotated[str | None, typer.Option(help="Name of the model, as in Request.")] = None,
    weights: Annotated[str, typer.Option(help="Identity of its weights, with --model.")] = "",
    adapter: Annotated[str, typer.Option(help="Name of the adapter, with --model.")] = "",
    tenant: Annotated[str, typer.Option(help="The tenant's salt, with --model.")] = "",
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Say how far each group is good for a prompt, what each way costs, and which is taken."""
    from ..explaining import explain_from_log, read_tokens

    log = LogDirectory.read(directory)
    identity = None if model is None else (model, weights, adapter, tenant.encode())
    found = explain_from_log(log, shared_memory_root, read_tokens(tokens), identity)
    if as_json:
        print_json({"directory": directory, **found.to_json()})
    else:
        _print(found)


def _print(found: Explanation) -> None:
    print_table(
        ("group", "kind", "good for tokens", "because"),
        [(g.group, g.kind, f"{g.tokens:,}", g.limit) for g in found.groups],
        title=f"Prompt of {found.prompt_tokens:,} tokens",
    )
    print_table(
        ("way", "verdict", "resume at", "reuse", "load", "cost ms"),
        [
            (
                way.source,
                way.verdict,
                f"{way.resume_at:,}",
                f"{way.reused_tokens:,}",
                format_bytes(way.load_bytes),
                f"{way.cost_ms:,.3f}",
            )
            for way in found.ways
        ],
        title="\nWays to resume",
    )
    joins = []
    if found.join is not None:
        joins = [
            ("rather waits for", f"sequence {found.join.sequence:#x}, {found.join.seconds:.3f} s")
        ]
    limits = [("no more is reused", found.limited)] if found.limited else []
    print_facts(
        [
            ("choice", f"{found.source}, resumes at {found.resume_at:,}"),
            ("tokens to compute", f"{found.prompt_tokens - found.resume_at:,}"),
            *limits,
            *joins,
            (
                "reckoned with",
                f"{found.tokens_per_s:,} tokens/s computed, "
                f"{format_bytes(found.bytes_per_s)}/s copied",
            ),
        ]
    )
