"""Figures out of results: medians, ratios, goals; for the terminal and docs/benchmarks.md."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

Results = dict[str, Any]

OURS = "kvstrata"
VLLM, RUST = "vllm", "sglang-rust"


@dataclass(frozen=True)
class Measure:
    """One row of the comparison: what of an answer is compared.

    Attributes:
        title: of the row.
        work: name of the work in the results.
        verbs: whose medians are added.
        goals: by peer, the ratio to reach.
        per_request: whether it is the manager's whole time a request instead of a median.
        without: subjects whose names begin so do no such thing.
    """

    title: str
    work: str
    verbs: tuple[str, ...]
    goals: dict[str, float]
    per_request: bool = False
    without: str | None = None

    def of(self, answer: dict[str, Any]) -> float:
        """Microseconds, of one round's answer."""
        if self.per_request:
            return float(answer["manager_us_per_request"])
        return float(sum(answer[verb]["median_us"] for verb in self.verbs if verb in answer))

    def p99(self, answer: dict[str, Any]) -> float:
        """The same of the 99th percentiles."""
        return float(sum(answer[verb]["p99_us"] for verb in self.verbs if verb in answer))


MEASURES = (
    *(
        Measure(f"match, full hit, {size} tokens", f"match {size}", ("match",), {VLLM: 10, RUST: 2})
        for size in ("8k", "128k", "1M")
    ),
    *(
        Measure(
            f"prefill chunk of 8,192 tokens, prompt of {size}",
            f"prompt {size}",
            ("extend",),
            {VLLM: 30, RUST: 10},
        )
        for size in ("8k", "128k", "1M")
    ),
    Measure("decode step, batch 256", "decode 256", ("decode",), {VLLM: 100, RUST: 2}),
    Measure("decode step, batch 32", "decode 32", ("decode",), {}),
    Measure("decode step, batch 1", "decode 1", ("decode",), {VLLM: 2, RUST: 4}),
    Measure("finish, 1M tokens", "prompt 1M", ("finish",), {VLLM: 30}),
    Measure("hashing, 1M tokens", "hashing", ("hash",), {VLLM: 40}, without="sglang"),
    Measure("chat, manager time a request", "serve chat", (), {VLLM: 20, RUST: 10}, True),
    Measure("conversation trace, a request", "serve conversation", (), {}, True),
    Measure("synthetic trace, a request", "serve synthetic", (), {}, True),
    Measure("agentic trace, a request", "serve agentic", (), {}, True),
)


def value(results: Results, measure: Measure, subject: str) -> float | None:
    """Median over the rounds in microseconds, or None where there is none."""
    found = results["works"].get(measure.work, {}).get(subject)
    does_not = measure.without is not None and subject.startswith(measure.without)
    if does_not or not found or not found["rounds"]:
        return None
    return median(measure.of(answer) for answer in found["rounds"])


def ratio(results: Results, measure: Measure, peer: str) -> float | None:
    """A peer's median by kvstrata's."""
    ours, theirs = value(results, measure, OURS), value(results, measure, peer)
    return theirs / ours if ours and theirs is not None else None


def microseconds(found: float | None) -> str:
    """A time as a table shows it."""
    if found is None:
        return "-"
    return f"{found:,.0f}" if found >= 100 else f"{found:.1f}"


def rows(results: Results) -> list[list[str]]:
    """Title, each subject's median, and the ratios with their goals."""
    subjects = list(results["subjects"])
    found = []
    for measure in MEASURES:
        if measure.work not in results["works"]:
            continue
        cells = [measure.title, *(microseconds(value(results, measure, key)) for key in subjects)]
        for peer in (VLLM, RUST):
            times, goal = ratio(results, measure, peer), measure.goals.get(peer)
            text = "-" if times is None or peer not in subjects else f"{times:.1f}"
            if goal and times is not None:
                text += f" ({'reached' if times >= goal else 'missed'}: {goal:g})"
            cells.append(text)
        found.append(cells)
    return found


def header(results: Results) -> list[str]:
    """Of :func:`rows`."""
    labels = results["labels"]
    return [
        "us, CPU time of the caller",
        *(labels[key] for key in results["subjects"]),
        "vLLM / kvstrata",
        "SGLang Rust / kvstrata",
    ]


def log_cost(results: Results, work: str = "serve chat") -> dict[str, float] | None:
    """What the log costs: caller's and process's CPU time with it by those without it."""
    subjects = results["works"].get(work, {})
    rounds = [subjects.get(key, {}).get("rounds") for key in (OURS, "kvstrata-unlogged")]
    if not all(rounds):
        return None
    with_log, without = rounds
    return {
        name: median(one[field] for one in with_log) / median(one[field] for one in without)
        for name, field in (("caller", "manager_us_per_request"), ("process", "process_cpu_s"))
    }


def print_comparison(results: Results) -> None:
    """The comparison as a table on the terminal."""
    table = Table(header_style="bold")
    for place, name in enumerate(header(results)):
        table.add_column(name, justify="left" if place == 0 else "right")
    for cells in rows(results):
        table.add_row(*cells)
    console = Console(width=180)
    console.print(table)
    cost = log_cost(results)
    if cost:
        console.print(
            f"cost of the log: caller {cost['caller']:.2f} (goal 1.25), "
            f"process {cost['process']:.2f}"
        )
    for work, subjects in results["works"].items():
        for key, found in subjects.items():
            if "failed" in found:
                console.print(f"{results['labels'][key]}: {work}: {found['failed']}")
