"""What an answer of the admin API costs: CPU of ``kvstrata serve`` per request, at 100,000 blocks.

    python bench/admin.py            about two minutes, and results written
    python bench/admin.py --quick    a tenth of the blocks, for CI

A log of chats (see ``stores/traffic.py``) fills pools of so many blocks; ``kvstrata serve`` follows
it as a process of its own. Each question is asked again and again over one connection; what counts
is CPU time of all threads of the server (``/proc/PID/task/*/schedstat``), less what it takes when
nobody asks. Medians of rounds whose order alternates. Results, ``bench/results/admin.json``::

    {"machine": {...}, "quick": bool, "rounds": n, "blocks": n, "pages": n, "events": n,
     "idle_cpu_share": ratio,
     "questions": {name: {"path", "cpu_ms", "wall_ms", "bytes", "rounds": [...]}},
     "series": n, "goals": [{"name", "value", "limit", "unit", "at_most", "holds"}]}
"""

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from stores.calling import arguments_of, print_goals, scratch, write_results
from stores.figures import Goal, in_turn, machine, medians
from stores.served import Served
from stores.traffic import write_log

RESULTS = Path(__file__).resolve().parent / "results" / "admin.json"
BLOCKS = 100_000
REQUESTS = 20
QUESTIONS = {
    "blocks": "/v1/blocks",
    "blocks, 1,000 rows": "/v1/blocks?limit=1000",
    "blocks, none found": "/v1/blocks?state=QUARANTINED",
    "blocks of an age": "/v1/blocks?min_age_s=3600",
    "blocks of one group": "/v1/blocks?group=swa&state=SEALED",
    "blocks of a key": "/v1/blocks?key=KEY",
    "one block": "/v1/blocks/c4/1",
    "pools": "/v1/pools",
    "segment": "/v1/segments/KEY",
    "events": "/v1/events",
    "metrics": "/metrics",
}


def asked(served: Served, path: str, idle_share: float, requests: int) -> dict[str, float]:
    """One question, asked some times."""
    served.ask(path)
    cpu_s, start_s, size = served.cpu_s(), time.perf_counter(), 0
    for _ in range(requests):
        size = len(served.ask(path))
        time.sleep(0.02)
    wall_s = time.perf_counter() - start_s
    used_s = served.cpu_s() - cpu_s - idle_share * wall_s
    return {
        "cpu_ms": max(used_s, 0.0) / requests * 1e3,
        "wall_ms": (wall_s / requests - 0.02) * 1e3,
        "bytes": size,
    }


def measure(blocks: int, rounds: int, quick: bool, root: Path, shared: Path) -> dict[str, Any]:
    """Everything."""
    write_log(root / "log", shared, blocks + 1, blocks * 20)
    served = Served(root / "log", shared)
    try:
        events = served.wait_until_ready()
        layout = json.loads(served.ask("/v1/layout"))
        [sealed] = json.loads(served.ask("/v1/blocks?group=c4&state=SEALED&limit=1"))["items"]
        paths = {name: path.replace("KEY", sealed["key"]) for name, path in QUESTIONS.items()}
        cpu_s, start_s = served.cpu_s(), time.perf_counter()
        time.sleep(3.0)
        idle_share = (served.cpu_s() - cpu_s) / (time.perf_counter() - start_s)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in paths}
        for number in range(rounds):
            for name in in_turn(number, list(paths)):
                found[name].append(asked(served, paths[name], idle_share, REQUESTS))
        pools = json.loads(served.ask("/v1/pools"))["items"]
        lines = served.ask("/metrics").decode().splitlines()
    finally:
        served.close()
    used = {pool["group"]: pool["num_pages"] - pool["pages"]["FREE"] for pool in pools}
    results: dict[str, Any] = {
        "machine": machine(root),
        "quick": quick,
        "rounds": rounds,
        "blocks": used[layout["groups"][0]["name"]],
        "pages": sum(used.values()),
        "events": events,
        "idle_cpu_share": idle_share,
        "questions": {name: {"path": paths[name], **medians(one)} for name, one in found.items()},
        "series": sum(1 for line in lines if line and not line.startswith("#")),
    }
    worst = max(
        (one["cpu_ms"], name)
        for name, one in results["questions"].items()
        if name.startswith("blocks")
    )
    plain = results["questions"]["blocks"]["cpu_ms"]
    scrape = results["questions"]["metrics"]["cpu_ms"]
    results["goals"] = [
        Goal("blocks, server CPU", plain, 20.0, "ms").to_json(),
        Goal(f"the dearest: {worst[1]}", worst[0], 20.0, "ms").to_json(),
        Goal("metrics, server CPU", scrape, 50.0, "ms").to_json(),
        Goal("series of a scrape", float(results["series"]), 2000.0, "").to_json(),
    ]
    return results


def print_results(results: dict[str, Any], console: Console) -> None:
    console.print(
        f"{results['blocks']:,} blocks, {results['pages']:,} pages in use, {results['events']:,} "
        f"events; nobody asking: {results['idle_cpu_share']:.1%} of a core"
    )
    for name, one in results["questions"].items():
        console.print(
            f"{name:24s} {one['cpu_ms']:8.2f} ms of CPU, {one['wall_ms']:8.2f} ms, "
            f"{one['bytes']:10,.0f} bytes"
        )
    print_goals(results)


def main() -> None:
    parser = arguments_of(__doc__, RESULTS, "a tenth of the blocks, for CI")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    blocks = BLOCKS // 10 if arguments.quick else BLOCKS
    with scratch() as (root, shared):
        results = measure(blocks, arguments.rounds, arguments.quick, root, shared)
    out = arguments.out or (None if arguments.quick else RESULTS)
    write_results(results, out)
    if arguments.json:
        print(json.dumps(results))
    else:
        print_results(results, Console())


if __name__ == "__main__":
    main()
