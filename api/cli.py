"""The ``kvstrata`` command: exit code 0 is fine, 1 found something wrong, 2 is bad input."""

from __future__ import annotations

import errno
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kvstrata.core.errors import CorruptSegment, InvariantViolation, KvstrataError

from .commands import (
    clean,
    dashboards,
    demo,
    events,
    explain,
    fsck,
    layout,
    query,
    recover,
    replay,
    serve,
    tiers,
    warmup,
)
from .output import FOUND_SOMETHING_WRONG, fail

__all__ = ["app", "main"]

_BAD_INPUT = 2

_EPILOG = """
[bold]Examples[/bold]

kvstrata layout deepseek-v4-flash --budget 40GB

kvstrata explain /var/lib/kvstrata --tokens prompt.json

kvstrata fsck /var/lib/kvstrata

kvstrata events /var/lib/kvstrata --type PAGE_SEALED --limit 5 --json

Exit codes: 0 all is well, 1 the command found something wrong, 2 bad input.
"""


class _Commands(TyperGroup):
    """Turns an expected error of any command into one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (CorruptSegment, InvariantViolation) as error:
            fail(str(error))
            raise typer.Exit(FOUND_SOMETHING_WRONG) from error
        except KvstrataError as error:
            fail(str(error))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{error.strerror or error}")
        raise typer.Exit(_BAD_INPUT)


app = typer.Typer(
    name="kvstrata",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
)
for _module in (demo, layout, replay, explain, query, fsck, recover, events, clean, warmup, serve):
    _name = _module.__name__.rpartition(".")[2]
    app.command(_name, epilog=_module.EPILOG)(_module.run)
app.add_typer(tiers.app, name="tiers")
app.add_typer(dashboards.app, name="dashboards")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvstrata {version('kvstrata')}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """The KV-cache layer of an LLM engine: look at layouts, hits, event logs and crashes."""


def main() -> None:
    """Run the command line."""
    app()
