"""kvstrata beside what people use today, in one run: writes ``bench/results/peers.json``.

Every subject is a process of its own and is given the same requests, the same bytes and the same
geometry; which comes first alternates from round to round. Times are CPU time of the thread that
calls the manager (kvstrata's log writer is a thread of its own: see ``process_cpu_s``).

    python bench/compare.py              all of it, about three quarters of an hour
    python bench/compare.py --quick      a small part of everything, two minutes
    python bench/compare.py --only kvstrata --only vllm
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers.environments import Environment
from process import ENTRIES, Entry, SubjectFailed, SubjectProcess
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from stores.figures import machine
from workloads import write_workloads

HERE = Path(__file__).resolve().parent
GEOMETRY = {
    "model": "deepseek-v4-flash",
    "budget_bytes": 40_000_000_000,
    "max_sequences": 256,
    "max_tokens": 4_400_000,
}
SERVING = {**GEOMETRY, "max_sequences": 64, "max_tokens": 1_000_000}
CONCURRENCY = 32
K = 1024


def works(quick: bool, workloads: dict[str, dict[str, object]]) -> dict[str, dict[str, Any]]:
    """What is measured: name → command, with the geometry it needs."""
    lengths = {"8k": 8 * K, "128k": 128 * K} | ({} if quick else {"1M": K * K})
    found: dict[str, dict[str, Any]] = {}
    for name, tokens in lengths.items():
        inner = max(1, min(20, 2_000_000 // tokens))
        found[f"match {name}"] = {
            "do": "full_hit",
            "tokens": tokens,
            "repeats": 3 if quick else 15,
            "inner": inner,
        }
        repeats = max(2, min(20, (1 if quick else 2) * K * K // tokens))
        found[f"prompt {name}"] = {"do": "long_prompt", "tokens": tokens, "repeats": repeats}
    top = "128k" if quick else "1M"
    found["hashing"] = {"do": "hashing", "tokens": lengths[top], "repeats": 3}
    for batch in (1, 32, 256):
        found[f"decode {batch}"] = {
            "do": "decode_steps",
            "batch": batch,
            "prompt": 500,
            "steps": 60 if quick else 640,
        }
    found["memory"] = {
        "do": "cached_memory",
        "tokens": (1 if quick else 12) * K * K,
        "prompt": 64 * K,
    }
    for work in found.values():
        work["geometry"] = GEOMETRY
    for name, workload in workloads.items():
        found[f"serve {name}"] = {
            "do": "serve",
            "workload": workload["path"],
            "concurrency": CONCURRENCY,
            "geometry": SERVING,
        }
    return found


def flat_works(quick: bool) -> dict[str, dict[str, Any]]:
    """kvstrata alone, from a thousand tokens to four million: does a block's cost grow?"""
    lengths = [K << power for power in range(9 if quick else 13)]
    found: dict[str, dict[str, Any]] = {}
    for tokens in lengths:
        inner = max(1, min(200, 1_000_000 // tokens))
        repeats = max(2, min(20, K * K // tokens))
        base = {"geometry": GEOMETRY, "tokens": tokens}
        found[f"flat match {tokens}"] = {"do": "full_hit", "repeats": 7, "inner": inner, **base}
        found[f"flat prompt {tokens}"] = {"do": "long_prompt", "repeats": repeats, **base}
    return found


def run_one(process: SubjectProcess, entry: Entry, work: dict[str, Any]) -> dict[str, Any]:
    """A fresh manager, and one work on it."""
    command = dict(work)
    opened = process.ask("open", geometry=command.pop("geometry"), options=entry.options)
    answer = process.ask(command.pop("do"), **command)
    return {"about": opened, "answer": answer}


def measure(
    subjects: dict[str, tuple[Entry, SubjectProcess]],
    all_works: dict[str, dict[str, Any]],
    rounds: int,
    progress: Progress,
    keep: Callable[[dict[str, Any]], None] = lambda answers: None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every work on every subject, so many times, in alternating order.

    Args:
        subjects: to measure; one whose process has ended is replaced by a fresh one.
        all_works: by name.
        rounds: how often.
        progress: moved on.
        keep: told the answers so far after every work.

    Returns:
        Answers by work and subject, one a round; and what each subject says of itself.
    """
    answers: dict[str, Any] = {}
    about: dict[str, Any] = {}
    task = progress.add_task("", total=len(all_works) * len(subjects) * rounds)
    for name, work in all_works.items():
        for turn in range(rounds):
            order = list(subjects) if turn % 2 == 0 else list(reversed(subjects))
            for key in order:
                entry, process = subjects[key]
                if process.ended:
                    process = process.again()
                    subjects[key] = entry, process
                progress.update(task, description=f"{name}: {entry.label}")
                found = answers.setdefault(name, {}).setdefault(key, {"rounds": []})
                if "failed" not in found:
                    try:
                        one = run_one(process, entry, work)
                        about.setdefault(key, one["about"])
                        found["rounds"].append(one["answer"])
                    except SubjectFailed as failure:
                        found["failed"] = str(failure)
                progress.advance(task)
        keep(answers)
    return answers, about


def open_subjects(
    only: list[str], root: Path, folder: Path, console: Console
) -> tuple[dict[str, tuple[Entry, SubjectProcess]], dict[str, str]]:
    """Install what is missing and start a process for each subject; why others are absent."""
    subjects: dict[str, tuple[Entry, SubjectProcess]] = {}
    absent: dict[str, str] = {}
    reasons: dict[Environment, str] = {}
    for entry in ENTRIES:
        if only and entry.key not in only:
            continue
        environment = entry.environment
        if environment is not None and environment not in reasons:
            console.print(f"environment of {entry.label}")
            reasons[environment] = environment.install(root)
        reason = reasons.get(environment, "") if environment is not None else ""
        if not reason:
            process = SubjectProcess(entry, root, folder / f"{entry.key}.log")
            try:
                process.ask("open", geometry=SERVING, options=entry.options)
                subjects[entry.key] = entry, process
            except SubjectFailed as failure:
                reason = f"does not start: {failure}"
        if reason:
            absent[entry.key] = reason
            console.print(f"{entry.label} is absent: {reason}")
    return subjects, absent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small part of everything")
    parser.add_argument("--only", action="append", default=[], choices=[e.key for e in ENTRIES])
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--environments", type=Path, default=HERE / ".environments")
    parser.add_argument("--out", type=Path, default=None, help="results; default bench/results")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="kvstrata-bench-") as name:
        folder = Path(name)
        workloads = write_workloads(folder, arguments.quick)
        subjects, absent = open_subjects(arguments.only, arguments.environments, folder, console)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        out = arguments.out or (None if arguments.quick else HERE / "results" / "peers.json")
        part = None if out is None else out.with_suffix(".part.json")

        def keep(found: dict[str, Any]) -> None:
            """What a run that is broken off leaves behind."""
            if part is not None:
                part.parent.mkdir(parents=True, exist_ok=True)
                part.write_text(json.dumps({"rounds": rounds, "works": found}, indent=1) + "\n")

        with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
            answers, about = measure(
                subjects, works(arguments.quick, workloads), rounds, progress, keep
            )
            alone = {"kvstrata": subjects["kvstrata"]} if "kvstrata" in subjects else {}
            flat, _ = measure(alone, flat_works(arguments.quick), rounds, progress)
        for _, process in subjects.values():
            process.close()
    results = {
        "machine": machine(HERE),
        "quick": arguments.quick,
        "rounds": rounds,
        "geometry": GEOMETRY,
        "serving": SERVING,
        "concurrency": CONCURRENCY,
        "workloads": {
            name: {key: work[key] for key in ("requests", "part")}
            for name, work in workloads.items()
        },
        "labels": {entry.key: entry.label for entry in ENTRIES},
        "subjects": about,
        "absent": absent,
        "works": answers,
        "flat": flat,
    }
    if out is not None and part is not None:
        out.write_text(json.dumps(results, indent=1) + "\n")
        part.unlink()
        console.print(f"written: {out}")
    from tables import print_comparison

    print_comparison(results)


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
