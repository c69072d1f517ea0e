"""Every alert has a runbook; what it tells people to run exists."""

from __future__ import annotations

import itertools
import re
import shlex
from typing import Any

import pytest
import typer.main

from kvstrata.api.cli import app
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EventType
from kvstrata.dashboard.alerts import ALERTS, HEADINGS, Runbook, Step, runbook, runbook_url
from tools import dashboard_pages

RUNS = sorted(
    {
        (alert.name, step.run)
        for alert in ALERTS.values()
        for step in (*alert.runbook.diagnosis, *alert.runbook.mitigation)
        if step.run
    }
)
COMMANDS = [run for run in RUNS if run[1].startswith("kvstrata ")]


@pytest.mark.parametrize("name", ALERTS)
def test_a_runbook_has_its_headings_and_what_to_run(name: str) -> None:
    text = runbook(name)
    assert text.startswith(f"# {name}\n")
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == HEADINGS
    assert "$KVSTRATA/" in text or "kvstrata " in text


def test_the_committed_runbooks_are_those_of_the_table() -> None:
    made = dashboard_pages.runbooks()
    kept = set((dashboard_pages.DOCS / "runbooks").glob("*.md"))
    assert kept == set(made), "run python -m tools.dashboard_pages"
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "run python -m tools.dashboard_pages"


@pytest.mark.parametrize(("name", "run"), COMMANDS)
def test_a_runbook_s_command_exists(name: str, run: str) -> None:
    """Its words are a command, its options are that command's, its events are events."""
    words = shlex.split(run)[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"{name}: {run}"
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    given = [word for word in words if word.startswith("--")]
    assert set(given) <= known, f"{name}: {run}"
    for option, value in itertools.pairwise(words):
        if option == "--type":
            assert value in EventType.__members__, f"{name}: {run}"


def test_a_runbook_without_something_to_run_is_refused() -> None:
    step = Step("Look.")
    with pytest.raises(ConfigError, match="a diagnosis with a call or command"):
        Runbook("It is so.", "It matters.", (step,), (step,))
    with pytest.raises(ConfigError, match="rm -rf"):
        Step("Do not.", "rm -rf DIR")


def test_a_runbook_s_address_follows_its_base() -> None:
    assert runbook_url("KVCacheX", "https://wiki/") == "https://wiki/KVCacheX"
