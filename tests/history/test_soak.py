"""Engine and follower, killed again and again: equal at every logged digest.

KVSTRATA_SOAK_EVENTS says how many events (300,000 where it is not set).
"""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from kvstrata import CacheManager
from kvstrata.eventstore.history.follower import Follower
from tests.eventstore.support import shared_corner

from .following import catch_up
from .soaking import LAYOUT, TOLD, soak_config

NUM_EVENTS = int(os.environ.get("KVSTRATA_SOAK_EVENTS", "300000"))
LEAST_KILLS = 3 + NUM_EVENTS // 500_000
LIFE_S = (0.5, 2.0 + NUM_EVENTS / 1_000_000)
"""After a kill, both sides run for so long."""
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240 + NUM_EVENTS / 5000


class Child:
    """One side, and the lines it printed."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.history.soaking", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("}\n"):
                self._lines.put(json.loads(line))

    def lines(self) -> list[dict[str, Any]]:
        """What it printed since the last look."""
        found = []
        while not self._lines.empty():
            found.append(self._lines.get())
        return found

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join()


class Soak:
    """Runs both sides until so many events are durable; checks each line they print."""

    def __init__(self, corner: Path) -> None:
        (corner / "shared").mkdir()
        self.directory, self.shared = corner / "log", corner / "shared"
        self.memory = corner / "tally"
        self.durable = 0
        self.lives = {"engine": 0, "follower": 0}
        self.compared = 0
        self.most_bytes: list[int] = []
        self._seen = dict.fromkeys((*TOLD, "events", "seqno"), 0)
        self._equal = 0
        self._sides = itertools.cycle(("follower", "engine"))
        self._dice = np.random.default_rng(7)

    def start(self, side: str) -> Child:
        self.lives[side] += 1
        last = str(self.lives[side]) if side == "engine" else str(self.memory)
        self._equal = 0 if side == "follower" else self._equal
        return Child(side, str(self.directory), str(self.shared), last)

    def run(self, num_events: int) -> None:
        children = {side: self.start(side) for side in self.lives}
        deadline_s = time.monotonic() + LIMIT_S
        try:
            while self.durable < num_events or sum(self.lives.values()) < 2 + LEAST_KILLS:
                side = next(self._sides)
                heard = dict.fromkeys(children, False)
                until_s = 0.0
                while not all(heard.values()) or time.monotonic() < until_s:
                    assert time.monotonic() < deadline_s, "too slow"
                    time.sleep(0.02)
                    for name, child in children.items():
                        assert child.is_alive, f"{name} died by itself"
                        heard[name] |= self.look(name, child)
                    if not until_s and all(heard.values()):
                        until_s = time.monotonic() + float(self._dice.uniform(*LIFE_S))
                children[side].kill()
                self.look(side, children[side])
                children[side] = self.start(side)
        finally:
            for child in children.values():
                child.kill()

    def look(self, side: str, child: Child) -> bool:
        lines = child.lines()
        for line in lines:
            if side == "engine":
                self.durable = max(self.durable, line["durable"])
            else:
                self.check(line)
        return any(line["seqno"] for line in lines)

    def check(self, line: dict[str, Any]) -> None:
        """Nothing differs, nothing is missed, and what was shown is never taken back."""
        if not line["seqno"]:
            return
        assert line["drift"] == []
        assert line["differed"] == line["missed_events"] == line["restarts"] == 0
        assert line["error"] == ""
        self.compared += max(line["equal"] - self._equal, 0)
        self._equal = line["equal"]
        self.most_bytes.append(line["resident_bytes"])
        if line["replayed"]:
            for name, before in self._seen.items():
                assert line[name] >= before, name
                self._seen[name] = line[name]
            assert line["events"] == line["seqno"]


def test_equal_at_every_digest_through_kills_of_either_side() -> None:
    with shared_corner() as corner:
        soak = Soak(corner)
        began_s = time.monotonic()
        soak.run(NUM_EVENTS)
        took_s = time.monotonic() - began_s
        with (
            CacheManager.open(LAYOUT, soak_config(soak.shared), soak.directory) as cache,
            Follower(
                soak.directory, shared_memory_root=soak.shared, memory=soak.memory
            ) as follower,
        ):
            cache.log_digest()
            cache.log_slice_digest(cache.arena.nbytes)
            cache.flush()
            catch_up(follower)
            assert follower.position().error == ""
            assert follower.drift == []
            assert np.array_equal(follower.arena, cache.arena)
            assert int(follower.tally.counts.sum()) == follower.position().seqno
            assert follower.position().seqno > NUM_EVENTS
            segment = follower.position().segment_id
    assert soak.compared > NUM_EVENTS / 10_000
    assert sum(soak.lives.values()) >= 2 + LEAST_KILLS
    assert segment > NUM_EVENTS / 60_000
    lives = len(soak.most_bytes) // 2
    early, late = max(soak.most_bytes[:lives]), max(soak.most_bytes[lives:])
    assert late < 1.1 * early + (8 << 20)
    print(
        f"{soak.durable:,} events in {took_s:.0f} s, {soak.compared:,} digests compared, "
        f"lives {soak.lives}, segment {segment}, at most {early / 1e6:.0f} MB, "
        f"then {late / 1e6:.0f} MB"
    )
