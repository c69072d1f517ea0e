"""The events of a real log are what docs/events.md says: heads, payloads, zeros, whole calls."""

from typing import Any

import numpy as np
import pytest

from kvstrata import (
    AdmissionDenied,
    CacheManager,
    Comparison,
    Deferred,
    TierConfig,
    TiersConfig,
    abi_of,
)
from kvstrata.core.events import EVENT_DTYPE, LAST_OF_CALL, PAYLOADS, EventType, Reason
from kvstrata.core.quarantine import mark_dirty
from kvstrata.core.states import TRANSITIONS, PageState
from kvstrata.eventstore.log import read_events
from tests.eventstore.support import shared_corner
from tests.face.commanded import Source, carry_out, key_of
from tests.face.support import Place, check_sums, prefill, request, serve

Events = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def events() -> Events:
    """Every event of a log in which everything happened that can."""
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        place = Place(corner / "log", corner / "shared")
        first_life(place)
        second_life(place)
        lives_with_a_tier(place)
        return np.concatenate([np.zeros(0, EVENT_DTYPE), *read_events(place.directory)])


OBJECT_EVENTS = {EventType.OBJECT_STORED, EventType.OBJECT_REMOVED, EventType.OBJECT_FAILED}
"""What is said of one tier."""


def open_life(place: Place, pools: str, spill: str = "never") -> CacheManager:
    folder = TierConfig(str(place.directory.parent / "objects"))
    return place.open(pools, tiers=TiersConfig((folder,), spill=spill, objects=256))  # type: ignore[arg-type]


