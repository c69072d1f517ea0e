"""A folder as a store: durable in the right order, listings, quarantine, claims, URLs."""

import errno
import os
import random
import resource
import shutil
import signal
import stat
import threading
import time
from pathlib import Path

import pytest

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import Reason
from kvstrata.tiers.format import Header
from kvstrata.tiers.local import QUARANTINE_KEPT, LocalStore
from kvstrata.tiers.store import open_store

from .support import (
    SCHEMA,
    block_id,
    buffers_of,
    checkpoint_id,
    fork,
    join,
    load,
    make_object,
    path_of,
    put_object,
    run_in_child,
)
from .watched import WatchedFiles, faulty, watched_store

NAME = SCHEMA.object_name(block_id(1))
MEMORY = Path("/dev/shm")


@pytest.fixture
def files() -> WatchedFiles:
    return WatchedFiles()


@pytest.fixture
def store(tmp_path: Path, files: WatchedFiles) -> LocalStore:
    return watched_store(tmp_path, files)


def test_folders_and_files_are_their_owner_s_alone(store: LocalStore) -> None:
    put_object(store, block_id(1))
    with store.claim(NAME, 0):
        pass
    for path in [store.root, *store.root.rglob("*")]:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_data_is_durable_before_the_name_and_the_name_before_the_return(
    store: LocalStore, files: WatchedFiles
) -> None:
    put_object(store, block_id(1))
    folder = path_of(store.root, block_id(1)).parent
    assert files.calls == [
        ("sync_directory", "objects"),
        ("sync_directory", SCHEMA.namespace),
        ("pwritev", ""),
        ("fdatasync", ""),
        ("link", ""),
        ("sync_directory", folder.name),
        ("unlink", ""),
    ]


def test_one_writev_and_one_preadv_move_an_object(store: LocalStore, files: WatchedFiles) -> None:
    put_object(store, block_id(1))
    load(store, block_id(1))
    moves = [call for call, _ in files.calls if call in ("pwritev", "preadv")]
    assert moves == ["pwritev", "preadv"]


def test_an_object_that_is_there_is_made_durable_but_not_written(
    store: LocalStore, files: WatchedFiles
) -> None:
    put_object(store, block_id(1))
    files.calls.clear()
    assert not put_object(store, block_id(1))
    folder = path_of(store.root, block_id(1)).parent
    assert files.calls == [("sync_directory", folder.name)]


