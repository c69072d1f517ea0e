"""``kvstrata replay``: drive the manager with a request trace."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvstrata import ConfigError, preset
from kvstrata.core.presets import PRESETS
from kvstrata.eventstore.log.tmpfs import place_of

from ..directories import DEFAULT_SHARED_MEMORY_ROOT, SharedMemoryRoot
from ..output import JsonFlag, fail, print_facts, print_json
from ..sizes import format_bytes, parse_bytes
from ..stopping import STOPPED, until_stopped

if TYPE_CHECKING:
    from ..replay import Outcome

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata replay mooncake_conversation.jsonl.gz

kvstrata replay requests.jsonl --layout deepseek-v4-pro --budget 160GB --concurrency 64 --json

kvstrata replay requests.jsonl --dir replayed    (killed and started again, it goes on)

TRACE is in the format of the Mooncake or of the agentic coding traces, or JSON lines such as
{"tokens": [1, 2, 3], "output": [7, 8], "session": "a"}; plain or gzip. Nothing is computed: what
is measured is the manager. So many requests run at once, each decoding a token a step; the next
begins when one ends, whatever the trace's timestamps say.
"""


def run(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="The trace.")],
    layout: Annotated[
        str, typer.Option(help=f"One of {', '.join(PRESETS)}.")
    ] = "deepseek-v4-flash",
    budget: Annotated[
        str, typer.Option(help="Bytes of all pools together, such as 40GB (1 GB is 1e9).")
    ] = "40GB",
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keep the log here, and go on with it."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=1024, help="Requests that run at once.")
    ] = 64,
    tier_policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="A tier below the device, in the books alone: all blocks, and the checkpoints of "
            "POLICY: full, every:P (tokens), ends or none.",
        ),
    ] = None,
    tier_keys: Annotated[int, typer.Option(min=1, help="Keys of objects that tier holds.")] = 1
    << 20,
    shared_memory_root: SharedMemoryRoot = DEFAULT_SHARED_MEMORY_ROOT,
    as_json: JsonFlag = False,
) -> None:
    """Replay a trace: what it hits, saves and evicts, and what the manager takes for it."""
    from ..replay import Replay
    from ..traces import read_trace

    budget_bytes, of_model = parse_bytes(budget), preset(layout)
    with ExitStack() as stack:
        stopped = stack.enter_context(until_stopped())
        requests = read_trace(trace)
        folder = directory
        if folder is None:
            folder = stack.enter_context(_folder_for_now(shared_memory_root))
        try:
            replay = Replay(
                requests,
                of_model,
                budget_bytes,
                folder,
                concurrency,
                shared_memory_root,
                tier_policy,
                tier_keys,
            )
        except ConfigError as error:
            raise ConfigError(_in_options(str(error))) from error
        with closing(replay), _bar(trace.name, requests.num_requests) as progress:
            replay.run(progress, lambda: bool(stopped))
        outcome = replay.outcome()
    if as_json:
        print_json(outcome.to_json())
    else:
        _print(outcome, requests.num_requests)
    if stopped:
        kept = "" if directory is None else f"; the same command with --dir {directory} goes on"
        fail(f"interrupted{kept}")
        raise typer.Exit(STOPPED + stopped[0])


def _in_options(message: str) -> str:
    """A message about the manager's settings, by the names of the options they come from."""
    return message.replace("budget_bytes", "--budget").replace("max_sequences", "--concurrency")


@contextmanager
def _folder_for_now(shared_memory_root: Path) -> Iterator[Path]:
    """A folder for the log, removed afterwards, and its ring in shared memory with it."""
    with tempfile.TemporaryDirectory(prefix="kvstrata-") as name:
        folder = Path(name)
        place = place_of(folder, shared_memory_root)
        try:
            yield folder
        finally:
            shutil.rmtree(place.root, ignore_errors=True)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal; nothing elsewhere."""
    label = TextColumn("{task.description}", markup=False)  # a file's name may look like markup
    columns = (label, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console, hidden = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*columns, console=console, disable=hidden, transient=True) as bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.update(task, completed=done)


def _recomputed(outcome: Outcome) -> str:
    a_hit = outcome.recomputed_tokens_per_hit
    each = "" if a_hit is None else f" ({a_hit:,.0f} a request that hit)"
    return f"{outcome.recomputed_tokens:,} tokens that were there, for want of state{each}"


def _of_tier(outcome: Outcome) -> list[tuple[str, str]]:
    a_token = outcome.stored_bytes_per_token
    if a_token is None:
        return []
    stored = f"{format_bytes(outcome.stored_bytes)}, {a_token:,.0f} bytes a token"
    loaded = f"{outcome.loads:,}, {format_bytes(outcome.load_bytes)}"
    return [("stored below", stored), ("loads", loaded)]


def _print(outcome: Outcome, num_requests: int) -> None:
    tokens = max(outcome.prompt_tokens, 1)
    cpu = outcome.manager_cpu_us_per_request
    refused = f", {outcome.refused:,} do not fit the budget" if outcome.refused else ""
    print_facts(
        [
            ("requests", f"{outcome.requests:,} of {num_requests:,}{refused}"),
            ("prompt tokens", f"{outcome.prompt_tokens:,}"),
            ("hit tokens", f"{outcome.hit_tokens:,} ({outcome.hit_tokens / tokens:.1%})"),
            ("saved tokens", f"{outcome.saved_tokens:,} ({outcome.saved_tokens / tokens:.1%})"),
            ("recomputed", _recomputed(outcome)),
            ("evictions", f"{outcome.evictions:,}"),
            *_of_tier(outcome),
            ("events", f"{outcome.events:,}"),
            ("log", format_bytes(outcome.log_bytes)),
            ("manager CPU", "-" if cpu is None else f"{cpu:,.1f} us a request"),
        ]
    )
