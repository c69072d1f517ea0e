"""kill -9 at 30 moments while pages are spilled and loaded: all or nothing, and nothing wrong.

Nine places are steered (the folder's calls, the catalogue, the log), the rest is random. Where
each kill fell is printed.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kvstrata import CacheManager
from kvstrata.core.abi import abi_of
from kvstrata.core.arena import Tables, open_tables
from kvstrata.core.events import EventType, Reason
from kvstrata.core.keys import words_key
from kvstrata.core.words import (
    CHECKPOINT_TIERS,
    STORED_KEY_0,
    STORED_KEY_1,
    STORED_TIERS,
    TIERS_MASK,
)
from kvstrata.eventstore.log import open_replayed, read_events
from kvstrata.fetching import Fetcher
from kvstrata.shelves import Shelves
from kvstrata.tiers.checking import check_object
from kvstrata.tiers.format import TRAILER_BYTES, ObjectId
from kvstrata.tiers.local import LocalStore
from kvstrata.writing import Writer
from tests.eventstore.support import shared_corner
from tests.eventstore.test_kill import acknowledged_by, in_child
from tests.system.seven_groups import LAYOUT

from . import spilling
from .spilling import BLOCK, TEXTS, Pools, Where
from .watched import temporaries

IN_STORE = ("pwritev", "fdatasync", "link", "sync_directory", "unlink", "preadv")
AT_CALL = {
    "catalogue": (Shelves, "catalogue"),
    "log of a spill": (Writer, "_ended"),
    "end of a load": (Fetcher, "end"),
}
PLACES = (*IN_STORE, *AT_CALL)


@pytest.fixture
def root() -> Iterator[Path]:
    with shared_corner() as corner:
        yield corner


def one_life(where: Where, life: int, place: str, dice: random.Random) -> int:
    """Have a child work until it is killed; the last seqno it was told is durable."""
    countdown = dice.randint(1, 40)

    def run(report: int) -> None:
        if place in IN_STORE:
            spilling.die_in_store(place, countdown * (5 if place == "pwritev" else 1))
        elif place in AT_CALL:
            spilling.die_before(*AT_CALL[place], countdown // 3 + 1)
        spilling.work(where, life, report)

    pid, pipe = in_child(run)
    if place == "any":
        time.sleep(dice.uniform(0.5, 1.5))
        os.kill(pid, signal.SIGKILL)
    return acknowledged_by(pid, pipe)


def known_places() -> dict[bytes, tuple[int, int]]:
    """Text and position by key, of all that may ever be stored."""
    return {
        words_key(*key): (text, (index + 1) * BLOCK)
        for text in range(len(TEXTS))
        for index, key in enumerate(spilling.request(text).keys(BLOCK).tolist())
    }


def stored_in(tables: Tables) -> set[ObjectId]:
    """The objects that a log says are stored."""
    found = set()
    for row in tables.stored[1:]:
        key = words_key(int(row[STORED_KEY_0]), int(row[STORED_KEY_1]))
        for shift in (0, CHECKPOINT_TIERS):
            if int(row[STORED_TIERS]) >> shift & TIERS_MASK:
                found.add(ObjectId(key, shift != 0))
    return found


def check_folder(where: Where) -> tuple[int, int]:
    """Whole objects alone have names, and what dead writers left is collected; both numbers."""
    store = LocalStore(where.tier)
    listed = list(store.objects())
    files = [path for path in (where.tier / "objects").rglob("*") if path.is_file()]
    assert len(listed) == len(files)
    for stored in listed:
        assert check_object(store, stored) is None, stored
    assert not list((where.tier / "quarantine").iterdir())
    left = len(temporaries(store))
    assert store.collect(older_than_s=0) == left
    assert not temporaries(store)
    return len(listed), left


def check_objects(cache: CacheManager, where: Where, stored: set[ObjectId]) -> None:
    """Every object that the log named holds what was written under its key."""
    assert cache._tiering is not None
    schema = cache._tiering.objects.schema()
    store, places = LocalStore(where.tier), known_places()
    for identity in stored:
        pages = spilling.pages_of(*places[identity.key], identity.is_checkpoint)
        sizes = [schema.header_bytes(identity.is_checkpoint), *map(len, pages), TRAILER_BYTES]
        found = spilling.read_object(store, schema.object_name(identity), sizes)
        for expected, page in zip(pages, found[1:-1], strict=True):
            assert np.array_equal(expected, page), (places[identity.key], identity)


def furthest_stored(text: int, stored: set[ObjectId]) -> int:
    """The furthest stored checkpoint of a text, all blocks before it stored too."""
    best = 0
    keys = [words_key(*key) for key in spilling.request(text).keys(BLOCK).tolist()]
    for index, key in enumerate(keys[: (len(TEXTS[text]) - 1) // BLOCK]):
        if ObjectId(key, False) not in stored:
            break
        if ObjectId(key, True) in stored:
            best = (index + 1) * BLOCK
    return best


def check_hits(cache: CacheManager, stored: set[ObjectId], texts: list[int]) -> int:
    """Every text resumes where the log says it can, on bytes that are right; tokens resumed."""
    total = 0
    for text in texts:
        expected = furthest_stored(text, stored)
        sequence = cache.begin_when_ready(spilling.request(text), spilling.WAIT_S)
        assert sequence.resumed_at >= expected, f"text {text}"
        assert not spilling.wrong_pages(cache, sequence, text)
        total += sequence.resumed_at
        sequence.cancel()
    return total


def check_restart(where: Where, life: int, acknowledged: int) -> tuple[int, int, int]:
    """Open what a killed child left; temporaries found, loads that came whole, tokens resumed."""
    num_objects, left = check_folder(where)
    replayed, report = open_replayed(where.log, where.shared)
    assert report.last_seqno >= acknowledged
    stored = stored_in(open_tables(replayed))
    assert len(stored) <= num_objects
    with where.open() as cache:
        assert cache.recovery is not None
        assert stored_in(cache.tables) == stored, "what is stored outlives the process"
        cache.check_integrity()
        check_objects(cache, where, stored)
        resumed = check_hits(cache, stored, spilling.texts_of(life))
        cache.check_integrity()
        tiers = cache.tier_stats()
        assert tiers is not None
        assert set(tiers.loads) <= {"begun", "whole", "joined"}
        assert tiers.tiers["disk"]["faults"] == {}
        return left, tiers.loads.get("whole", 0), resumed


def lives(pools: Pools) -> list[str]:
    """Where each life ends: 22 with pools that die with the process, 8 with such that do not."""
    if pools == "shared":
        return ["any", "link", "log of a spill", "preadv", "any", "end of a load", "any", "pwritev"]
    return [*PLACES, *PLACES, *["any"] * 4]


def evictions_and_loads(where: Where) -> tuple[int, int]:
    """Pages that were evicted, and loads that ended, in all lives."""
    events = np.concatenate(list(read_events(where.log)))
    freed = events[events["type"] == EventType.PAGE_FREED]
    evicted = np.count_nonzero(freed["reason"] == Reason.EVICTED)
    return evicted, np.count_nonzero(events["type"] == EventType.LOAD_ENDED)


@pytest.mark.slow
@pytest.mark.parametrize("pools", ["private", "shared"])
def test_kills(root: Path, pools: Pools) -> None:
    where = Where(root, pools)
    dice = random.Random(41)
    wanted = lives(pools)
    dice.shuffle(wanted)
    found = np.zeros(3, np.int64)
    for number, place in enumerate(wanted):
        acknowledged = one_life(where, number, place, dice)
        now = check_restart(where, number, acknowledged)
        print(f"kill {number}: {place}; temporaries, loads, tokens resumed: {now}")
        found += now
    evicted, loads = evictions_and_loads(where)
    print(f"evicted pages, ended loads: {evicted}, {loads}")
    assert evicted > 100 * len(wanted)
    assert loads > 2 * len(wanted)
    assert found[0] >= wanted.count("pwritev") + wanted.count("link")
    assert found[1] > len(wanted) * (3 if pools == "private" else 1)
    assert found[2] > len(wanted) * spilling.AT_ONCE * BLOCK


def test_what_survived_unstored_is_stored_after_the_restart(root: Path) -> None:
    """Pages outlive the process in shared memory; the spills that it had not begun do not."""
    where = Where(root, "shared")
    with where.open(spill="never") as cache:
        spilling.serve(cache, 0, 200, 10)
        spilling.serve(cache, 1, 90, 0)
        assert cache.settle_tiers()
        assert not stored_in(cache.tables)
    with where.open() as cache:
        assert cache.settle_tiers()
        stored = stored_in(cache.tables)
        assert (
            len([one for one in stored if not one.is_checkpoint]) == 200 // BLOCK + 1 + 90 // BLOCK
        )
        assert furthest_stored(0, stored) == 208
        assert furthest_stored(1, stored) == 80
        check_objects(cache, where, stored)


def test_an_engine_that_registers_late_finds_what_survived_stored_too(root: Path) -> None:
    """Until it does, nobody can say what the pages are; then they are looked at again."""
    where = Where(root, "shared")
    group = LAYOUT.groups[0].name
    abi = abi_of(LAYOUT, group, kernel="of another engine", kernel_version="7")
    with where.open(spill="never") as cache:
        cache.register_abi(group, abi)
        spilling.serve(cache, 0, 200, 10)
    with where.open() as cache:
        assert cache.settle_tiers()
        assert furthest_stored(0, stored_in(cache.tables)) == 0
        cache.register_abi(group, abi)
        spilling.serve(cache, 1, 20, 0)
        assert cache.settle_tiers()
        assert furthest_stored(0, stored_in(cache.tables)) == 208
