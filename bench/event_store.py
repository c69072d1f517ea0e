"""The event store beside others, its replay, opening and starting, in one run.

    python bench/event_store.py            all of it, about ten minutes, and results written
    python bench/event_store.py --quick    small sizes, less than a minute, for CI

Medians of rounds whose order alternates; ``rounds`` holds each of them. ``wall_s`` is wall time,
``cpu_s`` CPU time of the whole process with all its threads; rates (``_per_s``) are of wall time,
since the disk is part of what they measure. Results, ``bench/results/event_store.json``::

    {"machine": {"cpu", "cores", "disk", "packages", ...}, "quick": bool, "rounds": n,
     "durable": {STORE: {"how", "events_per_s", "syncs_per_s", "cpu_s_per_million", "rounds"}},
     "replay": {"pages_N": {"events", "pages_of_each_history_pool", "indexed_blocks",
                            "arena_bytes", "duckdb_load": {"wall_s", "cpu_s", "file_bytes"},
                            "kvstrata": {"wall_s", "cpu_s", "events_per_s", "tables_wall_s",
                                         "read_wall_s", "apply_wall_s", "..._cpu_s", "rounds"},
                            "duckdb": {"wall_s", "cpu_s", "events_per_s", "rounds"},
                            "python": {"events", "wall_s", "cpu_s", "scaled_wall_s", "rounds"}}},
     "open": {"pages_N": {"snapshot_bytes", "events_replayed",
                          "first": {"wall_s", "cpu_s", "event_log_wall_s", "replay_wall_s",
                                    "rounds"},
                          "again": the same}},
     "start": {"warm": {"wall_s", "cpu_s", "import_wall_s", "open_wall_s", ..., "rounds"},
               "import_numpy", "import_numba", "import_torch": the same (quick: torch alone),
               "compile": {"wall_s", "cpu_s", "cache_bytes"}},
     "goals": [{"name", "value", "limit", "unit", "at_most", "holds"}]}

STORE is kvstrata, sqlalchemy_sqlite, sqlalchemy_sqlite_tuples, lmdb, lmdb_calls or pwritev (the
limit). ``first`` is the first open of a process: it also reads compiled code from disk. ``compile``
is there in a full run alone. N pages are those of each history pool.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from stores import durable, opening, starting
from stores.calling import arguments_of, scratch, write_results
from stores.figures import Goal, machine
from stores.replaying import ReplayLog
from stores.tables import print_results
from stores.traffic import write_log

RESULTS = Path(__file__).resolve().parent / "results" / "event_store.json"
SECTIONS = ("durable", "replay", "open", "start")


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        rounds: of everything.
        seconds: of one store in one round.
        pages: of each history pool, and how long its replay may take (0: there is no goal).
        events: of each log.
        loop_events: of the Python loop.
        tail_events: after the snapshot.
    """

    rounds: int
    seconds: float
    pages: dict[int, float]
    events: int
    loop_events: int
    tail_events: int


FULL = Sizes(3, 3.0, {1 << 16: 1.0, 1 << 20: 3.0}, 10_000_000, 1_000_000, 100_000)
QUICK = Sizes(1, 0.7, {1 << 14: 0.0}, 300_000, 100_000, 20_000)


def measure_logs(
    sizes: Sizes, wanted: list[str], disk: Path, shared: Path, console: Console
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replay of a log of each size; then the same logs, closed and opened from a snapshot."""
    replayed: dict[str, Any] = {}
    opened: dict[str, Any] = {}
    for pages in sizes.pages:
        root, memory = disk / str(pages), shared / str(pages)
        root.mkdir()
        memory.mkdir()
        console.print(f"a log of {sizes.events:,} events, {pages:,} pages")
        write_log(root / "log", memory, pages, sizes.events)
        if "replay" in wanted:
            console.print("its replay")
            log = ReplayLog(root / "log", memory, pages, root, sizes.loop_events)
            replayed[f"pages_{pages}"] = log.measure(sizes.rounds)
        if "open" in wanted:
            console.print("opening from its snapshot")
            saved = opening.prepare(root, memory, pages, sizes.tail_events)
            opened[f"pages_{pages}"] = opening.measure(saved, pages, sizes.rounds)
    return replayed, opened


def goals(results: dict[str, Any], sizes: Sizes) -> list[Goal]:
    """What the figures are to reach."""
    found: list[Goal] = []
    if "durable" in results:
        rate = results["durable"]["kvstrata"]["events_per_s"] / 1e6
        found.append(Goal("durable events, calls of 64", rate, 2.0, "M/s", at_most=False))
    for pages, limit_s in sizes.pages.items():
        one = results.get("replay", {}).get(f"pages_{pages}")
        if one is not None and limit_s:
            name = f"replay of {one['events']:,} events, {pages:,} pages"
            found.append(Goal(name, one["kvstrata"]["wall_s"], limit_s, "s"))
    smallest = results.get("open", {}).get(f"pages_{min(sizes.pages)}")
    if smallest is not None:
        name = f"open, snapshot + {smallest['events_replayed']:,} events"
        found.append(Goal(name, smallest["first"]["wall_s"] * 1e3, 50, "ms"))
    if "start" in results:
        found.append(Goal("import and open, warm", results["start"]["warm"]["wall_s"], 1.0, "s"))
    return found


def measure(sizes: Sizes, wanted: list[str], quick: bool, disk: Path, shared: Path) -> Any:
    """Everything wanted."""
    console = Console(stderr=True)
    results: dict[str, Any] = {"machine": machine(disk), "quick": quick, "rounds": sizes.rounds}
    if "durable" in wanted:
        console.print("durable events")
        results["durable"] = durable.measure(sizes.rounds, sizes.seconds, disk, shared)
    if "replay" in wanted or "open" in wanted:
        replayed, opened = measure_logs(sizes, wanted, disk, shared, console)
        results |= {"replay": replayed} if replayed else {}
        results |= {"open": opened} if opened else {}
    if "start" in wanted:
        console.print("starting")
        packages = ("torch",) if quick else ("numpy", "numba", "torch")
        results["start"] = starting.measure(sizes.rounds, disk, shared, packages)
        if not quick:
            console.print("compiling from nothing")
            results["start"]["compile"] = starting.measure_compile()
    results["goals"] = [goal.to_json() for goal in goals(results, sizes)]
    return results


def main() -> None:
    parser = arguments_of(__doc__, RESULTS, "small sizes, for CI")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--only", action="append", choices=SECTIONS, help="a part of it")
    parser.add_argument("--dir", type=Path, default=None, help="a folder on the disk to measure")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    if arguments.rounds is not None:
        sizes = replace(sizes, rounds=arguments.rounds)
    wanted = arguments.only or list(SECTIONS)
    with scratch(arguments.dir) as (disk, shared):
        results = measure(sizes, wanted, arguments.quick, disk, shared)
    is_whole = not arguments.quick and not arguments.only
    out = arguments.out or (RESULTS if is_whole else None)
    write_results(results, out)
    if arguments.json:
        print(json.dumps(results))
    else:
        print_results(results)


if __name__ == "__main__":
    main()
