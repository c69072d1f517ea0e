"""Events from memory are those of the log, wherever memory ends."""

from __future__ import annotations

import random

import numpy as np

from kvstrata.api.server.logreader import Found, Wanted, read_backwards, read_forwards
from kvstrata.api.server.recent import RareEvents, RecentEvents
from kvstrata.core.events import EventType
from tests.api.server.support import Served
from tests.face.support import request, serve

SCAN = 1_000_000


def same(one: Found, other: Found) -> None:
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
                same(told, read_forwards(directory, after, last, wanted, limit, SCAN))
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
            same(found, read_backwards(directory, before, Wanted(types), limit, SCAN))
