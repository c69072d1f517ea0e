"""``kvstrata fsck``: check a log directory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kvstrata.eventstore.log import Damage
from kvstrata.eventstore.log.fsck import FsckReport, fsck

from ..directories import DEFAULT_SHARED_MEMORY_ROOT, DirectoryArgument, SharedMemoryRoot
from ..output import FOUND_SOMETHING_WRONG, JsonFlag, print_facts, print_json

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata fsck DIR

kvstrata fsck DIR --repair    (cut at the first fault; a copy stays under DIR/damaged)

Faults are what recovery refuses, or what is lost: exit code 1. Notes are what recovery handles by
itself. Works beside a running engine; a repair does not.
"""


def run(
    directory: DirectoryArgument,
    repair: Annotated[
        bool, typer.Option("--repair", help="Cut what is damaged, keep a copy, check again.")
    ] = False,
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Check everything a log directory holds; change nothing unless asked to."""
    report = fsck(directory, repair, shared_memory_root)
    if as_json:
        print_json({**asdict(report), "is_sound": report.is_sound})
    else:
        _print_report(report)
    if not report.is_sound:
        raise typer.Exit(FOUND_SOMETHING_WRONG)


def _print_report(report: FsckReport) -> None:
    held = "no events"
    if report.num_events:
        held = f"{report.num_events:,} events, {report.first_seqno:,} to {report.last_seqno:,}"
    newest = f", newest at event {report.snapshot_seqno:,}" if report.num_snapshots else ""
    print_facts(
        [
            ("segments", f"{report.num_segments:,} with {held}"),
            ("known durable", f"up to event {report.durable_seqno:,}"),
            ("snapshots", f"{report.num_snapshots:,}{newest}"),
            ("blobs", f"{report.num_blobs:,}"),
        ]
    )
    for repaired in report.repairs:
        typer.echo(f"repaired: {repaired}")
    for note in report.notes:
        typer.echo(f"note: {_line(report.directory, note)}")
    for fault in report.faults:
        typer.echo(f"fault: {_line(report.directory, fault)}")
    typer.echo("sound" if report.is_sound else f"{len(report.faults)} faults")


def _line(directory: Path, damage: Damage) -> str:
    path = damage.path
    shown = path.relative_to(directory) if path.is_relative_to(directory) else path
    return f"{shown} at byte {damage.offset}: {damage.decision}: {damage.found}"
