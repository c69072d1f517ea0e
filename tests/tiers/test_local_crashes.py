"""A folder whose writers die or race: an object is there whole or not at all."""

import errno
import os
import random
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from kvstrata.tiers.format import Header
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.local_files import Files

from .support import (
    SCHEMA,
    block_id,
    checkpoint_id,
    fork,
    join,
    load,
    make_object,
    put_object,
)
from .watched import WatchedFiles, temporaries, watched_store

NAME = SCHEMA.object_name(block_id(1))


@pytest.fixture
def files() -> WatchedFiles:
    return WatchedFiles()


@pytest.fixture
def store(tmp_path: Path, files: WatchedFiles) -> LocalStore:
    return watched_store(tmp_path, files)


CALLS = ["pwritev", "fdatasync", "link", "sync_directory", "unlink"]


def put_some(store: LocalStore, numbers: Iterable[int]) -> list[bool]:
    """Put blocks as one batch; which of them were written."""
    blocks = [block_id(number) for number in numbers]
    names = [SCHEMA.object_name(block) for block in blocks]
    written: list[bool] = store.put_many(names, [make_object(b).parts for b in blocks]).tolist()
    return written


@pytest.mark.parametrize("call", CALLS)
def test_a_writer_killed_at_any_call_leaves_all_or_nothing(
    store: LocalStore, files: WatchedFiles, call: str
) -> None:
    put_object(store, checkpoint_id(1))  # the folders are there
    files.at_most_bytes = 100
    left = iter(range(3))

    def hook(name: str) -> None:
        if name == call and (name != "pwritev" or next(left) == 2):
            os.kill(os.getpid(), signal.SIGKILL)

    files.hook = hook
    assert join(fork(lambda: put_object(store, block_id(1)) and None)) == -signal.SIGKILL
    files.hook = lambda name: None
    has_name = CALLS.index(call) > CALLS.index("link")
    assert store.size(NAME) == (len(make_object(block_id(1)).data) if has_name else None)
    assert len(temporaries(store)) == 1, "the dead writer's"
    assert store.collect(older_than_s=60) == 0, "too young"
    assert store.collect(older_than_s=0) == 1
    assert not temporaries(store)
    assert put_object(store, block_id(1)) is not has_name
    assert isinstance(load(store, block_id(1)), Header)


@pytest.mark.parametrize("countdown", range(4))
@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "link", "unlink"])
def test_a_writer_killed_in_a_batch_leaves_whole_objects_and_temporaries(
    store: LocalStore, files: WatchedFiles, call: str, countdown: int
) -> None:
    put_object(store, checkpoint_id(1))  # the folders are there
    left = iter(range(10))

    def hook(name: str) -> None:
        if name == call and next(left) == countdown:
            os.kill(os.getpid(), signal.SIGKILL)

    files.hook = hook
    assert join(fork(lambda: put_some(store, range(4)) and None)) == -signal.SIGKILL
    files.hook = lambda name: None
    # All are written, then synced, then named, then their temporaries go.
    num_named = {"link": countdown, "unlink": 4}.get(call, 0)
    num_begun = countdown + 1 if call == "pwritev" else 4
    num_gone = countdown if call == "unlink" else 0
    is_named = [store.size(SCHEMA.object_name(block_id(number))) is not None for number in range(4)]
    assert is_named == [number < num_named for number in range(4)]
    for number in range(num_named):
        assert isinstance(load(store, block_id(number)), Header)
    assert store.collect(older_than_s=0) == num_begun - num_gone
    assert put_some(store, range(4)) == [not here for here in is_named]


def test_in_a_batch_all_are_durable_before_the_first_has_its_name(
    store: LocalStore, files: WatchedFiles
) -> None:
    put_object(store, checkpoint_id(1))
    files.calls.clear()
    assert put_some(store, range(3)) == [True] * 3
    calls = [call for call, _ in files.calls]
    assert calls == ["pwritev"] * 3 + ["fdatasync"] * 3 + ["link"] * 3 + ["unlink"] * 3


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "link"])
def test_what_fails_in_a_batch_is_left_to_be_put_alone(
    store: LocalStore, files: WatchedFiles, call: str
) -> None:
    put_object(store, checkpoint_id(1))
    left = iter(range(10))

    def hook(name: str) -> None:
        if name == call and next(left) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    files.hook = hook
    # Of files synced together it is not known which of them are not.
    others = call != "fdatasync"
    assert put_some(store, range(3)) == [others, False, others]
    assert not temporaries(store)
    assert put_object(store, block_id(1))


