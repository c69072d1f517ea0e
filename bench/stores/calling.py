"""How a benchmark is called, where it works, and where its results go."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .figures import Goal


def arguments_of(about: str | None, results: Path, quick: str) -> argparse.ArgumentParser:
    """Parser of what every benchmark takes: ``--quick``, ``--out`` and ``--json``."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--out", type=Path, default=None, help=f"default: results/{results.name}")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser


@contextmanager
def scratch(folder: Path | None = None) -> Iterator[tuple[Path, Path]]:
    """A folder on the disk to measure, and one in shared memory; both go afterwards."""
    memory = Path("/dev/shm")
    with (
        TemporaryDirectory(prefix="kvstrata-bench-", dir=folder) as disk,
        TemporaryDirectory(
            prefix="kvstrata-bench-", dir=memory if memory.is_dir() else None
        ) as shared,
    ):
        yield Path(disk), Path(shared)


def write_results(results: dict[str, Any], out: Path | None) -> None:
    """Write them to a file, where there is to be one."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=1) + "\n")


def print_goals(results: dict[str, Any]) -> None:
    """Every goal, and whether it is reached."""
    for goal in results["goals"]:
        print(Goal(**{name: value for name, value in goal.items() if name != "holds"}))
