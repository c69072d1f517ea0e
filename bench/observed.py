"""What being observed costs the engine's thread: with follower, scrubber and API, and without.

    python bench/observed.py            about two minutes, and results written
    python bench/observed.py --quick    a few seconds, for CI

Two engines of one kind run the same requests on the same tiny DeepSeek-V4, in turns of a few
requests each, the order of the two alternating. The *plain* one digests nothing and scrubs nothing;
nobody reads its log. The *observed* one digests and scrubs by its budgets, a follower steps in its
process, and ``kvstrata serve`` runs beside it, asked for ``/metrics`` once a second and for blocks
twice. Only CPU time of the engine's own thread counts (``time.thread_time``), per step. Results,
``bench/results/observed.json``::

    {"machine": {...}, "quick": bool, "rounds": n, "steps_of_a_round": n,
     "digest_bytes_per_s": n, "scrub_bytes_per_s": n,
     "plain": {"cpu_s", "steps", "rounds"}, "observed": the same,
     "share_more": ratio, "share_of_rounds": [ratio, ...],
     "goals": [{"name", "value", "limit", "unit", "at_most", "holds"}]}

``cpu_s`` is the median of a step's; ``share_more`` the median over rounds of observed / plain - 1.
"""

import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from stores.calling import arguments_of, print_goals, scratch, write_results
from stores.figures import Goal, machine
from stores.served import Served

from kvstrata import CacheConfig, CacheManager, LogConfig, Request
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model
from kvstrata.eventstore.history.follower import Follower

RESULTS = Path(__file__).resolve().parent / "results" / "observed.json"
SCRUB_BYTES_PER_S = 16 << 20
DIGEST_BYTES_PER_S = 4 << 20
NEW_TOKENS = 24


class Run:
    """One engine and its steps' CPU time."""

    def __init__(self, model: Any, root: Path, shared: Path, is_observed: bool) -> None:
        layout = layout_for_model(model)
        config = CacheConfig(
            slots={group.name: 2000 for group in layout.groups},
            max_sequences=4,
            max_tokens_per_sequence=2048,
            digest_bytes_per_s=DIGEST_BYTES_PER_S if is_observed else 0,
            scrub_bytes_per_s=SCRUB_BYTES_PER_S if is_observed else 0,
            log=LogConfig(shared_memory_root=shared),
        )
        self.directory = root / ("observed" if is_observed else "plain")
        self.manager = CacheManager.open(layout, config, self.directory, "shared")
        self._engine = Engine(model, self.manager)
        self._dice = np.random.default_rng(5)
        self._prompts = [self._dice.integers(0, 256, 400, dtype=np.int32) for _ in range(6)]

    def turn(self, num_requests: int) -> tuple[float, int]:
        """Serve requests; CPU seconds of this thread, and steps."""
        steps, began = 0, time.thread_time()
        for _ in range(num_requests):
            prompt = self._prompts[int(self._dice.integers(len(self._prompts)))]
            length = int(self._dice.integers(100, len(prompt)))
            made = self._engine.generate(Request(prompt[:length], model="tiny"), NEW_TOKENS)
            steps += len(made.calls)
        return time.thread_time() - began, steps


@contextmanager
def watched(run: Run, shared: Path) -> Iterator[None]:
    """A follower in this process, and an admin API beside it that is asked."""
    served = Served(run.directory, shared)
    done = threading.Event()
    answers: list[int] = []

    def ask() -> None:
        number = 0
        while not done.wait(0.5):
            for path in ["/v1/blocks?limit=100", *(["/metrics"] if number % 2 else [])]:
                answers.append(len(served.ask(path)))
            number += 1

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    try:
        with Follower(run.directory, shared_memory_root=shared) as follower:
            follower.start()
            yield
            run.manager.flush()
            deadline_s = time.monotonic() + 10
            while follower.position().lag_events and time.monotonic() < deadline_s:
                time.sleep(0.01)
            assert not follower.position().lag_events, follower.position()
            assert not follower.drift
    finally:
        done.set()
        asker.join()
        served.close()
    assert any(answers), "the admin API never answered"


def measure(rounds: int, requests: int, quick: bool, root: Path, shared: Path) -> dict[str, Any]:
    """Both, in turns."""
    torch.set_num_threads(1)
    model = build_tiny_model(3)
    plain, observed = (Run(model, root, shared, wanted) for wanted in (False, True))
    for run in (plain, observed):
        run.turn(2)  # compiled code is loaded
    found: dict[str, list[tuple[float, int]]] = {"plain": [], "observed": []}
    with watched(observed, shared):
        for number in range(rounds):
            order = [("plain", plain), ("observed", observed)]
            for name, run in order if number % 2 == 0 else order[::-1]:
                found[name].append(run.turn(requests))
        time.sleep(1.0)
    progress = observed.manager.scrub_progress()
    assert progress.rounds or progress.pages, progress
    for run in (plain, observed):
        run.manager.close()
    results: dict[str, Any] = {
        "machine": machine(root),
        "quick": quick,
        "rounds": rounds,
        "steps_of_a_round": found["plain"][0][1],
        "digest_bytes_per_s": DIGEST_BYTES_PER_S,
        "scrub_bytes_per_s": SCRUB_BYTES_PER_S,
    }
    each = {name: [cpu_s / steps for cpu_s, steps in turns] for name, turns in found.items()}
    for name, per_step in each.items():
        steps = sum(steps for _, steps in found[name])
        results[name] = {"cpu_s": statistics.median(per_step), "steps": steps, "rounds": per_step}
    shares = [b / a - 1 for a, b in zip(each["plain"], each["observed"], strict=True)]
    results["share_more"], results["share_of_rounds"] = statistics.median(shares), shares
    more = 100 * results["share_more"]
    goal = Goal("CPU of the engine's thread, more when observed", more, 5.0, "%")
    results["goals"] = [goal.to_json()]
    return results


def main() -> None:
    parser = arguments_of(__doc__, RESULTS, "small sizes, for CI")
    parser.add_argument("--rounds", type=int, default=None)
    arguments = parser.parse_args()
    rounds = arguments.rounds or (4 if arguments.quick else 30)
    requests = 1 if arguments.quick else 4
    with scratch() as (root, shared):
        results = measure(rounds, requests, arguments.quick, root, shared)
    out = arguments.out or (None if arguments.quick or arguments.rounds else RESULTS)
    write_results(results, out)
    if arguments.json:
        print(json.dumps(results))
        return
    console = Console()
    for name in ("plain", "observed"):
        one = results[name]
        console.print(f"{name:9s} {one['cpu_s'] * 1e3:7.3f} ms of CPU a step, {one['steps']} steps")
    print_goals(results)


if __name__ == "__main__":
    main()
