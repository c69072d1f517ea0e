"""A folder whose disk is full, fails or is gone: every fault is told and leaves nothing behind."""

import errno
import os
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import Reason
from kvstrata.eventstore.log.formats import Buffer
from kvstrata.tiers.format import Header
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.local_files import Files
from kvstrata.tiers.store import StoreFault

from .support import (
    SCHEMA,
    block_id,
    checkpoint_id,
    load,
    path_of,
    put_object,
    run_in_child,
)
from .watched import WatchedFiles, faulty, temporaries, watched_store

NAME = SCHEMA.object_name(block_id(1))


@pytest.fixture
def files() -> WatchedFiles:
    return WatchedFiles()


@pytest.fixture
def store(tmp_path: Path, files: WatchedFiles) -> LocalStore:
    return watched_store(tmp_path, files)


def test_a_write_of_nothing_is_an_error_not_a_loop(store: LocalStore) -> None:
    class Stuck(Files):
        def pwritev(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
            return 0

    stuck = LocalStore(store.root, Stuck())
    assert faulty(lambda: put_object(stuck, block_id(1))).reason is Reason.STORE_FAILED


WRITE_FAILURES = [
    (errno.ENOSPC, Reason.STORE_FULL, True),
    (errno.EDQUOT, Reason.STORE_FULL, True),
    (errno.EIO, Reason.STORE_FAILED, True),
    (errno.EROFS, Reason.STORE_FAILED, True),
    (errno.ETIMEDOUT, Reason.STORE_TIMEOUT, True),
    (errno.EACCES, Reason.OBJECT_FORBIDDEN, False),
]


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "link"])
@pytest.mark.parametrize(("error", "reason", "is_outage"), WRITE_FAILURES)
def test_a_failed_write_leaves_nothing(
    store: LocalStore, files: WatchedFiles, call: str, error: int, reason: Reason, is_outage: bool
) -> None:
    files.at_most_bytes = 100
    files.fail(call, error)
    fault = faulty(lambda: put_object(store, block_id(1)))
    assert (fault.reason, fault.is_outage) == (reason, is_outage)
    assert NAME in str(fault)
    assert not temporaries(store)
    assert store.size(NAME) is None
    files.hook = lambda call: None
    assert put_object(store, block_id(1))


def test_a_disk_that_is_full_in_mid_write(store: LocalStore, files: WatchedFiles) -> None:
    files.at_most_bytes = 100
    left = iter([True, True, False])

    def hook(call: str) -> None:
        if call == "pwritev" and not next(left):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.hook = hook
    fault = faulty(lambda: put_object(store, block_id(1)))
    assert (fault.reason, fault.is_outage) == (Reason.STORE_FULL, True)
    assert not temporaries(store)
    assert store.size(NAME) is None


def test_a_limit_on_the_size_of_files_counts_as_full(store: LocalStore) -> None:
    """No injection: the kernel itself stops the write in its middle."""

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        fault = faulty(lambda: put_object(store, block_id(1)))
        assert (fault.reason, fault.is_outage) == (Reason.STORE_FULL, True)

    run_in_child(write)
    assert not temporaries(store)
    assert store.size(NAME) is None


def test_a_sync_that_fails_after_the_name_is_told(store: LocalStore, files: WatchedFiles) -> None:
    put_object(store, checkpoint_id(1))  # the folders are there and durable
    assert path_of(store.root, checkpoint_id(1)).parent == path_of(store.root, block_id(1)).parent
    files.fail("sync_directory", errno.EIO)
    assert faulty(lambda: put_object(store, block_id(1))).reason is Reason.STORE_FAILED
    files.hook = lambda call: None
    assert isinstance(load(store, block_id(1)), Header), "whole, though perhaps not durable"
    assert not temporaries(store)


READ_FAILURES = [
    (errno.EIO, Reason.OBJECT_UNREADABLE, True),
    (errno.ESTALE, Reason.OBJECT_UNREADABLE, True),
    (errno.ETIMEDOUT, Reason.STORE_TIMEOUT, True),
    (errno.EACCES, Reason.OBJECT_FORBIDDEN, False),
]


@pytest.mark.parametrize(("error", "reason", "is_outage"), READ_FAILURES)
def test_a_failed_read_is_told(
    store: LocalStore, files: WatchedFiles, error: int, reason: Reason, is_outage: bool
) -> None:
    put_object(store, block_id(1))
    files.fail("preadv", error)
    for call in (lambda: load(store, block_id(1)), lambda: store.head_bytes(NAME, 8)):
        fault = faulty(call)
        assert (fault.reason, fault.is_outage) == (reason, is_outage)


def test_a_file_that_shrinks_while_it_is_read(store: LocalStore, files: WatchedFiles) -> None:
    put_object(store, block_id(1))
    path = path_of(store.root, block_id(1))
    files.hook = lambda call: os.truncate(path, 100) if call == "preadv" else None
    assert faulty(lambda: load(store, block_id(1))).reason is Reason.OBJECT_TRUNCATED


def test_descriptors_are_closed_whatever_happens(store: LocalStore, files: WatchedFiles) -> None:
    put_object(store, block_id(1))
    before = len(os.listdir("/proc/self/fd"))
    for call in ("pwritev", "preadv", "fdatasync", "link", "unlink", "sync_directory"):
        files.fail(call, errno.EIO)
        for work in (
            lambda: put_object(store, block_id(2)),
            lambda: load(store, block_id(1)),
            lambda: load(store, block_id(3)),
        ):
            try:
                work()
            except StoreFault:
                continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_store_s_folder_gone_is_an_outage_for_writers(store: LocalStore) -> None:
    (store.root / "temporary").rmdir()
    fault = faulty(lambda: put_object(store, block_id(1)))
    assert (fault.reason, fault.is_outage) == (Reason.STORE_FAILED, True)


def test_a_bad_object_that_cannot_be_set_aside_is_told(store: LocalStore) -> None:
    put_object(store, block_id(1))
    (store.root / "quarantine").rmdir()
    assert faulty(lambda: store.set_aside(NAME)).reason is Reason.STORE_FAILED


def test_folders_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="expected a folder"):
            LocalStore(root)
