"""The requests of a workload, as bytes on disk: every subject reads the very same ones.

A workload is a folder of two files: ``tokens.i32``, all prompts and outputs one after another
(int32, little-endian), and ``jobs.npy``, int64[n, 3]: prompt tokens, output tokens, and where the
prompt begins; its output follows it. Requests are served in this order.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Job:
    """One request: its prompt and what the model answers (at least one token)."""

    prompt: Tokens
    output: Tokens


def write_jobs(folder: Path, jobs: Iterable[Job]) -> int:
    """Write a workload; returns how many jobs."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, place = [], 0
    with (folder / "tokens.i32").open("wb") as out:
        for job in jobs:
            rows.append((len(job.prompt), len(job.output), place))
            for part in (job.prompt, job.output):
                out.write(np.ascontiguousarray(part, dtype="<i4").tobytes())
                place += len(part)
    np.save(folder / "jobs.npy", np.array(rows, dtype=np.int64).reshape(-1, 3))
    return len(rows)


def read_jobs(folder: Path) -> list[Job]:
    """Read a workload; prompts and outputs are views of one mapped file."""
    rows = np.load(folder / "jobs.npy")
    tokens = np.memmap(folder / "tokens.i32", dtype="<i4", mode="r")
    jobs = []
    for prompt, output, place in rows.tolist():
        middle = place + prompt
        jobs.append(Job(tokens[place:middle], tokens[middle : middle + output]))
    return jobs
