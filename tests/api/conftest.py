from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvstrata.api.cli import app


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class CommandLine:
    """Runs the command line in this process."""

    def __call__(self, *arguments: object) -> Outcome:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def refuses(self, *arguments: object) -> str:
        """Run what must fail as bad input; return its one line."""
        outcome = self(*arguments)
        assert outcome.code == 2, outcome
        assert outcome.out == ""
        assert outcome.err.startswith("kvstrata: ")
        assert outcome.err.count("\n") == 1
        return outcome.err


@pytest.fixture
def kvstrata() -> CommandLine:
    return CommandLine()


@pytest.fixture
def shared_root() -> Iterator[Path]:
    """A folder in shared memory for rings and pools, removed after the test."""
    with tempfile.TemporaryDirectory(prefix="kvstrata-api-", dir="/dev/shm") as folder:
        yield Path(folder)
