"""What one alert is, and what its runbook says."""

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from kvstrata.core.errors import ConfigError

__all__ = ["PREFIX", "Alert", "Runbook", "Severity", "Step"]

PREFIX: Final = "KVCache"
Severity = Literal["critical", "warning", "info"]
"""critical: somebody is called; warning: somebody looks today; info: shown, nobody is called."""

_NAME: Final = re.compile(r"KVCache[A-Z][A-Za-z]+")
_DURATION: Final = re.compile(r"\d+[smhd]")
_RUNS: Final = ("GET /", "POST /", "kvstrata ")


@dataclass(frozen=True)
class Step:
    """One step of a diagnosis or mitigation.

    Attributes:
        text: what to look for, or why; a sentence.
        run: a call of the API (``GET /v1/…``, ``POST /v1/… {json}``) or a ``kvstrata`` command,
            where ``DIR`` is the log directory; empty for none.
    """

    text: str
    run: str = ""

    def __post_init__(self) -> None:
        if self.run and not self.run.startswith(_RUNS):
            raise ConfigError(
                f"runbook step: expected a call or command that begins with one of "
                f"{', '.join(_RUNS)}, found {self.run!r}"
            )


@dataclass(frozen=True)
class Runbook:
    """What to know and do when an alert fires.

    Attributes:
        meaning: what was observed.
        impact: what it does to requests and data.
        diagnosis: how to find the cause.
        mitigation: how to end it.
    """

    meaning: str
    impact: str
    diagnosis: tuple[Step, ...]
    mitigation: tuple[Step, ...]

    def __post_init__(self) -> None:
        texts = (self.meaning, self.impact)
        if not all(texts) or not self.mitigation or not any(step.run for step in self.diagnosis):
            raise ConfigError(
                "runbook: expected a meaning, an impact, a diagnosis with a call or command, and a "
                f"mitigation, found {self}"
            )


@dataclass(frozen=True)
class Alert:
    """One row of the table of alerts.

    Attributes:
        name: ``KVCache`` and what is wrong.
        expression: PromQL; a series of it is one firing alert.
        hold: how long it must hold before it fires.
        severity: how urgent it is.
        summary: one line, may name labels of the series.
        description: what it means for this series, and its value.
        runbook: what to do.

    Raises:
        ConfigError: a name, duration or severity that is none.
    """

    name: str
    expression: str
    hold: str
    severity: Severity
    summary: str
    description: str
    runbook: Runbook

    def __post_init__(self) -> None:
        for what, holds in {
            "a name of KVCache and words": _NAME.fullmatch(self.name),
            "an expression": self.expression.strip(),
            "a hold such as 5m": _DURATION.fullmatch(self.hold),
            "a known severity": self.severity in get_args(Severity),
            "a summary and a description": self.summary and self.description,
        }.items():
            if not holds:
                raise ConfigError(f"alert {self.name}: expected {what}, found {self}")
