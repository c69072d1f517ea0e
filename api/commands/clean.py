"""``kvstrata clean``: free shared memory that no engine uses."""

from __future__ import annotations

from typing import Annotated

import typer

from kvstrata.core.errors import ConfigError
from kvstrata.eventstore.log.orphans import Orphan, OrphanReason, clean_orphans, find_orphans

from ..directories import DEFAULT_SHARED_MEMORY_ROOT, SharedMemoryRoot
from ..output import JsonFlag, print_json, print_table
from ..sizes import format_bytes

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata clean --dry-run

kvstrata clean --also closed

Rings and pools lie in shared memory and survive their engine. By default only those are removed
whose log directory is gone. Memory of a running engine is never touched.
"""


def run(
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="closed|crashed|nameless",
            help="Remove these as well. closed: the next start will be cold. crashed: events not "
            "yet in the log are lost, try kvstrata recover first. nameless: it names no directory.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")
    ] = False,
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Remove shared memory whose engine is gone."""
    reasons = {OrphanReason.GONE, *(_reason(name) for name in also or ())}
    found = find_orphans(shared_memory_root)
    chosen = [orphan for orphan in found if orphan.reason in reasons]
    removed = [] if dry_run else clean_orphans(shared_memory_root, reasons)
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "removed": [_as_json(orphan) for orphan in removed],
                "chosen": [_as_json(orphan) for orphan in chosen],
                "kept": [_as_json(orphan) for orphan in found if orphan not in chosen],
            }
        )
        return
    places = {orphan.place for orphan in removed}
    verb = "would be removed" if dry_run else "in use again"
    rows = [
        (
            str(orphan.directory or orphan.place),
            orphan.reason.value,
            format_bytes(orphan.num_bytes),
            "removed" if orphan.place in places else verb if orphan in chosen else "kept",
        )
        for orphan in found
    ]
    if rows:
        print_table(("directory", "why", "bytes", "done"), rows)
    freed = sum(orphan.num_bytes for orphan in (chosen if dry_run else removed))
    typer.echo(f"{format_bytes(freed)} {'to free' if dry_run else 'freed'} in {shared_memory_root}")


def _reason(name: str) -> OrphanReason:
    others = [reason.name.lower() for reason in OrphanReason if reason is not OrphanReason.GONE]
    if name.lower() not in others:
        raise ConfigError(f"--also: expected one of {', '.join(others)}, found {name!r}")
    return OrphanReason[name.upper()]


def _as_json(orphan: Orphan) -> dict[str, object]:
    return {
        "place": str(orphan.place),
        "directory": None if orphan.directory is None else str(orphan.directory),
        "reason": orphan.reason.name.lower(),
        "num_bytes": orphan.num_bytes,
    }