def test_a_batch_leaves_what_is_there_or_claimed_to_be_put_alone(store: LocalStore) -> None:
    put_object(store, block_id(1))
    assert put_some(store, range(3)) == [True, False, True]
    other = LocalStore(store.root)
    with other.claim(SCHEMA.object_name(block_id(4)), 0.0) as is_claimed:
        assert is_claimed
        assert put_some(store, [4]) == [False]
    assert put_some(store, [4]) == [True]


def test_a_writer_killed_at_random_leaves_whole_objects_only(store: LocalStore) -> None:
    dice = random.Random(11)
    quiet = LocalStore(store.root)
    quiet.is_memory = True  # no syncs, so that kills fall into writes and links

    def write() -> None:
        for number in range(0, 100_000, 4):
            put_object(quiet, block_id(number))
            put_some(quiet, range(number + 1, number + 4))

    for _ in range(8):
        pid = fork(write)
        time.sleep(dice.uniform(0.02, 0.1))
        os.kill(pid, signal.SIGKILL)
        assert join(pid) == -signal.SIGKILL
    found = [stored.name for stored in store.objects()]
    names = {SCHEMA.object_name(block_id(number)): number for number in range(len(found) + 1)}
    assert len(found) > 8
    for name in found:
        assert isinstance(load(store, block_id(names[name])), Header)
    store.collect(older_than_s=0)
    assert not temporaries(store)


def test_a_live_writer_s_temporary_is_left_alone(store: LocalStore, files: WatchedFiles) -> None:
    collected = []
    other = LocalStore(store.root)
    files.hook = lambda call: collected.append(other.collect(0)) if call == "link" else None
    assert put_object(store, block_id(1))
    assert collected == [0]


def test_a_collector_between_open_and_lock_costs_only_a_second_try(store: LocalStore) -> None:
    other = LocalStore(store.root)

    class Unlucky(Files):
        opened = 0

        def open(self, path: Path, flags: int) -> int:
            descriptor = super().open(path, flags)
            if path.parent.name == "temporary":
                Unlucky.opened += 1
                if Unlucky.opened == 1:
                    assert other.collect(older_than_s=-1) == 1
            return descriptor

    unlucky = LocalStore(store.root, Unlucky())
    assert put_object(unlucky, block_id(1))
    assert Unlucky.opened == 2
    assert isinstance(load(store, block_id(1)), Header)


def test_collecting_passes_over_what_is_not_ours(store: LocalStore) -> None:
    (store.root / "temporary" / "folder").mkdir()
    (store.root / "temporary" / "link").symlink_to(store.root / "temporary" / "nowhere")
    os.mkfifo(store.root / "temporary" / "pipe")
    assert store.collect(older_than_s=0) == 0
    assert len(temporaries(store)) == 3


def test_two_processes_store_the_same_objects(store: LocalStore) -> None:
    """Each object is stored by exactly one of them, and both end with all of them there."""
    reading, writing = os.pipe()

    def write() -> None:
        mine = sum(put_object(store, block_id(number)) for number in range(100))
        os.write(writing, mine.to_bytes(4, "little"))

    pids = [fork(write), fork(write)]
    assert [join(pid) for pid in pids] == [0, 0]
    counts = [int.from_bytes(os.read(reading, 4), "little") for _ in pids]
    os.close(reading)
    os.close(writing)
    assert sum(counts) == 100
    assert all(isinstance(load(store, block_id(number)), Header) for number in range(100))
    assert not temporaries(store)


def test_the_slower_of_two_writers_leaves_the_faster_s_object(
    store: LocalStore, files: WatchedFiles
) -> None:
    other = LocalStore(store.root)
    won = []
    files.hook = lambda call: won.append(put_object(other, block_id(1))) if call == "link" else None
    assert not put_object(store, block_id(1))
    assert won == [True]
    assert not temporaries(store)


def test_a_reader_sees_nothing_or_all(store: LocalStore) -> None:
    done = threading.Event()
    numbers = range(200)
    seen: list[int | None] = []

    def watch() -> None:
        while not done.is_set():
            seen.extend(store.size(SCHEMA.object_name(block_id(number))) for number in numbers)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in numbers:
        put_object(store, block_id(number))
    done.set()
    watcher.join()
    assert set(seen) <= {None, len(make_object(block_id(1)).data)}
