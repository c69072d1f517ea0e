from __future__ import annotations

import subprocess
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from kvstrata.api.cli import app
from tests.processes import KVSTRATA

if TYPE_CHECKING:
    from .conftest import CommandLine

COMMANDS = sorted(str(each.name) for each in (*app.registered_commands, *app.registered_groups))


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KVSTRATA, *arguments], capture_output=True, text=True, check=False)


def test_version_is_the_installed_one() -> None:
    found = run_process("--version")
    assert found.returncode == 0
    assert found.stdout == f"kvstrata {version('kvstrata')}\n"


def test_no_command_shows_the_help(kvstrata: CommandLine) -> None:
    outcome = kvstrata()
    assert outcome.code == 2
    for command in COMMANDS:
        assert command in outcome.out + outcome.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples_and_json(kvstrata: CommandLine, command: str) -> None:
    outcome = kvstrata(command, "--help")
    assert outcome.code == 0
    assert f"kvstrata {command}" in outcome.out.split("Examples", 1)[1]
    assert "--json" in outcome.out or command == "warmup"


def test_an_error_is_one_line_without_traceback() -> None:
    found = run_process("layout", "gpt")
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("kvstrata: preset: expected one of")
    assert found.stderr.count("\n") == 1


def test_unknown_commands_and_options_are_bad_usage(kvstrata: CommandLine) -> None:
    assert kvstrata("lay").code == 2
    assert kvstrata("layout", "--nonsense").code == 2


def test_a_closed_pipe_is_no_error_of_ours() -> None:
    process = subprocess.Popen(
        [*KVSTRATA, "layout", "deepseek-v4-pro", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.wait()
    process.stderr.close()
