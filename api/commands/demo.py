"""``kvstrata demo``: reuse, a crash, recovery and damage, before your eyes."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kvstrata.core.errors import ConfigError

from ..demo.process import EngineProcess
from ..demo.report import Report
from ..demo.screen import Screen
from ..directories import DEFAULT_SHARED_MEMORY_ROOT, SharedMemoryRoot
from ..output import FOUND_SOMETHING_WRONG, JsonFlag, fail, print_json

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata demo

kvstrata demo --dir DIR --json

A tiny model of the DeepSeek-V4 architecture answers questions about texts that come with Python,
with kvstrata as its cache, in a process of its own. It needs extras: kvstrata\\[engine,tiers].
Exit code 1 if an answer differs from the uncached run in one bit, or if damage is not caught.
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
            help="Log directory, empty or absent; a temporary one, which is kept, by default.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seeds the model's weights.")] = 0,
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Show reuse, kill the engine, recover, damage pages and files; check every answer."""
    _check_engine()
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
