"""``kvstrata warmup``: compile ahead."""

from __future__ import annotations

import sys
import time

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from kvstrata.core.compile import cache_folder

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata warmup

KVSTRATA_CACHE_DIR=/var/cache/kvstrata kvstrata warmup    (another folder than the user's cache)

The compiled code is kept on disk under a digest of the sources; a second call takes seconds.
"""


def run() -> None:
    """Compile the core and keep the result on disk, so that no first request waits for it."""
    from ..warm import NUM_STAGES, warm  # torch, which other commands do not need

    began, is_shown = time.perf_counter(), sys.stdout.isatty()
    if not is_shown:
        typer.echo("compiling: one to three minutes where nothing is compiled yet", err=True)
    columns = (
        SpinnerColumn(),
        TextColumn("compiling: {task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, disable=not is_shown, transient=True) as progress:
        task = progress.add_task("", total=NUM_STAGES)
        for number, stage in enumerate(warm()):
            progress.update(task, completed=number, description=stage)
    typer.echo(f"compiled in {time.perf_counter() - began:.1f} s, kept in {cache_folder()}")