def lives_with_a_tier(place: Place) -> None:
    """What one life stored is loaded in the next, but for an object that was damaged meanwhile."""
    with open_life(place, "private", "seal") as cache:
        serve(cache, request("stored", 90))
        assert cache.settle_tiers()
    damaged = max((place.directory.parent / "objects").rglob("*.checkpoint"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with open_life(place, "private") as cache:
        cache.begin_when_ready(request("stored", 90)).finish()


def first_life(place: Place) -> None:
    cache = open_life(place, "shared")
    for number in range(12):
        serve(cache, request(f"served {number}", 90), num_output=20)
    running = [prefill(cache, request("twice", 60))]
    running.append(prefill(cache, request("served 11", 90)))
    twin = cache.begin(cache.match(request("twin", 40)))
    other = cache.begin(cache.match(request("twin", 40)))
    cache.reserve([twin.id, other.id], [40, 40]).commit()  # one of them is a duplicate
    twin.finish()
    other.finish()
    step = cache.reserve([running[0].id], [3])
    running[0].cancel()
    step.commit(tokens=[1, 2, 3])
    with cache.lease(cache.match(request("served 11", 90))):
        assert cache.pools is not None
        slot = int(cache.tables.blocks.pages[cache.match(request("served 10", 90)).blocks[0, 0], 0])
        cache.pools.storage("full")[slot, 0] ^= 1
        serve(cache, request("served 10", 90))
    everything_else(cache)
    cache.log_digest()
    cache.flush()
    check_sums(cache)
    assert cache.log is not None
    cache.log.close(clean=False)  # as a crash leaves it, one sequence running


def everything_else(cache: CacheManager) -> None:
    """What an engine says of itself, and what happens between requests."""
    sequence = prefill(cache, request("suspended", 40))
    resumed = cache.resume(sequence.suspend(), np.append(request("suspended", 40).tokens, 1))
    resumed.fork().finish()
    resumed.finish()
    parted = np.concatenate([request("served 11", 90).tokens[:20], np.arange(900, 970)])
    serve(cache, request("parted", tokens=parted))
    dirty = prefill(cache, request("dirty", 40))
    slot = int(cache.block_slots(dirty, "full")[0])  # the layout has no index to mark
    generation = cache.page_generation("full", slot)
    cache._call.run(mark_dirty, cache.arena, cache._call.ring, 0, slot, generation)
    dirty.finish()
    for group in cache.layout.groups:
        cache.register_abi(group.name, abi_of(cache.layout, group.name))
        cache.register_kernel(group.name, "reference", "1")
    cache.register_mapping("full", "")
    cache.seal_topology()
    cache.observe_compute(1000, 0.01)
    cache.scrub(1)
    upkeep_and_commands(cache)
    cache.complete(0xFFFF | 99 << 16)
    blocks = cache.stats().blocks["total"]
    with pytest.raises(AdmissionDenied):
        cache.begin(cache.match(request("never", max_new_tokens=16 * blocks)))
    most = 16 * blocks * 2 // 3
    holding = cache.begin(cache.match(request("holds", 20, max_new_tokens=most)))
    waits = request("waits", 20, max_new_tokens=most)
    with pytest.raises(Deferred):
        cache.begin(cache.match(waits))
    holding.finish()
    cache.begin(cache.match(waits)).finish()


def upkeep_and_commands(cache: CacheManager) -> None:
    cache.log_slice_digest()
    slot = cache.sealed_pages(request("served 9", 90), 2)["full"]
    assert cache.report_comparison(Comparison("full", slot, 0, 16, 0.5, 0.9, 0.1))
    source = Source()
    cache.follow_commands(source, poll_s=0.01)
    key = key_of(cache, request("served 8", 90), 1)
    assert carry_out(cache, source, "drop_prefix", key=key).outcome == "done"
    answer = carry_out(cache, source, "report_divergence", first_seqno=1, last_seqno=2, slice=0)
    assert answer.outcome == "done"


def second_life(place: Place) -> None:
    with open_life(place, "private") as cache:  # bytes lost
        serve(cache, request("served 1", 90))


def test_everything_happened(events: Events) -> None:
    """All types; of reasons, all but validation's and the tiers' many."""
    found = {EventType(int(code)) for code in np.unique(events["type"])}
    assert found == set(EventType)
    reasons = {Reason(int(code)) for code in np.unique(events["reason"])}
    assert {reason for reason in Reason if reason <= Reason.CHECKSUM_MISMATCH} <= reasons


def test_seqnos_and_times_ascend(events: Events) -> None:
    assert np.array_equal(events["seqno"], np.arange(1, len(events) + 1))
    assert np.all(np.diff(events["time_ns"].astype(np.int64)) >= 0)
    assert events["flags"][-1] & LAST_OF_CALL


def test_one_call_has_one_time(events: Events) -> None:
    """A cut between calls is where LAST_OF_CALL stands, and only there the time moves on."""
    inside = (events["flags"][:-1] & LAST_OF_CALL) == 0
    assert np.all(np.diff(events["time_ns"].astype(np.int64))[inside] == 0)


@pytest.mark.parametrize("kind", EventType, ids=lambda kind: kind.name)
def test_bytes_that_no_field_names_are_zero(events: Events, kind: EventType) -> None:
    rows = events[events["type"] == kind]
    raw = np.frombuffer(rows.tobytes(), dtype=np.uint8).reshape(-1, 64)[:, 32:]
    named = np.zeros(32, dtype=bool)
    for name, (part, offset, *_) in (PAYLOADS[kind].fields or {}).items():
        if not name.startswith("_"):
            named[offset : offset + part.itemsize] = True
    assert not raw[:, ~named].any()
    assert rows["tier"].any() == (kind in OBJECT_EVENTS)


def test_states_follow_the_table(events: Events) -> None:
    """A reader with the transition table alone can tell each page's state from the events."""
    states: dict[tuple[int, int], PageState] = {}
    generations: dict[tuple[int, int], int] = {}
    for event in events[events["type"] < 16]:
        page = int(event["group"]), int(event["page"])
        kind = EventType(int(event["type"]))
        after, _ = TRANSITIONS[states.get(page, PageState.FREE), kind]
        assert PageState(int(event["state"])) == after
        states[page] = after
        expected = generations.get(page, 0) + (kind == EventType.PAGE_RESERVED)
        assert event["generation"] == expected
        generations[page] = expected
    assert set(states.values()) <= {PageState.FREE, PageState.SEALED}
    notes = events[events["type"] >= 16]
    assert not notes["state"].any()
    assert not notes["generation"].any()
