"""Power loss at any moment of any history: what was acknowledged stays, nothing is invented."""

import random
import shutil

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstrata.core.ring import RING_DURABLE
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.fsck import fsck
from kvstrata.eventstore.log.lock import DirectoryLock
from kvstrata.eventstore.log.opening import Opened, open_directory
from kvstrata.eventstore.log.projection import Words

from .power import Recording
from .support import (
    ARENA_WORDS,
    Bench,
    fake_apply,
    fake_projection,
    make_call,
    put_in_ring,
    shared_corner,
)

# Mostly calls, so that histories span several segments.
CALLS = st.tuples(st.just("call"), st.integers(1, 16))
ACTIONS = st.one_of(
    CALLS,
    CALLS,
    CALLS,
    st.tuples(st.just("drain"), st.just(0)),
    st.tuples(st.just("sync"), st.just(0)),
    st.tuples(st.just("snapshot"), st.just(0)),
)
LIVES = st.lists(st.lists(ACTIONS, min_size=10, max_size=30), min_size=1, max_size=3)


class Life:
    """One life of an engine: its log is driven call by call, on a recording machine."""

    def __init__(self, bench: Bench, number: int, history: Words) -> None:
        self.paths = LogPaths(bench.directory)
        self.number = number
        self.history = history
        bench.directory.mkdir(parents=True, exist_ok=True)
        self.system = Recording(bench.directory, boot=number)
        self.paths.make(self.system)
        config = bench.config(ring_events=64, segment_bytes=8192)  # a few calls a segment
        lock = DirectoryLock(self.paths)
        try:
            self.opened: Opened = open_directory(self.system, self.paths, config, fake_projection())
        finally:
            lock.release()
        self.acknowledge(len(history))

    def acknowledge(self, seqno: int) -> None:
        self.system.note("acknowledged", seqno)

    def run(self, actions: list[tuple[str, int]]) -> None:
        sink, cursors = self.opened.sink, self.opened.cursors
        for name, number in actions:
            if name == "call":
                if cursors.head + number - cursors.drained > cursors.capacity:
                    sink.drain(cursors.head)
                call = make_call(cursors.head + 1, number, salt=self.number << 20)
                self.history = np.concatenate([self.history, call])
                put_in_ring(self.opened.ring.words, call)
                fake_apply(self.opened.arena, call)
                self.system.note("published", cursors.head)
            elif name == "drain":
                sink.drain(cursors.head)
            elif name == "sync":
                sink.drain(cursors.head)
                sink.sync()
            elif name == "snapshot" and cursors.durable == cursors.head > 0:
                self.opened.maintenance.store(self.opened.arena, cursors.head)
            self.acknowledge(int(self.opened.ring.words[RING_DURABLE]))

    def end(self) -> None:
        self.opened.sink.close()

    def known_at(self, num_calls: int, name: str) -> int:
        """The highest seqno acknowledged, or published, before a moment."""
        seqnos = [
            int(str(arguments[0]))
            for call, arguments in self.system.calls[:num_calls]
            if call == name
        ]
        return max(seqnos, default=0)


def state_of(history: Words) -> Words:
    arena = np.zeros(ARENA_WORDS, dtype=np.int64)
    fake_apply(arena, history)
    return arena


def lose_power(life: Life, bench: Bench, dice: random.Random, base: int) -> int:
    """Fail the power at a random moment; returns that moment. The directory is what is left."""
    moment = dice.randint(base, len(life.system.calls))
    left = bench.directory.parent / "left"
    life.system.after(moment, dice, left)
    shutil.rmtree(bench.directory)
    left.rename(bench.directory)
    if dice.random() < 0.5:
        bench.forget_ring()
    return moment


@settings(max_examples=60, deadline=None)
@given(LIVES, st.integers(0, 2**32))
def test_recovery_keeps_what_was_acknowledged_and_invents_nothing(
    lives: list[list[tuple[str, int]]], seed: int
) -> None:
    dice = random.Random(seed)
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        bench = Bench(corner / "log", corner / "shared")
        history: Words = np.zeros((0, 8), dtype=np.int64)
        for number, actions in enumerate(lives, start=1):
            life = Life(bench, number, history)
            opened_at = len(life.system.calls)
            life.run(actions)
            life.end()
            moment = lose_power(life, bench, dice, opened_at)
            acknowledged = life.known_at(moment, "acknowledged")
            after = Life(bench, number + 100, life.history)
            report = after.opened.report
            after.end()
            published = max(acknowledged, life.known_at(moment, "published"))
            assert acknowledged <= report.last_seqno <= published
            history = life.history[: report.last_seqno]
            assert np.array_equal(after.opened.arena, state_of(history))
            assert not report.bytes_trusted or report.last_seqno == 0
            assert fsck(bench.directory, False, bench.shared).is_sound
            # The power fails again while that recovery runs.
            lose_power(after, bench, dice, 0)
            again = Life(bench, number + 200, history)
            again.end()
            assert again.opened.report.last_seqno == len(history)
            assert np.array_equal(again.opened.arena, state_of(history))
