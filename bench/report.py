"""docs/benchmarks.md and its plots, drawn from bench/results/; nothing in it is typed by hand.

python bench/report.py            write the page
python bench/report.py --check    exit 1 where the page is not what the results say
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from markdown import table
from reasons import reason_for
from report_observing import observing_parts
from report_store import store_parts
from report_tiers import tier_parts
from tables import MEASURES, OURS, VLLM, Results, header, log_cost, microseconds, rows

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
LOG_COST_GOAL, FLAT_GOAL, MEMORY_GOAL = 1.25, 1.5, 3
PLOTS = ROOT / "docs" / "benchmarks"


def load(name: str) -> Results | None:
    """One results file, or None where it was not measured."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def how(results: Results) -> str:
    """What was measured on what, and what remains unlike."""
    machine = results["machine"]
    geometry, serving = results["geometry"], results["serving"]
    lines = [
        f"Measured on {machine['date']}: {machine['cpu']}, {machine['cores']} cores, Python "
        f"{machine['python']}. Medians of {results['rounds']} rounds; the order of the subjects "
        "alternates from round to round. Times are CPU time of the thread that calls the manager, "
        "in microseconds; what an engine does outside the manager (turning tokens into the form it "
        "takes, gathering a batch) is not in them.",
        "",
        f"All have DeepSeek-V4-Flash's groups in {geometry['budget_bytes'] / 1e9:g} GB, the "
        f"workloads with {serving['max_sequences']} rows and {results['concurrency']} requests "
        "running. kvstrata's events and validation are on; the peers' events are off.",
        "",
    ]
    for name, workload in results["workloads"].items():
        lines.append(f"- {name}: {workload['requests']:,} requests, {workload['part']}")
    lines.append("")
    for key, about in results["subjects"].items():
        label = results["labels"][key]
        lines.append(f"- **{label}** ({about['version']}). {' '.join(about['differences'])}")
    lines += [
        f"- {results['labels'][key]} is absent: {why}" for key, why in results["absent"].items()
    ]
    lines += [
        f"- {results['labels'][key]} has no figure for {work}: {' '.join(why.split(':')[1:2])}."
        for work, subjects in results["works"].items()
        for key, why in ((key, found.get("failed")) for key, found in subjects.items())
        if why
    ]
    return "\n".join(lines)


def missed(results: Results) -> str:
    """Goals that were not reached, and why."""
    found = [
        f"- {cells[0]}: {cell}. {reason_for(cells[0])}"
        for cells in rows(results)
        for cell in cells[-2:]
        if "missed" in cell
    ]
    cost = log_cost(results)
    if cost and cost["caller"] > LOG_COST_GOAL:
        title = "cost of the log"
        found.append(f"- {title}: {cost['caller']:.2f} ({LOG_COST_GOAL}). {reason_for(title)}")
    for verb, points in flat_points(results).items():
        if growth(points) > FLAT_GOAL:
            times = f"grows x{growth(points):.2f} ({FLAT_GOAL})"
            found.append(f"- {verb}, a block, by prompt length: {times}. {reason_for('flat')}")
    held = {key: held_bytes(one) for key, one in memories(results).items()}
    if VLLM in held and held[OURS] * MEMORY_GOAL > held[VLLM]:
        times = f"{held[VLLM] / held[OURS]:.1f} of kvstrata's ({MEMORY_GOAL})"
        found.append(f"- memory: vLLM holds {times}. {reason_for('memory')}")
    return "\n".join(found) or "None."


def tails(results: Results) -> str:
    """The 99th percentiles."""
    subjects = list(results["subjects"])
    body = []
    for measure in MEASURES:
        if measure.per_request or measure.work not in results["works"]:
            continue
        cells = [measure.title]
        for key in subjects:
            rounds = results["works"][measure.work].get(key, {}).get("rounds")
            worst = median(measure.p99(one) for one in rounds) if rounds else None
            cells.append(microseconds(worst))
        body.append(cells)
    return table(["us, 99th percentile", *(results["labels"][key] for key in subjects)], body)


