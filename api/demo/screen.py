"""How the demo looks in a terminal: bars while a request runs, tables after each scene."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from ..output import print_facts, print_table
from .messages import StepBegun
from .report import CrashResult, DiskResult, FaultResult, NegativeControl, Report, RequestResult

__all__ = ["Bars", "Screen"]

_YES, _NO = "[green]yes[/green]", "[bold red]no[/bold red]"
_REQUEST_HEADER = (
    "conversation",
    "turn",
    "prompt tokens",
    "resumed at",
    "computed",
    "first token ms",
    "ms",
    "identical",
)


class Bars:
    """Progress of requests, a bar each: what is reused jumps, what is computed walks."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def add(self, label: str, num_tokens: int) -> Callable[[StepBegun], None]:
        """A bar for a request.

        Args:
            label: what it is.
            num_tokens: tokens of its prompt and its answer.

        Returns:
            What to call as each step begins.
        """
        task: TaskID = self._progress.add_task(label, total=num_tokens)

        def on_step(step: StepBegun) -> None:
            end = step.start + step.num_tokens
            self._progress.update(task, completed=num_tokens if end == num_tokens - 1 else end)

        return on_step


class Screen:
    """Prints for people.

    Args:
        quiet: print nothing.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def title(self, text: str) -> None:
        """Begin a scene."""
        if not self._quiet:
            typer.echo()
            typer.secho(text, bold=True)

    def say(self, text: str) -> None:
        """Print a line."""
        if not self._quiet:
            typer.echo(text)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show that something takes its time."""
        with Console(quiet=self._hidden).status(text):
            yield

    @contextmanager
    def bars(self) -> Iterator[Bars]:
        """Show bars while the ``with`` lasts."""
        columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, transient=True, disable=self._hidden) as progress:
            yield Bars(progress)

    @property
    def _hidden(self) -> bool:
        return self._quiet or not sys.stdout.isatty()

    def requests(self, found: Iterable[RequestResult]) -> None:
        """Print a line for each request."""
        rows = [
            (
                request.conversation,
                str(request.turn),
                f"{request.prompt_tokens:,}",
                f"{request.resumed_at:,}",
                f"{request.computed_tokens:,}",
                f"{request.first_token_ms:.0f}",
                f"{request.ms:.0f}",
                _word(request.identical),
            )
            for request in found
        ]
        self._table(_REQUEST_HEADER, rows)

    def crash(self, found: CrashResult) -> None:
        """Print what a recovery found."""
        if self._quiet:
            return
        lost = [
            (f"lost, {fate.replace('_', ' ')}", f"{count:,}")
            for fate, count in found.pages_lost_by_fate.items()
            if count
        ]
        print_facts(
            [
                ("steps in flight", f"{found.steps_in_flight} when killed"),
                ("events replayed", f"{found.events_replayed:,} in {found.seconds * 1e3:.0f} ms"),
                ("pages kept", f"{found.pages_kept:,}"),
                *lost,
                ("sequences ended", f"{found.sequences_ended:,}"),
            ]
        )

    def faults(self, found: Iterable[FaultResult]) -> None:
        """Print what became of each flipped byte."""
        header = ("kind", "page", "layer", "reason", "would resume", "resumed at", "caught")
        rows = [
            (
                fault.kind,
                f"{fault.group}/{fault.page}",
                fault.layer,
                fault.reason,
                f"{fault.would_resume_at:,}",
                f"{fault.resumed_at:,}",
                _word(fault.caught),
                _word(fault.identical),
            )
            for fault in found
        ]
        self._table((*header, "identical"), rows)

    def disk(self, found: DiskResult) -> None:
        """Print what a restart without pages found in the folder, and what became of the damage."""
        self.say(
            f"{found.pages_lost:,} pages lost, {found.stored_objects:,} objects in the folder, "
            f"{found.read_objects:,} of them read for the first request; then a byte is flipped"
        )
        self.requests([found.resumed, found.recomputed])
        header = ("kind", "object", "reason", "would resume", "resumed at", "caught", "identical")
        row = (
            "DISK",
            found.object.rsplit("/", 1)[-1],
            found.reason,
            f"{found.would_resume_at:,}",
            f"{found.recomputed.resumed_at:,}",
            _word(found.caught),
            _word(found.recomputed.identical),
        )
        self._table(header, [row])

    def control(self, found: NegativeControl) -> None:
        """Print how damage shows where nobody checks."""
        rows = [
            (fault.kind, f"{fault.group}/{fault.page}", "yes" if fault.identical else "no")
            for fault in found.faults
        ]
        self._table(("kind", "page", "identical"), rows)
        self.say(f"identical before and after: {'yes' if found.unharmed_identical else 'no'}")

    def end(self, report: Report) -> None:
        """Print the verdict, where the log lies and what to try next."""
        failures = report.failures()
        self.title("All as it must be" if not failures else "Not as it must be")
        for failure in failures:
            self.say(failure)
        self.say(f"the log lies in {report.directory}; try next:")
        for command in report.next_commands:
            self.say(f"  {command}")

    def _table(self, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
        if not self._quiet:
            print_table(header, rows)


def _word(right: bool) -> str:
    return _YES if right else _NO
