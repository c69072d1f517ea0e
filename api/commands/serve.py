"""``kvstrata serve``: the admin API, metrics and a page, over a log directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvstrata.core.errors import ConfigError

from ..directories import DEFAULT_SHARED_MEMORY_ROOT, DirectoryArgument, SharedMemoryRoot
from ..output import JsonFlag, print_json_line

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata serve DIR

kvstrata serve DIR --host 0.0.0.0 --token-file /run/secrets/kvstrata-tokens

Then look at http://127.0.0.1:8420/ or ask http://127.0.0.1:8420/v1/pools; docs/api.md has all of
it. The engine is not asked anything: what is told is read from its log. Without a token file the
server listens on the loopback alone, and whoever can connect is an operator.
"""


def run(
    directory: DirectoryArgument,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for any free one.")] = 8420,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A line per token: ROLE NAME TOKEN."),
    ] = None,
    catalogue: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where incidents and commands are kept; an SQLite file beside DIR if not given.",
        ),
    ] = None,
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Serve the admin API, metrics and a page about a log, until interrupted."""
    try:
        from ..server.serving import open_server
        from ..server.settings import ServerSettings
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serve: expected the packages of kvstrata's extra 'api', found no {error.name}: "
            "pip install 'kvstrata[api]'"
        ) from error

    settings = ServerSettings(host=host, port=port, token_file=token_file, catalogue=catalogue)

    with open_server(directory, settings, shared_memory_root) as server:

        def says(bound: int) -> None:
            name = f"[{host}]" if ":" in host else host
            url, has_log = f"http://{name}:{bound}/", server.follower.is_open
            if as_json:
                said = {"url": url, "port": bound, "directory": str(directory), "has_log": has_log}
                print_json_line(said)
            else:
                note = "" if has_log else "; there is no log yet, it is waited for"
                typer.echo(f"kvstrata serves {directory} at {url}{note}")

        server.run(says)
