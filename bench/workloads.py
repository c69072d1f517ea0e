"""The workloads every manager is given: made once, written once, read by all (see jobs.py)."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from jobs import Job, write_jobs

from kvstrata.api.traces import Trace, read_trace

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
"""Where the traces lie; where they do not, the workloads made of them are absent."""

CHAT_SESSIONS, CHAT_TURNS = 200, 5
SYSTEM_PROMPTS, SYSTEM_TOKENS = 8, 4096


def chat(sessions: int = CHAT_SESSIONS, turns: int = CHAT_TURNS) -> Iterator[Job]:
    """Multi-turn chat: every turn's prompt is all that was said before, and a new question.

    The sessions share a few system prompts; all sessions' first turns come first, then all second
    ones. Questions of 500 to 2,700 tokens, answers of 128: prompts of 9,150 tokens on average.
    """
    dice = np.random.default_rng(20)

    def some(count: int) -> np.ndarray:
        return dice.integers(0, 1 << 30, count, dtype=np.int32)

    systems = [some(SYSTEM_TOKENS) for _ in range(SYSTEM_PROMPTS)]
    said = [systems[number % SYSTEM_PROMPTS] for number in range(sessions)]
    for _ in range(turns):
        for number in range(sessions):
            prompt = np.concatenate([said[number], some(int(dice.integers(500, 2700)))])
            output = some(128)
            said[number] = np.concatenate([prompt, output])
            yield Job(prompt, output)


def trace_jobs(trace: Trace, open_sessions: int) -> Iterator[Job]:
    """A trace's requests; of so many open sessions each in turn its next one."""
    waiting = deque(iter(session) for session in trace.sessions)
    sessions = deque(waiting.popleft() for _ in range(min(open_sessions, len(waiting))))
    while sessions:
        session = sessions.popleft()
        request = next(session, None)
        if request is not None:
            yield Job(request.prompt(), request.output())
            sessions.append(session)
        elif waiting:
            sessions.appendleft(waiting.popleft())


def write_workloads(folder: Path, quick: bool) -> dict[str, dict[str, object]]:
    """Write every workload there is.

    Returns:
        By name: ``path``, ``requests``, and ``part``: what of the trace it is.
    """
    found: dict[str, dict[str, object]] = {}

    def write(name: str, jobs: Iterator[Job], part: str) -> None:
        path = folder / name
        found[name] = {"path": str(path), "requests": write_jobs(path, jobs), "part": part}

    if quick:
        write("chat", chat(24, 3), "24 sessions of 3 turns")
    else:
        write("chat", chat(), f"{CHAT_SESSIONS} sessions of {CHAT_TURNS} turns")
    traces = {
        "conversation": ("mooncake_conversation", 60 if quick else 1000),
        "synthetic": ("mooncake_synthetic", 30 if quick else 500),
        "agentic": ("agentic_coding", 20 if quick else 500),
    }
    for name, (file, count) in traces.items():
        path = TRACES / f"{file}.jsonl.gz"
        if path.exists():
            jobs = islice(trace_jobs(read_trace(path), 64), count)
            write(name, jobs, f"its first {count:,} requests, 64 sessions open")
    return found
