"""``kvstrata dashboards``: what Prometheus and Grafana read, written as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvstrata.core.errors import ConfigError

from ..output import JsonFlag, print_json, print_table

__all__ = ["app"]

_EPILOG = """
[bold]Examples[/bold]

kvstrata dashboards build OUT

kvstrata dashboards build OUT --runbooks https://wiki.example.com/kvcache --json
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", epilog=_EPILOG)


@app.callback()
def _root() -> None:
    """Rules, alerts and dashboards for Prometheus and Grafana."""


@app.command("build", epilog=_EPILOG)
def build(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the files.")],
    runbooks: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the runbooks are served.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Where Grafana asks Prometheus.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write rules and alerts for Prometheus, and alerts and dashboards that provision Grafana."""
    try:
        from kvstrata.dashboard.alerts import DEFAULT_RUNBOOKS_URL
        from kvstrata.dashboard.grafana import DEFAULT_PROMETHEUS_URL, build_files
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"dashboards: expected the packages of an extra, found no {error.name}; "
            "pip install 'kvstrata[dashboard]'"
        ) from error
    files = build_files(runbooks or DEFAULT_RUNBOOKS_URL, prometheus or DEFAULT_PROMETHEUS_URL)
    for name, text in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"out": str(out), "files": {name: len(files[name]) for name in files}})
    else:
        print_table(("file", "bytes"), [(name, f"{len(text):,}") for name, text in files.items()])
