"""``kvstrata events``: the log, event by event."""

from __future__ import annotations

from typing import Annotated

import typer

from kvstrata.eventstore.log import read_events

from ..directories import DirectoryArgument, LogDirectory
from ..events import describe, event_types, line, select
from ..output import JsonFlag, print_json_line

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata events DIR --limit 20

kvstrata events DIR --from 1000 --to 2000 --type PAGE_SEALED --json

A column such as c4/17#3 is group/page#generation. Events that a crash left in the ring alone
appear once the directory was opened again or after kvstrata recover.
"""


def run(
    directory: DirectoryArgument,
    from_seqno: Annotated[
        int | None, typer.Option("--from", min=1, help="First seqno; the log's first by default.")
    ] = None,
    to_seqno: Annotated[
        int | None, typer.Option("--to", min=1, help="Last seqno; the log's last by default.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only events of this type; may be given several times."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Print at most so many.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the stored events in order; with --json a JSON object a line."""
    chosen = event_types(types or ())
    log = LogDirectory.read(directory)
    batches = read_events(directory, log.first_seqno if from_seqno is None else from_seqno)
    for event in select(batches, to_seqno, chosen, limit):
        fields = describe(event, log.group_names)
        if as_json:
            print_json_line(fields)
        else:
            typer.echo(line(fields))
