"""Flipped bytes in sealed pages: caught, named in the log, and computed again, never served."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager, Request
from kvstrata.core.events import EVENT_DTYPE, EventType, Reason, decode_payload
from kvstrata.core.states import PageState
from kvstrata.eventstore.log import read_events
from tests.face.support import Place, check_sums, hit, pages_in, request, serve

from .seven_groups import (
    GROUPS,
    HISTORY,
    OTHER,
    PAGE_BYTES,
    SHORT,
    STATES,
    WANTED,
    bytes_of,
    filled,
    flip,
    open_cache,
    row_of,
    slot_of,
)


@pytest.fixture
def cache(place: Place) -> Iterator[CacheManager]:
    with filled(place) as cache:
        yield cache


def events_of(place: Place, kind: EventType) -> list[tuple[Any, dict[str, Any]]]:
    events = np.concatenate([np.zeros(0, EVENT_DTYPE), *read_events(place.directory)])
    return [(event, decode_payload(event)) for event in events[events["type"] == kind]]


def compute(cache: CacheManager, wanted: Request) -> int:
    """Serve a request that decodes nothing; where it really resumed."""
    resumed = serve(cache, wanted)
    check_sums(cache)
    return resumed


@pytest.mark.parametrize("group", HISTORY)
@pytest.mark.parametrize(("block", "resumed"), [(0, 0), (2, 0), (3, 48), (4, 48)])
def test_a_bad_history_page(
    place: Place, cache: CacheManager, group: str, block: int, resumed: int
) -> None:
    slot = slot_of(cache, WANTED, group, block)
    _, generation, checksum = row_of(cache, group, slot)
    flip(cache, group, slot)
    assert hit(cache, WANTED) == (80, 80), "match reads no bytes"
    assert compute(cache, WANTED) == resumed
    cache.flush()
    ((event, payload),) = events_of(place, EventType.VALIDATION_FAILED)
    assert (event["group"], event["page"]) == (GROUPS.index(group), slot)
    assert event["reason"] == Reason.CHECKSUM_MISMATCH
    assert payload["expected"] == checksum % 2**64
    assert payload["found"] != payload["expected"]
    assert payload["position"] == (block + 1) * 16
    ((event, _),) = events_of(place, EventType.PAGE_QUARANTINED)
    assert (event["page"], event["generation"]) == (slot, generation)
    # Computed again, it is found again, and so is what hangs below it.
    assert hit(cache, WANTED) == (80, 80)
    assert compute(cache, WANTED) == 80
    assert compute(cache, OTHER) == 48


@pytest.mark.parametrize("group", STATES)
def test_a_bad_checkpoint_page(place: Place, cache: CacheManager, group: str) -> None:
    slot = slot_of(cache, WANTED, group)
    flip(cache, group, slot)
    assert compute(cache, WANTED) == 48
    cache.flush()
    ((event, payload),) = events_of(place, EventType.VALIDATION_FAILED)
    assert (event["group"], event["page"]) == (GROUPS.index(group), slot)
    assert payload["position"] == 80
    assert len(events_of(place, EventType.PAGE_QUARANTINED)) == 1
    assert compute(cache, WANTED) == 80, "the history below it was good, a new one was taken"


def test_every_unit_of_a_hit_is_looked_at(place: Place, cache: CacheManager) -> None:
    """Damage in several kinds at once is named all of it; both checkpoints bad: replayed."""
    damaged = [(HISTORY[0], 4), (HISTORY[1], 3), (STATES[-1], -1)]
    for group, block in damaged:
        flip(cache, group, slot_of(cache, WANTED, group, block))
    flip(cache, STATES[1], slot_of(cache, SHORT, STATES[1]))
    assert compute(cache, WANTED) == 48 - cache.layout.replay_tokens // 16 * 16 - 16
    cache.flush()
    named = {int(event["group"]) for event, _ in events_of(place, EventType.VALIDATION_FAILED)}
    assert named == {GROUPS.index(group) for group, _ in damaged} | {GROUPS.index(STATES[1])}


def test_never_does_not_notice(place: Place) -> None:
    """The control: without the check the bad pages are served."""
    with filled(place, verify_hits="never") as cache:
        for group in GROUPS:
            flip(cache, group, slot_of(cache, WANTED, group))
        assert compute(cache, WANTED) == 80
        cache.flush()
        assert not events_of(place, EventType.VALIDATION_FAILED)


def test_a_page_that_others_read_is_freed_with_the_last(cache: CacheManager) -> None:
    reader = cache.begin(cache.match(WANTED))
    assert reader.resumed_at == 80
    group, slot = HISTORY[0], slot_of(cache, WANTED, HISTORY[0], 4)
    flip(cache, group, slot)
    assert compute(cache, WANTED) == 48
    assert row_of(cache, group, slot)[0] == PageState.QUARANTINED
    assert not cache.writable(group, [slot])
    reader.finish()
    assert row_of(cache, group, slot)[0] == PageState.FREE
    check_sums(cache)


def test_a_page_that_changed_meanwhile_is_left_alone(cache: CacheManager) -> None:
    """A verdict about an old generation says nothing about the page now in its slot."""
    assert cache.pools is not None
    storage = cache._storage
    assert storage is not None
    plan = cache.match(WANTED)
    slot = slot_of(cache, WANTED, HISTORY[0], 4)
    flip(cache, HISTORY[0], slot)
    (bad,) = storage.bad_pages(plan.blocks[:, 0], np.zeros(0, dtype=np.int64))
    assert (bad.group, bad.slot) == (0, slot)
    cache.quarantine(bad)
    before = cache.digest()
    cache.quarantine(bad)
    assert cache.digest() == before
    while row_of(cache, HISTORY[0], slot)[0] != PageState.SEALED:
        serve(cache, request(f"more {cache.stats().last_seqno}", 90))
    before = cache.digest()
    cache.quarantine(bad)
    assert cache.digest() == before


def test_a_checkpoint_is_a_copy_and_so_is_what_begins_on_it(cache: CacheManager) -> None:
    """In every state group, byte by byte; and the sequence's own image is no one else's page."""
    assert cache.pools is not None
    wanted = request("copied", 50)
    sequence = cache.begin(cache.match(wanted))
    step = cache.reserve([sequence.id], [48])
    written = step.image_slots(0)[1]
    for name, slot in written.items():
        cache.pools.storage(name)[slot].random_()
    contents = bytes_of(cache, written)
    assert len(set(contents.values())) == len(STATES)
    step.commit()
    checkpoint = {name: slot_of(cache, wanted, name) for name in STATES}
    assert bytes_of(cache, checkpoint) == contents
    for name, slot in cache.image_slots(sequence).items():
        assert slot != checkpoint[name]
        assert cache.writable(name, [slot])
        assert not cache.writable(name, [checkpoint[name]])
        cache.pools.storage(name)[slot].zero_()
    second = cache.begin(cache.match(wanted))
    assert second.resumed_at == 48
    own = cache.image_slots(second)
    assert not set(own.items()) & (set(checkpoint.items()) | set(written.items()))
    assert bytes_of(cache, own) == contents


def crash(cache: CacheManager) -> None:
    """Leave the directory as a dead process would, its memory kept."""
    cache.flush()
    assert cache.log is not None
    cache.log.close(clean=False)


@pytest.mark.parametrize("how", ["crashed", "closed"])
@pytest.mark.parametrize("group", GROUPS)
def test_found_on_opening(place: Place, group: str, how: str) -> None:
    """Bytes that changed between two lives are found before anyone asks for them."""
    cache = filled(place)
    slot = slot_of(cache, WANTED, group)
    flip(cache, group, slot, byte=PAGE_BYTES[group] - 1, bit=128)
    sealed = {name: pages_in(cache, name)["sealed_idle"] for name in GROUPS}
    if how == "crashed":
        crash(cache)
    else:
        cache.close()
    with open_cache(place, verify_hits="never") as again:
        assert again.recovery is not None
        lost = again.recovery.pages_lost
        others = lost["below_a_bad_page"]
        if group in HISTORY:  # its other pages, its checkpoint, and those that nobody can reach
            assert others >= len(HISTORY) - 1 + len(STATES)
        else:
            assert others == len(STATES) - 1
        assert lost["checksum_mismatch"] == 1
        assert (lost["crashed"], lost["bytes_untrusted"]) == (0, 0)
        assert again.recovery.pages_kept == sum(sealed.values()) - 1 - others
        again.flush()
        ((event, _),) = events_of(place, EventType.VALIDATION_FAILED)
        assert (event["group"], event["page"]) == (GROUPS.index(group), slot)
        assert hit(again, WANTED) == (48, 64 if group in HISTORY else 80)
        assert hit(again, OTHER) == (48, 48)
        check_sums(again)


def test_any_single_bit(cache: CacheManager) -> None:
    """Wherever the bit is in the page."""
    storage = cache._storage
    assert storage is not None
    assert cache.pools is not None
    dice = np.random.default_rng(3)
    plan = cache.match(WANTED)
    blocks, images = plan.blocks[:, 0], np.array([plan.checkpoint[0]])
    assert storage.bad_pages(blocks, images) == []
    for _ in range(200):
        number = int(dice.integers(len(GROUPS)))
        group = GROUPS[number]
        slot = slot_of(cache, WANTED, group, int(dice.integers(5)))
        byte, bit = int(dice.integers(PAGE_BYTES[group])), 1 << int(dice.integers(8))
        flip(cache, group, slot, byte, bit)
        (bad,) = storage.bad_pages(blocks, images)
        assert (bad.group, bad.slot) == (number, slot)
        flip(cache, group, slot, byte, bit)
    assert storage.bad_pages(blocks, images) == []
