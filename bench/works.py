"""What is measured: each work drives one subject and returns JSON. Runs in the subject's process.

Nothing here knows which manager it drives. Token ids are below 2**30 and come from seeded
generators or from a workload's files, so every subject sees the same.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Job, Tokens, read_jobs
from meter import Meter
from subject import Subject

CHUNK = 8192
"""Prompt tokens an engine computes in one step."""

Work = Callable[..., dict[str, Any]]
WORKS: dict[str, Work] = {}


def work(function: Work) -> Work:
    """Register a work under its name."""
    WORKS[function.__name__] = function
    return function


def some_tokens(seed: int, num_tokens: int) -> Tokens:
    """Token ids of a seeded generator: int32[num_tokens]."""
    return np.random.default_rng(seed).integers(0, 1 << 30, num_tokens, dtype=np.int32)


def compute(subject: Subject, meter: Meter, tokens: Tokens) -> tuple[Any, int]:
    """Begin a request and compute its prompt in chunks: the running request and its hit."""
    request = meter.call("hash", subject.request, subject.prepare(tokens))
    running, hit = meter.call("begin", subject.begin, request)
    for at in range(hit, len(tokens), CHUNK):
        meter.call("extend", subject.extend, running, min(CHUNK, len(tokens) - at))
    return running, hit


def warm_up(subject: Subject) -> None:
    """Go every way once, so that no measurement waits for what is loaded at first use."""
    meter, tokens = Meter(), some_tokens(0, 3000)
    subject.finish(compute(subject, meter, tokens)[0])
    running, _ = compute(subject, meter, np.concatenate([tokens, some_tokens(4, 700)]))
    subject.match(subject.request(subject.prepare(tokens)))
    batch = subject.batch([running])
    for step in range(300):
        subject.decode(batch, subject.prepare(some_tokens(step, 1)))
    subject.finish(running)


@work
def hashing(subject: Subject, tokens: int, repeats: int) -> dict[str, Any]:
    """Keys of a prompt."""
    meter = Meter()
    prepared = subject.prepare(some_tokens(1, tokens))
    for _ in range(repeats):
        meter.call("hash", subject.request, prepared)
    return meter.to_json()


@work
def full_hit(subject: Subject, tokens: int, repeats: int, inner: int) -> dict[str, Any]:
    """Look up a prompt that was served before; one token of it is left to compute."""
    cached = some_tokens(tokens, tokens + 1)
    subject.finish(compute(subject, Meter(), cached)[0])
    meter = Meter()
    prepared = subject.prepare(cached)
    hit = 0
    for _ in range(repeats):
        request = meter.call("hash", subject.request, prepared)
        hit = meter.repeat("match", inner, subject.match, request)
    return meter.to_json() | {"hit_tokens": hit}


@work
def long_prompt(subject: Subject, tokens: int, repeats: int) -> dict[str, Any]:
    """Cold prompts of one length: every chunk, and the end."""
    meter = Meter()
    for round_number in range(repeats):
        running, _ = compute(subject, meter, some_tokens(1000 + round_number + tokens, tokens))
        meter.call("finish", subject.finish, running)
    return meter.to_json()


@work
def decode_steps(subject: Subject, batch: int, prompt: int, steps: int) -> dict[str, Any]:
    """Decode steps of a batch; its sequences reach their block boundaries one after another."""
    quiet, meter = Meter(), Meter()
    running = [compute(subject, quiet, some_tokens(i, prompt + i))[0] for i in range(batch)]
    ready = subject.batch(running)
    for ids in map(subject.prepare, some_tokens(3, steps * batch).reshape(steps, batch)):
        meter.call("decode", subject.decode, ready, ids)
    for one in running:
        subject.finish(one)
    return meter.to_json()


@work
def cached_memory(subject: Subject, tokens: int, prompt: int) -> dict[str, Any]:
    """Bytes of manager state by tokens that are cached when more are offered than fit.

    What is cached is what a second look at every prompt finds.
    """
    before = subject.state_bytes()
    for number in range(tokens // prompt):
        subject.finish(compute(subject, Meter(), some_tokens(90_000 + number, prompt))[0])
    after, cached = subject.state_bytes(), 0
    for number in range(tokens // prompt):
        again = subject.request(subject.prepare(some_tokens(90_000 + number, prompt)))
        cached += subject.match(again)
    return {"before_bytes": before, "after_bytes": after, "offered": tokens, "cached": cached}


@work
def serve(subject: Subject, workload: str, concurrency: int) -> dict[str, Any]:
    """A whole workload in a closed loop: so many requests run at once, decoding step by step."""
    jobs = read_jobs(Path(workload))
    meter = Meter()
    caller, process = time.thread_time_ns(), time.process_time_ns()
    serving = Serving(subject, meter, jobs, concurrency)
    serving.run()
    times = meter.to_json()
    manager_us = sum(verb["total_us"] for verb in times.values())
    return {
        "verbs": times,
        "requests": len(jobs),
        "prompt_tokens": sum(len(job.prompt) for job in jobs),
        "output_tokens": sum(len(job.output) for job in jobs),
        "hit_tokens": serving.hit_tokens,
        "manager_us_per_request": manager_us / max(len(jobs), 1),
        "caller_cpu_s": (time.thread_time_ns() - caller) / 1e9,
        "process_cpu_s": (time.process_time_ns() - process) / 1e9,
    }


class Serving:
    """An engine's loop around a manager: admit, compute prompts, decode, finish."""

    def __init__(self, subject: Subject, meter: Meter, jobs: list[Job], concurrency: int) -> None:
        self._subject = subject
        self._meter = meter
        self._jobs = iter(jobs)
        self._concurrency = concurrency
        self._running: list[Serving.One] = []
        self.hit_tokens = 0

    class One:
        """A running request."""

        def __init__(self, handle: Any, job: Job) -> None:
            self.handle = handle
            self.output = job.output.tolist()
            self.produced = 0

    def run(self) -> None:
        """Until every job has ended."""
        batch: Any = None
        while True:
            if self._finish() | self._admit():
                batch = self._subject.batch([one.handle for one in self._running])
            if not self._running:
                return
            ids = [one.output[one.produced] for one in self._running]
            tokens = self._subject.prepare(np.array(ids, dtype=np.int32))
            self._meter.call("decode", self._subject.decode, batch, tokens)
            for one in self._running:
                one.produced += 1

    def _finish(self) -> bool:
        ended = [one for one in self._running if one.produced >= len(one.output)]
        for one in ended:
            self._meter.call("finish", self._subject.finish, one.handle)
        self._running = [one for one in self._running if one.produced < len(one.output)]
        return bool(ended)

    def _admit(self) -> bool:
        admitted = False
        while len(self._running) < self._concurrency:
            job = next(self._jobs, None)
            if job is None:
                break
            handle, hit = compute(self._subject, self._meter, job.prompt)
            self.hit_tokens += hit
            self._running.append(self.One(handle, job))
            admitted = True
        return admitted