def serving(results: Results) -> str:
    """Verb by verb, what a request costs and hits."""
    body = []
    for work, subjects in results["works"].items():
        if not work.startswith("serve "):
            continue
        for key, found in subjects.items():
            if not found["rounds"]:
                continue
            one = sorted(found["rounds"], key=lambda r: r["manager_us_per_request"])
            answer = one[len(one) // 2]
            verbs = answer["verbs"]
            cells = [work.removeprefix("serve "), results["labels"][key]]
            for verb in ("hash", "begin", "extend", "decode", "finish"):
                total = verbs.get(verb, {}).get("total_us", 0.0)
                cells.append(microseconds(total / answer["requests"]))
            cells.append(microseconds(answer["manager_us_per_request"]))
            cells.append(f"{answer['hit_tokens'] / answer['prompt_tokens']:.1%}")
            body.append(cells)
    head = ["workload", "", "hash", "begin", "extend", "decode", "finish", "all", "hit tokens"]
    return table(head, body)


def memories(results: Results) -> dict[str, dict[str, int]]:
    """By subject, the first answer of the memory work."""
    found = results["works"].get("memory", {})
    return {key: one["rounds"][0] for key, one in found.items() if one["rounds"]}


def held_bytes(one: dict[str, int]) -> float:
    """Bytes of manager state a cached token."""
    return one["after_bytes"] / max(one["cached"], 1)


def memory(results: Results) -> str:
    """Bytes of manager state, by what is cached when more was offered than fits."""
    held = memories(results)
    body = [
        [
            results["labels"][key],
            f"{one['before_bytes'] / 1e6:.1f}",
            f"{one['after_bytes'] / 1e6:.1f}",
            f"{one['cached'] / 1e6:.2f}",
            f"{held_bytes(one):.2f}",
        ]
        for key, one in held.items()
    ]
    offered = next((one["offered"] for one in held.values()), 0)
    full = f"{offered:,} tokens offered, MB"
    return table(["", "empty, MB", full, "millions cached", "MB a million cached tokens"], body)


def growth(points: list[tuple[int, float]]) -> float:
    """By how much a block costs more in a prompt than in any shorter one, at most."""
    least, most = float("inf"), 1.0
    for _, cost in sorted(points):
        least = min(least, cost)
        most = max(most, cost / least)
    return most


def flatness(results: Results) -> str:
    """Microseconds a block by prompt length, and how much they grow."""
    found = flat_points(results)
    lengths = sorted({tokens for points in found.values() for tokens, _ in points})
    body = [
        [verb, *(f"{dict(points)[tokens]:.3f}" for tokens in lengths), f"x{growth(points):.2f}"]
        for verb, points in found.items()
    ]
    head = ["us a block", *(f"{tokens // 1024}k" for tokens in lengths), "grows"]
    return (
        "A short prompt's blocks share what a call costs anyway. Grows: the most by which a block "
        f"costs more than in a shorter prompt (goal x{FLAT_GOAL}).\n\n{table(head, body)}"
    )


def flat_points(results: Results) -> dict[str, list[tuple[int, float]]]:
    """By verb: prompt length in tokens and microseconds a block of 128 tokens, over all rounds."""
    found: dict[str, list[tuple[int, float]]] = {}
    for work, subjects in results["flat"].items():
        _, kind, length = work.split()
        tokens = int(length)
        rounds = subjects.get(OURS, {}).get("rounds", [])
        for verb in ("match", "hash") if kind == "match" else ("extend", "finish"):
            costs = [whole_us(answer, verb) / (tokens / 128) for answer in rounds]
            if costs:
                found.setdefault(verb, []).append((tokens, median(costs)))
    return found


def whole_us(answer: dict[str, Any], verb: str) -> float:
    """What a verb costs a prompt; a prompt is extended in several calls."""
    if verb != "extend":
        return float(answer[verb]["median_us"])
    return float(answer[verb]["total_us"]) / float(answer["finish"]["calls"])


def cost_of_log(results: Results) -> str:
    """What the log costs, by workload."""
    body = []
    for work in results["works"]:
        cost = log_cost(results, work) if work.startswith("serve ") else None
        if cost:
            body.append(
                [work.removeprefix("serve "), f"{cost['caller']:.2f}", f"{cost['process']:.2f}"]
            )
    return table(["with the log by without", "caller (goal 1.25)", "process"], body)


def whole_traces(replays: Results) -> str:
    """What ``kvstrata replay`` says of whole traces."""
    body = [
        [
            name,
            f"{found['requests']:,}",
            f"{found['hit_tokens'] / found['prompt_tokens']:.1%}",
            f"{found['saved_tokens'] / found['prompt_tokens']:.1%}",
            f"{found['evictions']:,}",
            f"{found['events']:,}",
            f"{found['log_bytes'] / 1e6:,.0f}",
            microseconds(found["manager_cpu_us_per_request"]),
        ]
        for name, found in replays["traces"].items()
    ]
    head = ["", "requests", "hit", "saved", "evictions", "events", "log, MB", "us a request"]
    return (
        f"`kvstrata replay`, {replays['budget']}, {replays['concurrency']} requests at once. Saved "
        "tokens are those not computed: hits less what was computed again for state. The goal for "
        f"the conversation trace is 150 us. {reason_for('conversation trace')}\n\n"
        f"{table(head, body)}"
    )


def counted(instructions: Results) -> str:
    """What valgrind counted."""
    body = [[title, f"{count:,}"] for title, count in instructions["instructions"].items()]
    return (
        "Counted by valgrind, interpreter and compiled core together: a figure that does not move "
        "with the machine. Compiled for any x86-64, so some more than in production.\n\n"
        f"{table(['', 'instructions a call'], body)}"
    )


def page() -> str:
    """The whole page."""
    peers, store = load("peers"), load("event_store")
    parts = [
        "# Benchmarks",
        "",
        "Written by `python bench/report.py` from `bench/results/`; `make bench` measures anew.",
    ]
    if peers is not None:
        parts += [
            "\n## Beside what people use today\n",
            table(header(peers), rows(peers)),
            "\n![Ratios](benchmarks/ratios.svg)\n",
            how(peers),
            "\n### Goals missed\n",
            missed(peers),
            "\n### Tails\n",
            tails(peers),
            "\n### Whole workloads, microseconds a request\n",
            serving(peers),
            "\n### What the log costs\n",
            cost_of_log(peers),
            "\n### A block costs the same in a long prompt\n",
            flatness(peers),
            "\n![Microseconds a block by prompt length](benchmarks/flat.svg)\n",
            "### Memory\n",
            memory(peers),
        ]
    replays, instructions = load("replays"), load("instructions")
    if replays is not None:
        parts += ["\n## Real traces, whole\n", whole_traces(replays)]
    if instructions is not None:
        parts += ["\n## Instructions\n", counted(instructions)]
    if store is not None:
        parts += store_parts(store)
    tiers = load("tiers")
    if tiers is not None:
        parts += tier_parts(tiers)
    parts += observing_parts(load("follower"), load("observed"), load("admin"))
    return "\n".join(parts).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = page()
    if arguments.check:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/benchmarks.md is not what bench/results say; run bench/report.py")
        return
    from plots import draw_all  # matplotlib, which --check does not need

    PAGE.write_text(text)
    draw_all(load("peers"), load("event_store"), load("tiers"), PLOTS, flat_points)
    print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
