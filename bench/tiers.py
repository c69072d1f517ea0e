"""Prefixes on disk: spilled and loaded, beside the raw device, safetensors and plain files.

    python bench/tiers.py            all of it, some minutes, and results written
    python bench/tiers.py --quick    small sizes, for CI; writes nothing

One prefix of DeepSeek-V4-Flash's geometry is spilled by kvstrata (written, synced, named, its
folder synced; by two threads) and loaded into empty pools (read into the pages, checked: header,
trailer, a checksum a page; by four threads), in turn with fio writing (made anew, synced as it is
closed; their folder is not) and reading as many files of that size with as many threads, and with
safetensors and plain files read into pages unchecked.
Cold: the kernel was made to forget the files; warm: it holds them, and fio reads them 20 times
over, since once is too short for it to tell. Then a prompt of the demo's model is restored from
disk and computed again. Results, ``bench/results/tiers.json``::

    {"machine", "quick", "rounds", "prefix": {"tokens", "blocks", "object_bytes", "bytes"},
     "rates": {"write" | "read_cold" | "read_warm": {SUBJECT: {"bytes_per_s", "cpu_s", "rounds"}}},
     "restore": [{"tokens", "computed_wall_s", "restored_wall_s", "bytes", ...}],
     "break_even_tokens", "goals": [{"name", "value", "limit", "unit", "at_most", "holds"}]}

SUBJECT is kvstrata, fio (the limit; absent where it is not installed), safetensors or plain.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from shelves import limits, others, prefix, restoring
from stores.calling import arguments_of, print_goals, write_results
from stores.figures import Goal, in_turn, machine

RESULTS = Path(__file__).resolve().parent / "results" / "tiers.json"


@dataclass(frozen=True)
class Sizes:
    """How much is measured: rounds, seconds of rest before each turn, in which what the one before
    has left to the kernel comes to an end, tokens of the prefix, lengths that are restored."""

    rounds: int
    rest_s: float
    tokens: int
    lengths: tuple[int, ...]


FULL = Sizes(5, 2.5, 131_072, (1024, 4096, 16_384))
QUICK = Sizes(1, 0.0, 8192, (512, 1024))


def measure(sizes: Sizes, folder: Path, console: Console) -> dict[str, Any]:
    """Everything, in folders below one."""
    num_blocks = sizes.tokens // prefix.LAYOUT.block_tokens
    object_bytes = prefix.block_bytes()
    results: dict[str, Any] = {
        "machine": machine(folder),
        "rounds": sizes.rounds,
        "prefix": {"tokens": sizes.tokens, "blocks": num_blocks, "object_bytes": object_bytes},
    }
    others.write_safetensors(folder / "safetensors", num_blocks)
    others.write_plain(folder / "plain", num_blocks)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for number in range(sizes.rounds):
        console.print(f"round {number + 1} of {sizes.rounds}")
        for what in ("write", "read_cold", "read_warm"):
            for name in in_turn(number, ["kvstrata", "fio", "safetensors", "plain"]):
                os.sync()
                time.sleep(sizes.rest_s)
                one = run(name, what, folder, sizes.tokens, num_blocks, object_bytes)
                if one is not None:
                    found.setdefault(what, {}).setdefault(name, []).append(one)
    results["rates"] = {
        what: {
            name: {
                "bytes_per_s": median(one["bytes_per_s"] for one in rounds),
                "cpu_s": median(one.get("cpu_s", 0.0) for one in rounds),
                "begun_wall_s": median(one.get("begun_wall_s", 0.0) for one in rounds),
                "rounds": rounds,
            }
            for name, rounds in subjects.items()
        }
        for what, subjects in found.items()
    }
    results["prefix"]["bytes"] = found["write"]["kvstrata"][0]["bytes"]
    results["restore"] = []
    for length in sizes.lengths:
        console.print(f"a prompt of {length:,} tokens, restored and computed")
        results["restore"].append(restoring.measure(folder / f"model-{length}", length, 3))
    results["break_even_tokens"] = restoring.break_even(results["restore"])
    results["goals"] = [goal.to_json() for goal in goals(results, sizes)]
    return results


def run(
    name: str, what: str, folder: Path, num_tokens: int, num_blocks: int, object_bytes: int
) -> dict[str, Any] | None:
    """One subject's turn; None where it has none."""
    place, is_cold = folder / name, what == "read_cold"
    if name == "fio":
        if not limits.is_here():
            return None
        if what == "write":
            return {"bytes_per_s": limits.write(place, object_bytes, num_blocks)}
        return {"bytes_per_s": limits.read(place, object_bytes, num_blocks, is_cold)}
    if name == "kvstrata":
        if what == "write":
            prefix.put_away(place)
            return prefix.rate(prefix.spill(place, num_tokens))
        if not is_cold:
            prefix.warm(place)
        return prefix.rate(prefix.load(place, num_tokens, is_cold))
    if what == "write":
        return None
    reader = others.read_safetensors if name == "safetensors" else others.read_plain
    return prefix.rate(others.read(place, num_blocks, is_cold, reader))


def goals(results: dict[str, Any], sizes: Sizes) -> list[Goal]:
    """What the figures are to reach."""
    found = []
    for what, title, share in (
        ("write", "spilling, share of the raw device", 0.7),
        ("read_cold", "loading cold, share of the raw device", 0.8),
        ("read_warm", "loading warm with checksums, share of the raw device", 0.5),
    ):
        rates = results["rates"][what]
        if "fio" in rates:
            ratio = rates["kvstrata"]["bytes_per_s"] / rates["fio"]["bytes_per_s"]
            found.append(Goal(title, ratio, share, "", at_most=False))
    last = results["restore"][-1]
    if last["tokens"] == FULL.lengths[-1]:
        times = last["computed_wall_s"] / last["restored_wall_s"]
        title = f"{last['tokens']:,} tokens restored, times quicker than computed"
        found.append(Goal(title, times, 100, "", at_most=False))
    return found


def main() -> None:
    parser = arguments_of(__doc__, RESULTS, "small sizes, for CI")
    parser.add_argument("--dir", type=Path, default=None, help="a folder on the disk to measure")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    with TemporaryDirectory(prefix="kvstrata-bench-", dir=arguments.dir) as name:
        results = measure(sizes, Path(name), Console(stderr=True))
    results["quick"] = arguments.quick
    write_results(results, arguments.out or (None if arguments.quick else RESULTS))
    if arguments.json:
        print(json.dumps(results))
        return
    for what, subjects in results["rates"].items():
        for subject, one in subjects.items():
            print(f"{what:10} {subject:12} {one['bytes_per_s'] / 1e6:10,.0f} MB/s")
    for one in results["restore"]:
        print(
            f"{one['tokens']:8,} tokens: computed {one['computed_wall_s']:8.3f} s, "
            f"restored {one['restored_wall_s'] * 1e3:8.1f} ms"
        )
    print_goals(results)


if __name__ == "__main__":
    main()
