"""Many files synced in one call: all of them, or an error; and without the kernel's queue."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvstrata.tiers import syncing
from kvstrata.tiers.syncing import SyncQueues

from .support import run_in_child


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    flags = os.O_CREAT | os.O_WRONLY
    opened = [os.open(tmp_path / str(number), flags) for number in range(150)]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


@contextmanager
def told() -> Iterator[dict[str, list[int]]]:
    """What is synced: how many files the kernel took together, and which were synced alone."""
    seen: dict[str, list[int]] = {"together": [], "alone": []}
    call, fdatasync = syncing._call, os.fdatasync

    def calling(which: int, *arguments: Any) -> int:
        taken = call(which, *arguments)
        if which == syncing._SUBMIT and taken > 0:
            seen["together"].append(taken)
        return taken

    def alone(descriptor: int) -> None:
        fdatasync(descriptor)
        seen["alone"].append(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(syncing, "_call", calling)
        patch.setattr(os, "fdatasync", alone)
        yield seen


@pytest.fixture
def queues() -> Iterator[SyncQueues]:
    made = SyncQueues()
    yield made
    made.close()


def test_more_files_than_a_queue_takes_are_synced(queues: SyncQueues, files: list[int]) -> None:
    with told() as synced:
        for count in (0, 1, 2, 150):
            queues.sync(files[:count], data_only=True)
    assert synced["together"] == [2, 64, 64, 22]
    assert synced["alone"] == [files[0]]


def test_folders_are_synced(queues: SyncQueues, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    with told() as synced:
        queues.sync([folder, folder], data_only=False)
    os.close(folder)
    assert synced == {"together": [2], "alone": []}


@pytest.mark.parametrize("has_queue", [True, False])
def test_a_file_that_cannot_be_synced_is_told(
    queues: SyncQueues, files: list[int], has_queue: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_queue:
        monkeypatch.setattr(syncing, "_syscall", lambda: None)
    reading, writing = os.pipe()
    for bad, error in ((reading, errno.EINVAL), (1 << 20, errno.EBADF)):
        with pytest.raises(OSError, match=os.strerror(error)) as caught:
            queues.sync([files[0], bad, files[1]], data_only=True)
        assert caught.value.errno == error
    queues.sync(files[:2], data_only=True)
    os.close(reading)
    os.close(writing)


def test_a_queue_is_used_again(queues: SyncQueues, files: list[int]) -> None:
    for _ in range(3):
        queues.sync(files[:9], data_only=True)
    assert len(queues._idle) <= 1


def test_a_forked_child_syncs_without_the_queue(queues: SyncQueues, files: list[int]) -> None:
    queues.sync(files[:9], data_only=True)

    def in_child() -> None:
        with told() as synced:
            queues.sync(files[:9], data_only=True)
        assert synced == {"together": [], "alone": files[:9]}

    run_in_child(in_child)
