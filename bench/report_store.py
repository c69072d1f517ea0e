"""The part of docs/benchmarks.md on the event store, out of bench/results/event_store.json."""

from typing import Any

from markdown import table
from reasons import reason_for

Results = dict[str, Any]

NAMES = {
    "kvstrata": "kvstrata's log",
    "sqlalchemy_sqlite": "SQLAlchemy + SQLite",
    "sqlalchemy_sqlite_tuples": "SQLAlchemy + SQLite, plain tuples",
    "lmdb": "LMDB, a batch a transaction",
    "lmdb_calls": "LMDB, a call a record",
    "pwritev": "raw pwritev, the limit",
}


def store_parts(store: Results) -> list[str]:
    """Headings, tables and the plot."""
    machine = store["machine"]
    return [
        "\n## The event store\n",
        f"Measured on {machine['date']} on the same disk ({machine['disk']}); medians of "
        f"{store['rounds']} rounds.\n",
        "### Durable events\n",
        "Events of 64 bytes in calls of 64, counted once they are synced; a sync every 5 ms.\n",
        durable(store),
        "\n![Durable events a second](benchmarks/event_store.svg)\n",
        "### Replay\n",
        "CRC checked, full index and least-recently-used lists. DuckDB answers only which state "
        "each page was left in; the Python loop keeps page states, free lists and an index in "
        "dictionaries, and its time is scaled to the same number of events.\n",
        replay(store),
        "\n### Opening and starting\n",
        opening(store),
        "\n### Goals of the event store\n",
        goals(store),
    ]


def durable(store: Results) -> str:
    """Rates and CPU time by store."""
    ours = store["durable"]["kvstrata"]["events_per_s"]
    body = [
        [
            NAMES.get(name, name),
            f"{found['events_per_s'] / 1e6:.3f}",
            f"{ours / found['events_per_s']:.1f}",
            f"{found['cpu_s_per_million']:.2f}",
            f"{found['syncs_per_s']:.0f}",
        ]
        for name, found in store["durable"].items()
    ]
    head = ["", "million events/s", "kvstrata by it", "CPU s a million", "syncs/s"]
    return table(head, body)


def replay(store: Results) -> str:
    """Seconds of wall time by number of pages."""
    body = []
    for found in store["replay"].values():
        ours = found["kvstrata"]
        body.append(
            [
                f"{found['events']:,} events, "
                f"{found['pages_of_each_history_pool']:,} pages a history pool",
                f"{ours['wall_s']:.2f} ({ours['read_wall_s']:.2f} read, "
                f"{ours['apply_wall_s']:.2f} apply)",
                f"{found['duckdb']['wall_s']:.2f} (load {found['duckdb_load']['wall_s']:.1f})",
                f"{found['python']['scaled_wall_s']:.1f}",
            ]
        )
    return table(["seconds", "kvstrata", "DuckDB", "Python loop"], body)


def opening(store: Results) -> str:
    """Milliseconds from a snapshot and to start."""
    body = []
    for name, found in store["open"].items():
        pages = f"{int(name.removeprefix('pages_')):,} pages"
        for which in ("again", "first"):
            one = found[which]
            body.append(
                [
                    f"open from a snapshot and {found['events_replayed']:,} events, {pages}, "
                    f"{'the first' if which == 'first' else 'a later one'} of its process",
                    f"{one['wall_s'] * 1e3:.0f}",
                    f"{one['cpu_s'] * 1e3:.0f}",
                ]
            )
    labels = {
        "warm": "import kvstrata and open an empty cache",
        "import_torch": "importing torch, which pools need, alone",
        "compile": "the first compile ever",
    }
    for name, label in labels.items():
        found = store["start"].get(name)
        if found:
            body.append([label, f"{found['wall_s'] * 1e3:,.0f}", f"{found['cpu_s'] * 1e3:,.0f}"])
    return table(["milliseconds", "wall", "CPU"], body)


def goals(store: Results) -> str:
    """Every goal and what was found."""
    body = [
        [
            goal["name"],
            f"{goal['value']:.4g} {goal['unit']}",
            f"{'at most' if goal['at_most'] else 'at least'} {goal['limit']:g}",
            "reached" if goal["holds"] else f"missed. {reason_for(goal['name'])}",
        ]
        for goal in store["goals"]
    ]
    return table(["", "found", "goal", ""], body)
