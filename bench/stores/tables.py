"""The results as tables, for a terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table

from .calling import print_goals

Rows = list[list[str]]


def print_results(results: dict[str, Any]) -> None:
    """Print every section there is, and the goals."""
    console = Console()
    if "durable" in results:
        disk = results["machine"]["disk"]
        heads = ["", "events/s", "syncs/s", "CPU s a million"]
        _print(console, f"Durable events a second ({disk})", heads, _durable(results["durable"]))
    if "replay" in results:
        heads = ["", "pages", "events", "wall s", "CPU s", "M/s", "tables", "read", "apply"]
        _print(console, "Replay", heads, _replay(results["replay"]))
    if "open" in results:
        heads = ["", "pages", "events", "wall ms", "CPU ms", "event log ms", "replay ms"]
        _print(console, "Open from a snapshot", heads, _open(results["open"]))
    if "start" in results:
        heads = ["", "wall s", "CPU s", "of it import", "of it open"]
        _print(console, "Start of a process", heads, _start(results["start"]))
    print_goals(results)


def _print(console: Console, title: str, heads: list[str], rows: Rows) -> None:
    table = Table(title=title, title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _durable(stores: dict[str, Any]) -> Rows:
    return [
        [
            name,
            f"{one['events_per_s']:,.0f}",
            f"{one['syncs_per_s']:.0f}",
            f"{one['cpu_s_per_million']:.3f}",
        ]
        for name, one in stores.items()
    ]


def _replay(logs: dict[str, Any]) -> Rows:
    rows: Rows = []
    for log in logs.values():
        for name in ("kvstrata", "duckdb", "python"):
            one = log[name]
            row = [
                name,
                f"{log['pages_of_each_history_pool'] >> 10}k",
                f"{one.get('events', log['events']) / 1e6:.1f}M",
                f"{one['wall_s']:.3f}",
                f"{one['cpu_s']:.3f}",
                f"{one['events_per_s'] / 1e6:.2f}",
            ]
            parts = ("tables_wall_s", "read_wall_s", "apply_wall_s")
            rows.append(row + [f"{one[part]:.3f}" if part in one else "" for part in parts])
    return rows


def _open(logs: dict[str, Any]) -> Rows:
    return [
        [
            which,
            f"{log['pages_of_each_history_pool'] >> 10}k",
            f"{log['events_replayed']:,}",
            *(
                f"{log[which][name] * 1e3:.1f}"
                for name in ("wall_s", "cpu_s", "event_log_wall_s", "replay_wall_s")
            ),
        ]
        for log in logs.values()
        for which in ("first", "again")
    ]


def _start(parts: dict[str, Any]) -> Rows:
    return [
        [
            name,
            f"{one['wall_s']:.2f}",
            f"{one['cpu_s']:.2f}",
            f"{one['import_wall_s']:.2f}" if "import_wall_s" in one else "",
            f"{one['open_wall_s']:.2f}" if name == "warm" else "",
        ]
        for name, one in parts.items()
    ]
