"""``kvstrata replay`` of the real traces, as a user runs it: writes bench/results/replays.json.

    python bench/replays.py            the conversation and the synthetic trace
    python bench/replays.py --quick    the first requests of one; nothing is written

Where the traces are not here, it says so and writes nothing.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from stores.figures import machine
from workloads import TRACES

RESULTS = Path(__file__).resolve().parent / "results" / "replays.json"
KVSTRATA = Path(sys.executable).with_name("kvstrata")
BUDGET, CONCURRENCY = "40GB", 64
NAMES = ("mooncake_conversation", "mooncake_synthetic")


def replay(trace: Path) -> dict[str, Any]:
    """One replay's JSON."""
    options = ["--budget", BUDGET, "--concurrency", str(CONCURRENCY), "--json"]
    done = subprocess.run(
        [str(KVSTRATA), "replay", str(trace), *options], check=True, stdout=subprocess.PIPE
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a little of one; write nothing")
    arguments = parser.parse_args()
    paths = {name: TRACES / f"{name}.jsonl.gz" for name in NAMES}
    absent = [str(path) for path in paths.values() if not path.exists()]
    if absent:
        print(f"no traces, so nothing is replayed: expected {', '.join(absent)}")
        return
    if arguments.quick:
        with tempfile.TemporaryDirectory() as folder, gzip.open(paths[NAMES[0]], "rb") as lines:
            part = Path(folder) / "part.jsonl"
            part.write_bytes(b"".join(islice(lines, 100)))
            print(json.dumps(replay(part)))
        return
    traces = {}
    for name, path in paths.items():
        traces[name] = replay(path)
        print(name, json.dumps(traces[name]))
    results = {
        "machine": machine(RESULTS.parent),
        "budget": BUDGET,
        "concurrency": CONCURRENCY,
        "traces": traces,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
