"""kill -9 at 30 moments under load: what the log says is what comes back, and nothing half-written.

Five places inside a call are steered (the core deciding, the ring being written, the writer's
pwritev, sync and watermark), the rest is random. Where each kill fell is printed.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from kvstrata import CacheManager, Request
from kvstrata.core.arena import arena_digest, new_arena
from kvstrata.core.events import EVENT_DTYPE, LAST_OF_CALL
from kvstrata.core.replay import apply_events
from kvstrata.core.ring import RING_HEADER_WORDS
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_STATE, Arena
from kvstrata.eventstore.log import log as log_module
from kvstrata.eventstore.log import open_replayed, place_of, read_events
from kvstrata.eventstore.log.cursors import Phase
from kvstrata.eventstore.log.ringfile import RING_WRITER_PHASE
from tests.eventstore.faults import HookedSystem
from tests.eventstore.test_kill import acknowledged_by, in_child

from . import workload

COUNTS = {"decide": 5, "ring write": 5, "pwritev": 5, "sync": 5, "watermark": 4, "any": 6}


def kill_in_core(directory: Path, seed: int, wanted: str, countdown: int) -> int:
    """A child whose core runs as plain Python kills itself inside a call."""
    command = [sys.executable, "-m", "tests.system.workload", str(directory), str(seed)]
    child = subprocess.run(
        [*command, wanted, str(countdown)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]
    return int.from_bytes(child.stdout[-8:], "little")


def kill_in_writer(directory: Path, seed: int, wanted: str, countdown: int) -> int:
    """A forked child kills itself in the log's writer thread, just before it does the call."""
    left = countdown

    def hook(name: str) -> None:
        nonlocal left
        path = place_of(directory).ring
        if not path.exists() or path.stat().st_size < RING_HEADER_WORDS * 8:
            return
        phase = Phase(int(np.memmap(path, dtype=np.int64, mode="r")[RING_WRITER_PHASE]))
        left -= (name, phase) == CALLS[wanted]
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def run(report: int) -> None:
        log_module.System = lambda: HookedSystem(hook)  # type: ignore[assignment,misc]
        workload.work(directory, seed, report)

    return acknowledged_by(*in_child(run))


CALLS = {
    "pwritev": ("pwritev", Phase.WRITING),
    "sync": ("fdatasync", Phase.SYNCING),
    "watermark": ("pwritev", Phase.MARKING),
}


def kill_any(directory: Path, seed: int, delay_s: float) -> int:
    """A forked child is killed from outside, wherever it is."""
    pid, pipe = in_child(lambda report: workload.work(directory, seed, report))
    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    return acknowledged_by(pid, pipe)


def kill_child(directory: Path, seed: int, wanted: str, dice: random.Random) -> int:
    """One life of the child; the last seqno it was told is durable."""
    if wanted == "any":
        return kill_any(directory, seed, dice.uniform(0.3, 1.5))
    if wanted in CALLS:
        return kill_in_writer(directory, seed, wanted, dice.randint(3, 60))
    return kill_in_core(directory, seed, wanted, dice.randint(1, 250))


def replay_all(directory: Path, died_at: int) -> tuple[Arena, bytes]:
    """Every event from the first one on, applied to a new arena; its digest at ``died_at`` too."""
    arena = new_arena(workload.layout(), workload.config().arena_params(workload.layout()))
    events = np.concatenate([np.zeros(0, EVENT_DTYPE), *read_events(directory)])
    assert events["flags"][died_at - 1] & LAST_OF_CALL, "half a call is in the log"
    words = np.ascontiguousarray(events).view(np.int64).reshape(-1, 8)
    assert int(apply_events(arena, words[:died_at])) == died_at
    died_with = arena_digest(arena)
    assert int(apply_events(arena, words[died_at:])) == len(words) - died_at
    return arena, died_with


def check_pages(cache: CacheManager, seed: int) -> int:
    """Every byte of every hit is what its prefix says; the number of hits."""
    assert cache.pools is not None
    hits = 0
    for prompt in itertools.islice(workload.prompts(seed), 300):
        plan = cache.match(Request(prompt, model=workload.MODEL))
        if plan.is_cold:
            continue
        hits += 1
        for index, block in enumerate(plan.blocks[:, 0].tolist()):
            page = cache.pools.storage("full")[int(cache.tables.blocks.pages[block, 0])]
            prefix = prompt[: (index + 1) * cache.layout.block_tokens]
            assert bool((page == workload.stamp(prefix, "full")).all())
        if plan.source == "replay":
            continue
        image = int(cache.tables.images.pages[plan.checkpoint[0], 0])
        page = cache.pools.storage("swa")[image]
        assert bool((page == workload.stamp(prompt[: plan.resume_at], "swa")).all())
    return hits


def test_thirty_kills(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    dice = random.Random(20)
    wanted = [place for place, count in COUNTS.items() for _ in range(count)]
    dice.shuffle(wanted)
    hits = 0
    for number, place in enumerate(wanted):
        acknowledged = kill_child(directory, number % 3, place, dice)
        replayed, report = open_replayed(directory)
        print(f"kill {number}: {place}, at event {report.last_seqno}, {acknowledged} acknowledged")
        assert report.last_seqno >= acknowledged, "an acknowledged flush was lost"
        hits += check_recovery(directory, replayed, report.last_seqno, number % 3)
    print(f"kills fell in: {COUNTS}; hits checked byte by byte: {hits}")
    assert len(wanted) == 30
    assert hits > 100


def check_recovery(directory: Path, replayed: Arena, died_at: int, seed: int) -> int:
    """Open what a killed child left; the number of hits whose bytes were checked."""
    with CacheManager.open(workload.layout(), workload.config(), directory, "shared") as cache:
        assert cache.recovery is not None
        assert cache.recovery.log.bytes_trusted
        assert cache.recovery.log.last_seqno == died_at
        assert cache.recovery.pages_lost["checksum_mismatch"] == 0
        cache.flush()
        arena, died_with = replay_all(directory, died_at)
        assert cache.digest() == arena_digest(arena), "the state is not what the log says"
        assert arena_digest(replayed) == died_with
        cache.check_integrity()
        states = cache.tables.pages[:, PAGE_STATE]
        assert set(np.unique(states).tolist()) <= {PageState.FREE, PageState.SEALED}
        return check_pages(cache, seed)
