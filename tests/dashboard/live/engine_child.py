"""An engine that serves all the time, and breaks as it is told on its standard input.

Run as ``python -m tests.dashboard.live.engine_child ROOT``. Each line names a method of
:class:`Engine`; the answer is one line on standard output.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from kvstrata import (
    CacheManager,
    KvstrataError,
    Request,
    Sequence,
    TierConfig,
    TiersConfig,
)
from kvstrata.comparing import Comparison
from kvstrata.core.admission_terms import AdmissionConfig
from kvstrata.core.errors import CapacityError, StaleLease
from kvstrata.core.events import Reason
from kvstrata.core.planner import Rates
from kvstrata.core.words import META_NUM_SEQUENCES
from kvstrata.eventstore.log.system import System
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.store import StoreFault
from tests.face.support import Tokens, config, request, tokens_of
from tests.system.seven_groups import GROUPS, HISTORY, LAYOUT, flip, slot_of

PAUSE_S = 0.02
VICTIM, INDEX_VICTIM = request("victim", 90), request("index victim", 90)


def settings(root: Path) -> Any:
    slots = {name: 150 if name in HISTORY else 60 for name in GROUPS}
    return config(
        {
            "ring_events": 1 << 13,
            "segment_bytes": 8 << 20,
            "shared_memory_root": root / "shared",
        },
        slots=slots,
        max_sequences=8,
        admission=AdmissionConfig(ageing_s=0.1),
        rates=Rates(tokens_per_s=50, bytes_per_s=10**9, load_bytes_per_s=10**9),
        tiers=TiersConfig((TierConfig(str(root / "disk"), name="disk"),)),
        digest_bytes_per_s=8 << 20,
        scrub_bytes_per_s=4 << 20,
    )


class Engine:
    """One manager and its load."""

    def __init__(self, root: Path) -> None:
        self.cache = CacheManager.open(LAYOUT, settings(root), root / "log", "shared")
        assert self.cache.pools is not None
        for name in GROUPS:
            self.cache.pools.storage(name).random_()
        self._random = random.Random(1)
        self._held: list[Sequence] = []
        self._waiting: list[Request] = []

    def turn(self) -> None:
        """A little load: new prompts, old ones, some suspended, some loaded from the tier."""
        if self._waiting:
            self._waiting = [wanted for wanted in self._waiting if not self._begins(wanted)]
            return
        number = self._random.randrange(60)
        wanted = request(f"text {number}", 20 + number * 7 % 150)
        with contextlib.suppress(CapacityError):
            self._serve(wanted, num_output=number % 3, suspends=number % 5 == 0)

    # what it is told

    def flip(self) -> None:
        """One bit of a sealed page changes; a request finds it."""
        self._serve(VICTIM)
        flip(self.cache, "c4", slot_of(self.cache, VICTIM, "c4"))
        self._serve(VICTIM)

    def dirty(self) -> None:
        """A sealed page of the index is written behind its seal; a lease keeps it here."""
        self._serve(INDEX_VICTIM)
        self._lease = self.cache.lease(self.cache.match(INDEX_VICTIM))
        self.cache.mark_dirty("c4.index", [slot_of(self.cache, INDEX_VICTIM, "c4.index")])

    def clean(self) -> None:
        """Its prefix is asked for: validation withdraws the page."""
        self._lease.release()
        self._serve(INDEX_VICTIM)

    def flood(self) -> None:
        """Sequences take every block and stay; more requests come than can begin."""
        while True:
            tokens = tokens_of(f"flood {len(self._held)}", 480)
            try:
                plan = self.cache.match(request("x", 8, tokens=tokens))
                self._held.append(self.cache.begin(plan))
            except CapacityError:
                break
        self._waiting = [request(f"waiting {number}", 480) for number in range(4)]

    def ebb(self) -> None:
        """They end, and those that wait begin."""
        for sequence in self._held:
            sequence.cancel()
        self._held.clear()

    def break_tier(self) -> None:
        """Every answer of the disk is an input/output error."""

        def fail(*_: Any, **__: Any) -> Any:
            raise StoreFault(Reason.STORE_FAILED, os.strerror(errno.EIO), is_outage=True)

        calls = ("put", "put_many", "read", "read_many")
        self._whole = {name: getattr(LocalStore, name) for name in calls}
        for name in self._whole:
            setattr(LocalStore, name, fail)

    def mend_tier(self) -> None:
        """It answers again."""
        for name, method in self._whole.items():
            setattr(LocalStore, name, method)

    def drift(self) -> None:
        """A sampled page is found to hold other values than computing gives."""
        self._serve(VICTIM)
        slot = slot_of(self.cache, VICTIM, "c4")
        self.cache.report_comparison(Comparison("c4", slot, 0, 4, 0.5, 0.9, 1e-3))

    def tamper(self) -> None:
        """A word of the tables is changed behind the log: the owner of no sequence's row."""
        self.cache.tables.holder_blocks[int(self.cache.arena[META_NUM_SEQUENCES]), -1] = 12345

    def untamper(self) -> None:
        """It is put right."""
        self.cache.tables.holder_blocks[int(self.cache.arena[META_NUM_SEQUENCES]), -1] = 0

    def poison(self) -> None:
        """The next sync of the log fails."""

        def fail(_: Any, __: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        System.fdatasync = fail  # type: ignore[method-assign, assignment]

    def close(self) -> None:
        """In order."""
        self.cache.close()

    def _begins(self, wanted: Request) -> bool:
        try:
            self.cache.begin(self.cache.match(wanted)).cancel()
        except (CapacityError, StaleLease):
            return False
        return True

    def _serve(self, wanted: Request, num_output: int = 0, suspends: bool = False) -> None:
        cache = self.cache
        sequence = cache.begin_when_ready(wanted, timeout_s=2.0)
        for end in (*sequence.captures, len(wanted.tokens)):
            if end > sequence.position:
                cache.reserve([sequence.id], [end - sequence.position]).commit()
        for token in range(num_output):
            cache.reserve([sequence.id], [1]).commit(tokens=[token])
        if not suspends:
            sequence.finish()
            return
        more: Tokens = np.append(wanted.tokens, [*range(num_output), 7]).astype(np.int32)
        cache.resume(sequence.suspend(), more).finish()


def read_commands(commands: queue.Queue[str]) -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    commands.put("close")


def main(root: Path) -> None:
    engine = Engine(root)
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read_commands, args=(commands,), daemon=True).start()
    print("ready", flush=True)
    while True:
        try:
            command = commands.get_nowait()
        except queue.Empty:
            engine.turn()
            time.sleep(PAUSE_S)
            continue
        try:
            getattr(engine, command)()
        except KvstrataError as error:
            print(f"{command} failed: {error}", flush=True)
            continue
        print(f"{command} done", flush=True)
        if command == "close":
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
