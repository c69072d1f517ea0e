"""The tally counts every event once, however they come."""

import collections
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstrata import ConfigError
from kvstrata.core.events import (
    EVENT_DTYPE,
    FOR_LOAD,
    LAST_OF_CALL,
    EventType,
    Reason,
    decode_payload,
)
from kvstrata.core.planner import Rates
from kvstrata.eventstore.history.histogram import Histogram
from kvstrata.eventstore.history.memory import TallyMemory
from kvstrata.eventstore.history.tally import Tally
from kvstrata.eventstore.log import read_events
from tests.eventstore.support import shared_corner
from tests.face.support import LAYOUT, Place, config

from .following import SMALL_SEGMENTS, agree, follow, followed, leave, values, work

VERBS = ("work", "step", "flush", "kill", "crash", "close")
PARAMS = config().arena_params(LAYOUT)
Events = npt.NDArray[np.void]


@pytest.fixture(scope="module")
def history() -> Events:
    """Events of three lives, two of them ended by crashes."""
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        place = Place(corner / "log", corner / "shared")
        for life in range(3):
            cache = place.open(rates=Rates(1000, 10**9))
            work(cache, 40, 40 * life)
            leave(cache)
        place.open().close()
        return np.concatenate([*read_events(place.directory)])


def tally_of(events: Events, cuts: list[int]) -> Tally:
    tally = Tally(LAYOUT, PARAMS)
    for first, last in zip([0, *cuts], [*cuts, len(events)], strict=True):
        tally.add(events[first:last])
    return tally


def test_counts_by_type_group_and_reason(history: Events) -> None:
    tally = tally_of(history, [])
    expected: collections.Counter[tuple[int, int, int]] = collections.Counter()
    for event in history:
        of_page = event["type"] < 16 or event["type"] == EventType.VALIDATION_FAILED
        group = int(event["group"]) if of_page else len(LAYOUT.groups)
        expected[int(event["type"]), group, int(event["reason"])] += 1
    found = {place: int(n) for place, n in np.ndenumerate(tally.counts) if n}
    assert found == dict(expected)
    assert len(expected) > 20
    assert tally.since_seqno == 1
    assert tally.seqno == len(history)


def test_totals_and_ages_are_those_of_a_plain_loop(history: Events) -> None:
    tally = tally_of(history, [])
    resumed = [decode_payload(e) for e in history if e["type"] == EventType.REQUEST_RESUMED]
    begun = [e for e in history if e["type"] == EventType.SEQUENCE_BEGUN]
    assert len(resumed) == sum(not e["flags"] & FOR_LOAD for e in begun)
    totals = tally.totals
    assert totals["requests"] == len(resumed)
    assert totals["prompt_tokens"] == sum(int(one["prompt"]) for one in resumed)
    sources = ("device_tokens", "tier_tokens", "suspended_tokens", "computed_tokens")
    assert sum(totals[name] for name in sources) == totals["prompt_tokens"]
    assert tally.histograms["resume_length"].count == len(resumed)
    assert tally.histograms["resume_length"].sum == sum(int(one["resume_at"]) for one in resumed)
    assert totals["starts"] == 4
    assert totals["crashes"] == 3
    ages, gaps = plain_ages(history)
    assert tally.histograms["eviction_age"].steps == sum(ages) > 0
    assert tally.histograms["eviction_age"].count == len(ages)
    assert tally.histograms["reuse_gap"].steps == sum(gaps) > 0
    assert tally.histograms["reuse_gap"].count == len(gaps)


