"""How fast a follower is: catching up with a log, and what of that is reading, applying, counting.

    python bench/follower.py            ten million events, and results written
    python bench/follower.py --quick    300,000 events, for CI

A log of chats (see ``stores/traffic.py``) whose file the operating system has in memory. ``follow``
is a follower from nothing to the log's end: reading, CRC, every precondition of ``apply``, digests
and the tally. ``apply`` is ``apply_events`` alone over the same events in memory, the limit of
anything that keeps tables; ``copy`` is ``memcpy`` of them. ``idle`` is one step with nothing new.
Medians of rounds whose order alternates. A follower is one thread that waits for nothing here:
rates (``_per_s``) are of its CPU time, so that what else the machine does shows less. Results,
``bench/results/follower.json``::

    {"machine": {...}, "quick": bool, "rounds": n, "events": n, "arena_bytes": n,
     "follow": {"wall_s", "cpu_s", "events_per_s", "memory_bytes", "rounds"},
     "apply": {"wall_s", "cpu_s", "events_per_s", "rounds"},
     "tally": the same, "copy": the same,
     "idle": {"wall_s", "cpu_s", "rounds"}, "share_of_apply": ratio,
     "goals": [{"name", "value", "limit", "unit", "at_most", "holds"}]}

``memory_bytes`` is how much more the process held after the second half than after the first.
"""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from stores.calling import arguments_of, print_goals, scratch, write_results
from stores.figures import Goal, in_turn, machine, medians, timed
from stores.traffic import chat_config, chat_layout, write_log

from kvstrata.core.arena import new_arena
from kvstrata.core.replay import apply_events
from kvstrata.eventstore.history.follower import Follower
from kvstrata.eventstore.history.tally import Tally
from kvstrata.eventstore.log import read_events

RESULTS = Path(__file__).resolve().parent / "results" / "follower.json"
LEAST_EVENTS_PER_S = 5.0e6
PAGES = 1 << 16
STEP = 1 << 16


class FollowedLog:
    """One log, and what reads it.

    Args:
        directory: of the log.
        shared: where its ring is.
        num_pages: of every history pool.
    """

    def __init__(self, directory: Path, shared: Path, num_pages: int) -> None:
        self._directory, self._shared = directory, shared
        self._layout = chat_layout()
        self._params = chat_config(num_pages, shared).arena_params(self._layout)
        self.events: npt.NDArray[np.void] = np.concatenate([*read_events(directory)])
        self.follow()  # compiled code is loaded, and the file is in memory

    def follow(self) -> dict[str, float]:
        with Follower(self._directory, shared_memory_root=self._shared) as follower:
            held: list[int] = []
            end = len(self.events)

            def run() -> None:
                read = 0
                while done := follower.step(STEP):
                    read += done
                    if not held and read > end // 2:
                        held.append(_resident_bytes())

            _, found = timed(run)
            assert follower.position().seqno == end, follower.position().error
            grown = _resident_bytes() - held[0]
            return {**found, "events_per_s": end / found["cpu_s"], "memory_bytes": max(grown, 0)}

    def apply(self) -> dict[str, float]:
        arena = new_arena(self._layout, self._params)
        words = self.events.view(np.int64).reshape(-1, 8)
        done, found = timed(lambda: apply_events(arena, words))
        assert done == len(words)
        return self._rate(found)

    def tally(self) -> dict[str, float]:
        tally = Tally(self._layout, self._params)

        def run() -> None:
            for at in range(0, len(self.events), STEP):
                tally.add(self.events[at : at + STEP])

        return self._rate(timed(run)[1])

    def copy(self) -> dict[str, float]:
        source = self.events.view(np.int64)
        target = np.empty_like(source)
        target[:] = 0
        return self._rate(timed(lambda: np.copyto(target, source))[1])

    def idle(self) -> dict[str, float]:
        with Follower(self._directory, shared_memory_root=self._shared) as follower:
            while follower.step(STEP):
                pass
            _, found = timed(lambda: [follower.step() for _ in range(1000)])
            return {name: value / 1000 for name, value in found.items()}

    def _rate(self, found: dict[str, float]) -> dict[str, float]:
        return {**found, "events_per_s": len(self.events) / found["cpu_s"]}


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure(num_events: int, rounds: int, quick: bool, root: Path, shared: Path) -> dict[str, Any]:
    """Everything."""
    pages = PAGES if not quick else PAGES // 4
    write_log(root / "log", shared, pages, num_events)
    log = FollowedLog(root / "log", shared, pages)
    subjects: dict[str, Callable[[], dict[str, float]]] = {
        "follow": log.follow,
        "apply": log.apply,
        "tally": log.tally,
        "copy": log.copy,
        "idle": log.idle,
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in subjects}
    for number in range(rounds):
        for name in in_turn(number, list(subjects)):
            found[name].append(subjects[name]())
    results: dict[str, Any] = {
        "machine": machine(root),
        "quick": quick,
        "rounds": rounds,
        "events": len(log.events),
        **{name: medians(one) for name, one in found.items()},
    }
    results["share_of_apply"] = results["apply"]["cpu_s"] / results["follow"]["cpu_s"]
    rate, idle_us = results["follow"]["events_per_s"] / 1e6, results["idle"]["cpu_s"] * 1e6
    results["goals"] = [
        Goal("follower, events applied and counted", rate, 5.0, "M/s", at_most=False).to_json(),
        Goal("a step with nothing new, CPU", idle_us, 100.0, "us").to_json(),
    ]
    return results


def print_results(results: dict[str, Any], console: Console) -> None:
    for name in ("follow", "apply", "tally", "copy"):
        one = results[name]
        console.print(
            f"{name:8s} {one['events_per_s'] / 1e6:8.2f} M events/s, "
            f"{one['cpu_s'] / results['events'] * 1e9:6.1f} ns of CPU an event"
        )
    console.print(f"grown by {results['follow']['memory_bytes'] / 1e6:.1f} MB over the second half")
    print_goals(results)


def main() -> None:
    parser = arguments_of(__doc__, RESULTS, "small sizes, for CI")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=None)
    arguments = parser.parse_args()
    num_events = arguments.events or (300_000 if arguments.quick else 10_000_000)
    with scratch() as (root, shared):
        results = measure(num_events, arguments.rounds, arguments.quick, root, shared)
    out = arguments.out or (None if arguments.quick or arguments.events else RESULTS)
    write_results(results, out)
    if arguments.json:
        print(json.dumps(results))
    else:
        print_results(results, Console())


if __name__ == "__main__":
    main()
