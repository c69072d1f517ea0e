"""Runbooks: a page an alert, made from the table."""

from typing import Final

from .alert import Alert, Step
from .table import ALERTS

__all__ = ["DEFAULT_RUNBOOKS_URL", "HEADINGS", "runbook", "runbook_url"]

DEFAULT_RUNBOOKS_URL: Final = "http://127.0.0.1:8420/runbooks"
"""Where ``kvstrata serve`` shows them."""
HEADINGS: Final = ("Meaning", "Impact", "Diagnosis", "Mitigation")

_PLACES: Final = (
    "`$KVSTRATA` is the address of `kvstrata serve`, `$TOKEN` a token of its token file, `DIR` the "
    "log directory, `STORE` a tier's folder or URL; other words in capitals come from the step "
    "before."
)


def runbook_url(name: str, base: str = DEFAULT_RUNBOOKS_URL) -> str:
    """Where the runbook of an alert is."""
    return f"{base.rstrip('/')}/{name}"


def runbook(name: str) -> str:
    """The runbook of an alert, in Markdown.

    Raises:
        KeyError: no alert of that name.
    """
    alert = ALERTS[name]
    book = alert.runbook
    lines = [
        f"# {alert.name}",
        "",
        f"Severity {alert.severity}; fires {_when(alert)}",
        "",
        "```promql",
        *_wrapped(alert),
        "```",
        "",
        "## Meaning",
        "",
        book.meaning,
        "",
        "## Impact",
        "",
        book.impact,
        "",
        "## Diagnosis",
        "",
        _PLACES,
        "",
        *_steps(book.diagnosis),
        "## Mitigation",
        "",
        *_steps(book.mitigation),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _when(alert: Alert) -> str:
    return "at once where this holds" if alert.hold == "0m" else f"after {alert.hold} of"


def _wrapped(alert: Alert) -> list[str]:
    expression = alert.expression
    for word in (" or ", " unless ", " and "):
        expression = expression.replace(word, f"\n{word[1:]}")
    return expression.splitlines()


def _steps(steps: tuple[Step, ...]) -> list[str]:
    lines = []
    for number, step in enumerate(steps, 1):
        lines += [f"{number}. {step.text}", ""]
        if step.run:
            lines += ["   ```sh", f"   {shell(step.run)}", "   ```", ""]
    return lines


def shell(run: str) -> str:
    """A step's call or command, as it is typed into a shell."""
    method, _, rest = run.partition(" ")
    if method == "kvstrata":
        return run
    path, _, body = rest.partition(" ")
    call = 'curl -sS -H "Authorization: Bearer $TOKEN"'
    if method == "POST":
        call += f" -H 'Content-Type: application/json' -d '{body}'"
    return f'{call} "$KVSTRATA{path}"'
