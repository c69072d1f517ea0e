"""Events from memory are those of the log, wherever memory ends."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kvstrata.api.server.logreader import Found, Wanted, read_backwards, read_forwards
from kvstrata.api.server.recent import RareEvents, RecentEvents
from kvstrata.core.events import EVENT_DTYPE, EventType
from kvstrata.eventstore.history.follower import Position
from tests.api.server.support import Served
from tests.face.support import request, serve

SCAN = 1_000_000


def check_same(one: Found, other: Found) -> None:
    assert np.array_equal(one.events, other.events)
    assert np.abs(one.wall_ns - other.wall_ns).max(initial=0) < 50_000_000
    assert one.first_seqno == other.first_seqno


def test_what_memory_tells_is_what_the_log_tells(api: Served) -> None:
    directory, dice = api.place.directory, random.Random(1)
    recent = RecentEvents(api.follower, most=150)
    sealed = Wanted((int(EventType.PAGE_SEALED),))
    from_memory = 0
    for number in range(12):
        serve(api.cache, request(f"text {number}", 30 + 7 * number))
        api.catch_up()
        last = api.follower.position().seqno
        for _ in range(5):
            after, limit = dice.randrange(last + 1), dice.choice((1, 3, 1000))
            for wanted in (Wanted(), sealed):
                told = recent.forwards(after, last, wanted, limit, SCAN)
                check_same(told, read_forwards(directory, after, last, wanted, limit, SCAN))
                shown = int(told.events["seqno"][-1]) if len(told.events) else after
                passed = read_forwards(directory, shown, told.next_seqno, wanted, 1, SCAN)
                assert told.next_seqno >= shown
                assert not len(passed.events)  # nothing is left out
            from_memory += after + 1 >= recent._heard.since
    assert recent._heard.since > 1
    assert from_memory > 5


def test_rare_events_go_back_beyond_what_was_heard(api: Served) -> None:
    directory = api.place.directory
    types = (int(EventType.SEQUENCE_BEGUN),)
    rare = RareEvents(api.follower, types, most=6)
    for number in range(20):
        serve(api.cache, request(f"text {number}", 40))
        api.catch_up()
        before = api.follower.position().seqno + 1
        for limit in (1, 4, 6):
            found = rare.newest(limit, SCAN)
            check_same(found, read_backwards(directory, before, Wanted(types), limit, SCAN))
            assert min(limit, number + 1) <= len(found.events) <= limit


class ToldLater:
    """A follower that has applied events that its listeners were not told of."""

    def __init__(self, directory: Path, epoch: str) -> None:
        self.directory = directory
        self.now = Position(epoch=epoch, event_time_ns=1)
        self.tell: Callable[[npt.NDArray[np.void]], None]

    def position(self) -> Position:
        return self.now

    def add_listener(self, listener: Callable[[npt.NDArray[np.void]], None]) -> None:
        self.tell = listener

    def apply(self, last: int) -> None:
        self.now = dataclasses.replace(self.now, seqno=last)


def made_up(first: int, last: int) -> npt.NDArray[np.void]:
    events = np.zeros(last - first + 1, dtype=EVENT_DTYPE)
    events["seqno"] = np.arange(first, last + 1)
    return events


def test_an_event_that_was_applied_and_not_told_yet_is_not_left_out(api: Served) -> None:
    follower = ToldLater(api.place.directory, "one")
    recent = RecentEvents(cast(Any, follower))
    follower.tell(made_up(1, 5))
    follower.apply(9)
    found = recent.forwards(3, 9, Wanted(), 100, SCAN)
    assert found.events["seqno"].tolist() == [4, 5]
    assert found.next_seqno == 5
    assert recent.forwards(5, 9, Wanted(), 100, SCAN).next_seqno == 5
    follower.tell(made_up(6, 9))
    found = recent.forwards(5, 9, Wanted(), 100, SCAN)
    assert found.events["seqno"].tolist() == [6, 7, 8, 9]


def test_a_follower_that_begins_anew_tells_nothing_twice(api: Served) -> None:
    follower = ToldLater(api.place.directory, "one")
    recent = RecentEvents(cast(Any, follower))
    rare = RareEvents(cast(Any, follower), (0,), most=100)
    follower.tell(made_up(1, 5))
    follower.tell(made_up(3, 4))  # from a snapshot on
    follower.tell(made_up(5, 8))
    found = recent.forwards(0, 8, Wanted(), 100, SCAN)
    assert found.events["seqno"].tolist() == list(range(1, 9))
    assert rare.newest(4, SCAN).events["seqno"].tolist() == [8, 7, 6, 5]


def test_memory_begins_anew_behind_events_that_were_pruned(api: Served) -> None:
    follower = ToldLater(api.place.directory, "one")
    recent = RecentEvents(cast(Any, follower))
    follower.tell(made_up(1, 5))
    follower.tell(made_up(900_001, 900_004))
    assert recent._heard.since == 900_001
    found = recent.forwards(900_001, 900_004, Wanted(), 100, SCAN)
    assert found.events["seqno"].tolist() == [900_002, 900_003, 900_004]