def plain_ages(history: Events) -> tuple[list[int], list[int]]:
    key_of: dict[int, int] = {}
    used: dict[int, int] = {}
    ages, gaps = [], []
    for event in history:
        kind, now_ns, group = (int(event[name]) for name in ("type", "time_ns", "group"))
        if kind == EventType.PAGE_SEALED and group == 0:
            key_of[int(event["d"]) & 0xFFFF_FFFF] = int(event["a"])
            used[int(event["a"])] = now_ns
        elif kind in (EventType.PAGE_FREED, EventType.PAGE_LOST) and group == 0:
            key = key_of.pop(int(event["b"]) & 0xFFFF_FFFF, None)
            if key is not None and event["reason"] == Reason.EVICTED:
                ages.append(now_ns - used[key])
        elif kind == EventType.LEASE_GRANTED:
            if history["type"][int(event["seqno"])] == EventType.REQUEST_RESUMED:
                gaps.append(now_ns - used[int(event["a"])])
            used[int(event["a"])] = now_ns
    return ages, gaps


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_same_however_events_are_cut(history: Events, data: st.DataObject) -> None:
    ends = np.flatnonzero(history["flags"] & LAST_OF_CALL)[:-1] + 1
    cuts = data.draw(st.lists(st.sampled_from(ends.tolist()), max_size=12, unique=True))
    whole, cut = tally_of(history, []), tally_of(history, sorted(cuts))
    assert values(cut) == values(whole)
    assert str(cut.state()[0]) == str(whole.state()[0])


def test_every_event_once_and_in_order(history: Events) -> None:
    tally = tally_of(history[:100], [])
    for wrong in (history[99:], history[101:]):
        with pytest.raises(ConfigError, match="in order"):
            tally.add(wrong)
    tally.add(history[100:100])
    tally.add(history[100:])
    assert values(tally) == values(tally_of(history, []))


def test_memory_keeps_all_of_it(history: Events, tmp_path: Path) -> None:
    half = len(history) // 2
    tally, memory = tally_of(history[:half], []), TallyMemory(tmp_path / "tally")
    assert not memory.load(Tally(LAYOUT, PARAMS), "log")
    memory.save(tally, "log")
    again = Tally(LAYOUT, PARAMS)
    assert not memory.load(again, "another log")
    assert memory.load(again, "log")
    again.add(history[half:])
    assert values(again) == values(tally_of(history, []))
    for damaged in (b"", b"\0" * 100, (tmp_path / "tally").read_bytes()[:-40]):
        (tmp_path / "tally").write_bytes(damaged)
        assert not memory.load(Tally(LAYOUT, PARAMS), "log")
    with pytest.raises(ConfigError, match="existing folder"):
        TallyMemory(tmp_path / "none" / "tally")


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.sampled_from(["work", "step", "flush", "kill", "crash", "close"]),
        min_size=6,
        max_size=14,
    )
)
def test_counters_never_fall(verbs: list[str]) -> None:
    """Whatever engine and follower go through, what a reader saw is never taken back."""
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        place, memory = Place(corner / "log", corner / "shared"), corner / "tally"
        cache = place.open(log=SMALL_SEGMENTS)
        follower = followed(place, memory)
        seen: dict[str, int] = {}
        number = 0
        for verb in verbs:
            if verb == "work":
                work(cache, 6, number)
                number += 6
            elif verb == "flush":
                cache.flush()
            elif verb == "kill":  # without a word: its memory is what it kept last
                follower = followed(place, memory)
            elif verb == "close":
                follower.close()
                follower = followed(place, memory)
            elif verb == "crash":
                leave(cache)
                cache = place.open(log=SMALL_SEGMENTS)
            follower.step(200 if verb == "step" else 1 << 16)
            if follower.position().replayed:
                now = values(follower.tally)
                assert all(now[name] >= value for name, value in seen.items())
                assert min(now.values(), default=0) >= 0
                seen = now
        agree(follower, cache)
        with follow(place) as fresh:
            agree(fresh, cache)
            assert values(fresh.tally) == values(follower.tally)
        follower.close()
        cache.close()


def test_a_histogram_puts_bounds_below() -> None:
    histogram = Histogram((1.0, 2.0), 0.5)
    histogram.observe(np.array([0, 1, 2, 3, 4, 5], dtype=np.int64))
    assert histogram.counts.tolist() == [3, 2, 1]
    assert (histogram.sum, histogram.count) == (7.5, 6)
    for bounds in ((), (2.0, 1.0), (1.0, 1.0)):
        with pytest.raises(ConfigError, match="ascending"):
            Histogram(bounds)


def test_events_of_types_to_come_are_counted() -> None:
    events = np.zeros(2, dtype=EVENT_DTYPE)
    events["seqno"], events["type"], events["group"] = [1, 2], 63, 200
    tally = tally_of(events, [])
    assert int(tally.counts[63, len(LAYOUT.groups)].sum()) == 2
