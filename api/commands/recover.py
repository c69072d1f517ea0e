"""``kvstrata recover``: what is left after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..directories import (
    DEFAULT_SHARED_MEMORY_ROOT,
    DirectoryArgument,
    LogDirectory,
    SharedMemoryRoot,
)
from ..output import FOUND_SOMETHING_WRONG, JsonFlag, print_facts, print_json

if TYPE_CHECKING:
    from kvstrata import Recovery

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata recover DIR --dry-run    (also beside a running engine: if it died now)

kvstrata recover DIR --json

An engine that opens the directory does the same by itself. Exit code 1 if a page that should have
survived failed its checksum, or if the log is corrupt.
"""


def run(
    directory: DirectoryArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be recovered; change nothing.")
    ] = False,
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Replay a log directory and say what is kept, what is lost, and why."""
    from ..recovering import recover, rehearse  # torch, which other commands do not need

    log = LogDirectory.read(directory)
    found = (rehearse if dry_run else recover)(log, shared_memory_root)
    if as_json:
        fields = found.to_json()
        report = fields.pop("log")
        print_json(
            {
                "directory": directory,
                "dry_run": dry_run,
                "events_replayed": report.pop("events_replayed"),
                "seconds": report.pop("seconds"),
                "pages": {"kept": fields.pop("pages_kept"), "lost": fields.pop("pages_lost")},
                **fields,
                "log": report,
            }
        )
    else:
        _print(found, dry_run)
    if found.pages_lost.get("checksum_mismatch"):
        raise typer.Exit(FOUND_SOMETHING_WRONG)


def _print(found: Recovery, dry_run: bool) -> None:
    log = found.log
    state = "closed cleanly" if log.clean else "left by a crash"
    if log.boot_changed:
        state += ", on an earlier boot of the machine"
    if log.unlogged:
        state += ", with changes that went past the log"
    start = f" after the snapshot at event {log.snapshot_seqno:,}" if log.snapshot_seqno else ""
    lost = [(f"lost, {fate.replace('_', ' ')}", f"{n:,}") for fate, n in found.pages_lost.items()]
    print_facts(
        [
            ("state found", state),
            ("events replayed", f"{log.events_replayed:,}{start} in {log.seconds:.3f} s"),
            ("of these from the ring", f"{log.events_from_ring:,}"),
            ("log ends at event", f"{log.last_seqno:,}"),
            ("bytes of pages", "as the log says" if log.bytes_trusted else "not to be trusted"),
            ("pages kept", f"{found.pages_kept:,}"),
            *lost,
            ("sequences ended", f"{found.sequences_ended:,}"),
        ]
    )
    for damage in log.damage:
        typer.echo(f"damage: {damage}")
    typer.echo("nothing was changed" if dry_run else "recovered")