@pytest.mark.skipif(not MEMORY.is_dir(), reason="no tmpfs at /dev/shm")
def test_a_tmpfs_is_not_synced(files: WatchedFiles) -> None:
    root = MEMORY / f"kvstrata-test-{os.getpid()}-{time.time_ns()}"
    store = LocalStore(root, files)
    try:
        assert store.is_memory
        put_object(store, block_id(1))
        assert isinstance(load(store, block_id(1)), Header)
        synced = [call for call, _ in files.calls if call in ("fdatasync", "sync_directory")]
        assert not synced
    finally:
        for path in sorted(root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        root.rmdir()


@pytest.mark.parametrize("at_most", [1, 7, 64, 191])
def test_short_reads_and_writes_are_carried_on(
    store: LocalStore, files: WatchedFiles, at_most: int
) -> None:
    files.at_most_bytes = at_most
    assert put_object(store, block_id(1))
    assert isinstance(load(store, block_id(1)), Header)
    assert path_of(store.root, block_id(1)).read_bytes() == make_object(block_id(1)).data


def test_more_parts_than_the_kernel_takes_at_once(store: LocalStore) -> None:
    data = random.Random(3).randbytes(3000)
    assert store.put(NAME, [memoryview(data)[at : at + 1] for at in range(3000)])
    found = bytearray(3000)
    store.read(NAME, [memoryview(found)[at : at + 1] for at in range(3000)])
    assert found == data


def test_a_folder_removed_by_a_clean_up_is_made_again(
    store: LocalStore, files: WatchedFiles
) -> None:
    folder = path_of(store.root, block_id(1)).parent
    put_object(store, block_id(1))
    assert store.delete(NAME)
    shutil.rmtree(folder.parent)
    assert put_object(store, block_id(1))
    store.delete(NAME)
    files.hook = lambda call: folder.rmdir() if call == "fdatasync" else None
    assert put_object(store, block_id(1))
    assert isinstance(load(store, block_id(1)), Header)


def test_a_folder_made_again_by_another_process_is_synced_again(
    store: LocalStore, files: WatchedFiles
) -> None:
    put_object(store, block_id(1))
    store.delete(NAME)
    files.calls.clear()
    tries = iter(["lost", "found"])

    def hook(call: str) -> None:
        if call == "link" and next(tries) == "lost":
            raise FileNotFoundError(errno.ENOENT, "as if the folder had gone and come back")

    files.hook = hook
    assert put_object(store, block_id(1))
    after = files.calls[files.calls.index(("link", "")) :]
    assert ("sync_directory", SCHEMA.namespace) in after


def test_listings_pass_over_strangers(store: LocalStore) -> None:
    put_object(store, block_id(1))
    folder = path_of(store.root, block_id(1)).parent
    (store.root / "objects" / "lost+found").mkdir()
    (store.root / "objects" / "README").write_text("")
    (store.root / "objects" / SCHEMA.namespace / "zz").mkdir()
    (store.root / "objects" / SCHEMA.namespace / "notes").write_text("")
    (folder / ".nfs0001").write_text("")
    (folder / os.fsdecode(b"\xff\xfe.block")).write_text("")
    (folder / (block_id(7).key.hex() + ".block")).write_text("in the wrong folder")
    (folder / (folder.name + "0" * 30 + ".block")).mkdir()
    assert [found.name for found in store.objects()] == [NAME]
    assert [found.name for found in store.objects(SCHEMA.namespace)] == [NAME]
    assert list(store.objects("0" * 32)) == []


def test_an_object_deleted_while_it_is_listed(store: LocalStore) -> None:
    for identity in (block_id(1), checkpoint_id(1)):
        put_object(store, identity)
    listing = store.objects()
    assert next(listing).name == NAME
    store.delete(SCHEMA.object_name(checkpoint_id(1)))
    assert list(listing) == []


def test_bad_objects_do_not_pile_up(store: LocalStore) -> None:
    for _ in range(QUARANTINE_KEPT + 3):
        put_object(store, block_id(1))
        store.set_aside(NAME)
    kept = sorted((store.root / "quarantine").iterdir())
    assert len(kept) == QUARANTINE_KEPT
    assert all(path.name.endswith(NAME.replace("/", ".")) for path in kept)
    assert kept[-1].read_bytes() == make_object(block_id(1)).data


def test_a_claim_is_held_against_threads_and_processes(store: LocalStore) -> None:
    other = LocalStore(store.root)
    with store.claim(NAME, 0) as mine:
        assert mine
        with other.claim(NAME, 0) as again:
            assert not again
        with other.claim(SCHEMA.object_name(block_id(2)), 0) as different:
            assert different

        def ask() -> None:
            begun_s = time.monotonic()
            with LocalStore(store.root).claim(NAME, 0.1) as theirs:
                assert not theirs
            assert 0.1 <= time.monotonic() - begun_s < 5

        run_in_child(ask)
    with other.claim(NAME, 0) as free:
        assert free


def test_a_claim_waits_for_its_holder(store: LocalStore) -> None:
    held, results = threading.Event(), []

    def hold() -> None:
        with store.claim(NAME, 0) as mine:
            results.append(mine)
            held.set()
            time.sleep(0.1)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with store.claim(NAME, 30) as mine:
        results.append(mine)
    holder.join()
    assert results == [True, True]


def test_a_dead_holder_s_claim_is_free(store: LocalStore) -> None:
    def die_holding() -> None:
        with store.claim(NAME, 0) as mine:
            assert mine
            os.kill(os.getpid(), signal.SIGKILL)

    assert join(fork(die_holding)) == -signal.SIGKILL
    with store.claim(NAME, 0) as mine:
        assert mine


def test_putting_needs_no_claim(store: LocalStore) -> None:
    with store.claim(NAME, 0):
        assert put_object(store, block_id(1))


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spaced = tmp_path / "with space"
    for url in (
        str(spaced),
        spaced.as_uri(),
        f"file://localhost{spaced.as_uri()[7:]}",
        "with space",
    ):
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.url == spaced.as_uri()
    assert open_store(store.url).url == store.url


@pytest.mark.parametrize(
    "url", ["", "file://elsewhere/folder", "http://host/folder", "gs://bucket", "s3:///x", "s3://"]
)
def test_bad_urls_are_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="expected"):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


def test_reading_into_parts_of_another_size(store: LocalStore) -> None:
    put_object(store, block_id(1))
    parts = buffers_of(SCHEMA, is_checkpoint=False)
    assert faulty(lambda: store.read(NAME, parts[:-1])).reason is Reason.OBJECT_TOO_LONG
    longer = [*parts, memoryview(bytearray(1))]
    assert faulty(lambda: store.read(NAME, longer)).reason is Reason.OBJECT_TRUNCATED


def test_a_batch_keeps_few_files_and_folders_open(store: LocalStore) -> None:
    """Others want descriptors too; where there are none, folders are synced one by one."""
    names = [SCHEMA.object_name(block_id(number)) for number in range(200)]
    objects = [[memoryview(name.encode())] for name in names]
    put_object(store, block_id(999))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(int(number) for number in os.listdir("/proc/self/fd"))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] <= last:  # no holes: what is free is what lies above
            held.append(os.open(os.devnull, os.O_RDONLY))
        # 64 folders with claims and temporaries, and what else an object takes.
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 140, before[1]))
        assert store.put_many(names, objects).all()
        for spare in (140, 4):
            resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + spare, before[1]))
            store.settle(names)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)
