"""``kvstrata demo``: reuse, a crash, recovery and damage, before your eyes."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvstrata.core.errors import ConfigError
from kvstrata.eventstore.log.directory import LogPaths

from ..demo.process import EngineProcess
from ..demo.report import Report
from ..demo.screen import Screen
from ..directories import DEFAULT_SHARED_MEMORY_ROOT, SharedMemoryRoot
from ..output import FOUND_SOMETHING_WRONG, JsonFlag, fail, print_json, print_json_line
from ..stopping import until_stopped

if TYPE_CHECKING:
    from ..load import LoadConfig

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata demo

kvstrata demo --dir DIR --json

kvstrata demo --load --serve --faults

A tiny model of the DeepSeek-V4 architecture answers questions about texts that come with Python,
with kvstrata as its cache, in a process of its own. It needs extras: kvstrata\\[engine,tiers].
Exit code 1 if an answer differs from the uncached run in one bit, or if damage is not caught.

With --load no scenes are played: the engine answers conversations without an end, more than its
pools hold, until Ctrl-C or --duration; --serve puts the admin API beside it (kvstrata\\[api]), and
--faults damages a page, a stored object, or kills the engine, in turn. A line a second says how it
goes. Without --dir all is removed at the end; with it, a load before is gone on with.
"""

_PACKAGES = ("transformers", "sqlalchemy", "alembic", "obstore")
_MODEL = "transformers.models.deepseek_v4"
_INTERRUPTED = 130


def run(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Log directory, empty or absent; by default a temporary one, kept without --load.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seeds the model's weights.")] = 0,
    load: Annotated[bool, typer.Option("--load", help="Keep an engine at work.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="The admin API beside it.")] = False,
    faults: Annotated[bool, typer.Option("--faults", help="Damage it, and kill it.")] = False,
    fault_every: Annotated[float, typer.Option(help="Seconds between two faults.")] = 20.0,
    duration: Annotated[
        float | None,
        typer.Option(help="Seconds, its start included, until the load ends; never by default."),
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests a second that come.")] = 2.0,
    tier: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A folder or bucket below the device, fastest first."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address of the API.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the API.")] = 8420,
    token_file: Annotated[Path | None, typer.Option(help="Tokens of the API's users.")] = None,
    catalogue: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Of incidents and commands; by default a file."),
    ] = None,
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Show reuse, kill the engine, recover, damage pages and files; or keep it under load."""
    _check_engine()
    if load:
        from ..load import LoadConfig
        from ..load.config import ServeConfig

        if serve:
            _check_api()
        config = LoadConfig(
            directory,
            shared_memory_root,
            seed,
            rate,
            duration,
            fault_every if faults else None,
            tuple(tier or ()),
            ServeConfig(host, port, token_file, catalogue) if serve else None,
        )
        _load(config, as_json)
        return
    for name, given in (("--serve", serve), ("--faults", faults), ("--duration", duration)):
        if given:
            raise ConfigError(f"{name}: expected it with --load, found it without; add --load")
    directory = _empty(directory)
    try:
        report = _play(directory, seed, shared_memory_root, Screen(quiet=as_json))
    except KeyboardInterrupt:
        fail(f"interrupted; the log lies in {directory}")
        raise typer.Exit(_INTERRUPTED) from None
    if as_json:
        print_json(report.to_json())
    if report.failures():
        raise typer.Exit(FOUND_SOMETHING_WRONG)


def _load(config: LoadConfig, as_json: bool) -> None:
    from ..load import run_load
    from ..load.screen import Screen as LoadScreen

    directory = config.directory
    if directory is not None and not LogPaths(directory).format.is_file():
        _empty(directory)
    with until_stopped() as signals:
        counts = run_load(config, LoadScreen(as_json), lambda: bool(signals))
    if as_json:
        print_json_line({"event": "ended", "counts": counts.to_json()})
    else:
        kept = "all of it is removed" if directory is None else f"the log lies in {directory}"
        typer.echo(f"{counts.requests:,} requests answered; {kept}")


def _check_api() -> None:
    if importlib.util.find_spec("fastapi") is None:
        raise ConfigError(
            "demo --serve: expected the extra 'api', found no fastapi; pip install 'kvstrata[api]'"
        )


def _play(directory: Path, seed: int, shared_memory_root: Path, screen: Screen) -> Report:
    with EngineProcess() as engine:
        # What takes seconds to import here is imported there at the same time.
        from ..demo.play import play
        from ..demo.stage import Settings

        report = play(Settings(seed, directory, shared_memory_root), engine, screen)
    screen.end(report)
    return report


def _check_engine() -> None:
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        found = f"no {missing[0]}"
    elif importlib.util.find_spec(_MODEL) is None:
        found = "a version of transformers without DeepSeek-V4"
    else:
        return
    raise ConfigError(
        f"demo: expected the extras 'engine' and 'tiers', found {found}; pip install "
        "'kvstrata[engine,tiers]'"
    )


def _empty(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="kvstrata-demo-"))
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(
            f"{directory}: expected an empty or absent directory, found "
            f"{'files in it' if directory.is_dir() else 'a file'}; name another one"
        )
    return directory
