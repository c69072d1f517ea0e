"""Every fault a stored file can have is found, with a reason of its own."""

import os
import random
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kvstrata.core.events import Reason
from kvstrata.tiers.format import Fault, Header, ObjectId, Schema
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.store import StoreFault

from .support import (
    SCHEMA,
    block_id,
    checkpoint_id,
    load,
    make_object,
    path_of,
    put_object,
    reseal,
    run_in_child,
)

BOTH = [block_id(1), checkpoint_id(2)]
HEADER_BYTES = SCHEMA.header_bytes(False)
each_unit = pytest.mark.parametrize("identity", BOTH, ids=["block", "checkpoint"])


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    for identity in BOTH:
        assert put_object(store, identity)
        assert isinstance(load(store, identity), Header)
    return store


def fault(store: LocalStore, identity: ObjectId, schema: Schema = SCHEMA) -> Fault:
    """What loading finds, as a value, whoever finds it."""
    try:
        found = load(store, identity, schema)
    except StoreFault as error:
        return Fault(error.reason, 0, 0, 0, str(error))
    assert isinstance(found, Fault), "the fault was not found"
    return found


@contextmanager
def damaged(store: LocalStore, identity: ObjectId) -> Iterator[int]:
    """The object's file, opened for damage; whole again afterwards."""
    data = make_object(identity).data
    descriptor = os.open(path_of(store.root, identity), os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.ftruncate(descriptor, len(data))
        os.pwrite(descriptor, data, 0)
        os.close(descriptor)


def place_of(at: int, identity: ObjectId) -> tuple[Reason, int]:
    """Reason and group that damage to one byte must be reported with."""
    end = SCHEMA.header_bytes(identity.is_checkpoint)
    if at < end:
        return Reason.OBJECT_HEADER, 0
    for part in SCHEMA.parts(identity.is_checkpoint):
        end += part.page_bytes
        if at < end:
            return Reason.CHECKSUM_MISMATCH, part.group
    return Reason.OBJECT_TRAILER, 0


@each_unit
def test_a_flipped_bit_is_found_in_every_byte(store: LocalStore, identity: ObjectId) -> None:
    data = make_object(identity).data
    dice = random.Random(7)
    header_bytes = SCHEMA.header_bytes(identity.is_checkpoint)
    with damaged(store, identity) as descriptor:
        for at, byte in enumerate(data):
            in_page = header_bytes <= at < len(data) - 16
            for bit in [dice.randrange(8)] if in_page else range(8):
                os.pwrite(descriptor, bytes([byte ^ (1 << bit)]), at)
                found = fault(store, identity)
                assert (found.reason, found.group) == place_of(at, identity), (at, bit, found)
            os.pwrite(descriptor, data[at : at + 1], at)
    assert isinstance(load(store, identity), Header)


@each_unit
def test_a_file_cut_anywhere_is_found(store: LocalStore, identity: ObjectId) -> None:
    num_bytes = len(make_object(identity).data)
    with damaged(store, identity) as descriptor:
        for left in reversed(range(num_bytes)):
            os.ftruncate(descriptor, left)
            assert fault(store, identity).reason is Reason.OBJECT_TRUNCATED, left


@each_unit
def test_a_tail_of_zeros_is_found_wherever_it_begins(store: LocalStore, identity: ObjectId) -> None:
    """As a file system leaves it when size, but not data, survives a power loss."""
    num_bytes = len(make_object(identity).data)
    with damaged(store, identity) as descriptor:
        for begin in reversed(range(0, num_bytes, 16)):
            os.pwrite(descriptor, bytes(num_bytes - begin), begin)
            found = fault(store, identity)
            # The header is checked first, then the trailer, the pages last.
            in_header = begin < SCHEMA.header_bytes(identity.is_checkpoint)
            expected = Reason.OBJECT_HEADER if in_header else Reason.OBJECT_TRAILER
            assert found.reason is expected, begin


@each_unit
def test_a_page_of_zeros_is_found(store: LocalStore, identity: ObjectId) -> None:
    at = SCHEMA.header_bytes(identity.is_checkpoint)
    for part in SCHEMA.parts(identity.is_checkpoint):
        with damaged(store, identity) as descriptor:
            os.pwrite(descriptor, bytes(part.page_bytes), at)
            found = fault(store, identity)
            assert (found.reason, found.group) == (Reason.CHECKSUM_MISMATCH, part.group)
        at += part.page_bytes


def test_two_pages_in_each_other_s_place_are_found(store: LocalStore) -> None:
    whole = make_object(block_id(1))
    with damaged(store, block_id(1)) as descriptor:
        os.pwrite(descriptor, whole.pages[1] + whole.pages[0], HEADER_BYTES)
        assert fault(store, block_id(1)).reason is Reason.CHECKSUM_MISMATCH


@pytest.mark.parametrize("extra", [1, 16, 64, 4096])
def test_a_file_too_long_is_found(store: LocalStore, extra: int) -> None:
    with damaged(store, block_id(1)) as descriptor:
        os.pwrite(descriptor, b"x" * extra, len(make_object(block_id(1)).data))
        assert fault(store, block_id(1)).reason is Reason.OBJECT_TOO_LONG


def test_another_key_s_object_is_found(store: LocalStore) -> None:
    with damaged(store, block_id(1)) as descriptor:
        os.pwrite(descriptor, make_object(block_id(3)).data, 0)
        found = fault(store, block_id(1))
    assert found.reason is Reason.OBJECT_KEY
    assert found.expected != found.found


def test_a_checkpoint_in_a_block_s_place_is_found(tmp_path: Path) -> None:
    """Even where both have the same size and the same key."""
    schema = replace(SCHEMA, checkpoints=SCHEMA.blocks)
    block, checkpoint = block_id(1), checkpoint_id(1)
    store = LocalStore(tmp_path)
    store.put(schema.object_name(block), make_object(checkpoint, schema).parts)
    assert fault(store, block, schema).reason is Reason.OBJECT_KEY


OTHERS = {
    "dtype": (
        replace(SCHEMA, blocks=(SCHEMA.blocks[0], replace(SCHEMA.blocks[1], abi=b"f" * 16))),
        Reason.ABI_MISMATCH,
        1,
    ),
    "mapping": (
        replace(SCHEMA, blocks=(replace(SCHEMA.blocks[0], version=8), SCHEMA.blocks[1])),
        Reason.COMPRESSOR_VERSION,
        0,
    ),
    "layout": (replace(SCHEMA, layout=b"f" * 16), Reason.OBJECT_LAYOUT, 0),
    "block tokens": (replace(SCHEMA, block_tokens=64), Reason.OBJECT_LAYOUT, 0),
    "kind": (
        replace(SCHEMA, blocks=(SCHEMA.blocks[0], replace(SCHEMA.blocks[1], kind="TAIL"))),
        Reason.OBJECT_LAYOUT,
        1,
    ),
    "group": (
        replace(SCHEMA, blocks=(SCHEMA.blocks[0], replace(SCHEMA.blocks[1], group=5))),
        Reason.OBJECT_LAYOUT,
        1,
    ),
    "page bytes": (
        replace(
            SCHEMA,
            blocks=(
                replace(SCHEMA.blocks[0], page_bytes=64),
                replace(SCHEMA.blocks[1], page_bytes=192),
            ),
        ),
        Reason.OBJECT_LAYOUT,
        0,
    ),
    "state groups": (replace(SCHEMA, checkpoints=()), Reason.OBJECT_LAYOUT, 0),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_engine_s_object_is_found(store: LocalStore, what: str) -> None:
    """Whole, valid, and under our name: only its header tells that it is not ours."""
    schema, reason, group = OTHERS[what]
    with damaged(store, block_id(1)) as descriptor:
        os.pwrite(descriptor, make_object(block_id(1), schema).data, 0)
        found = fault(store, block_id(1))
    assert (found.reason, found.group) == (reason, group), found


def test_another_engine_s_object_has_another_name(store: LocalStore) -> None:
    for schema, _, _ in OTHERS.values():
        assert store.size(schema.object_name(block_id(1))) is None


def test_another_version_s_object_is_found(store: LocalStore) -> None:
    header = bytearray(make_object(block_id(1)).header)
    struct.pack_into("<I", header, 8, 2)
    sealed, trailer = reseal(bytes(header))
    with damaged(store, block_id(1)) as descriptor:
        os.pwrite(descriptor, sealed, 0)
        os.pwrite(descriptor, trailer, len(make_object(block_id(1)).data) - 16)
        found = fault(store, block_id(1))
    assert (found.reason, found.expected, found.found) == (Reason.OBJECT_VERSION, 1, 2)


def test_a_header_from_another_object_of_this_key_is_found(store: LocalStore) -> None:
    """Header and trailer of different writes: each is valid, the two do not belong together."""
    header = bytearray(make_object(block_id(1)).header)
    struct.pack_into("<Q", header, 72, 999)
    sealed, _ = reseal(bytes(header))
    with damaged(store, block_id(1)) as descriptor:
        os.pwrite(descriptor, sealed, 0)
        assert fault(store, block_id(1)).reason is Reason.OBJECT_TRAILER


def test_a_missing_file_is_found(store: LocalStore) -> None:
    assert fault(store, block_id(9)).reason is Reason.OBJECT_MISSING
    path_of(store.root, block_id(1)).unlink()
    assert fault(store, block_id(1)).reason is Reason.OBJECT_MISSING


@pytest.mark.parametrize("what", ["folder", "link", "pipe"])
def test_what_is_no_file_is_found_and_does_not_hang(store: LocalStore, what: str) -> None:
    path = path_of(store.root, block_id(1))
    data = path.read_bytes()
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        (store.root / "elsewhere").write_bytes(data)
        path.symlink_to(store.root / "elsewhere")
    assert fault(store, block_id(1)).reason is Reason.OBJECT_NOT_A_FILE
    name = SCHEMA.object_name(block_id(1))
    for call in (
        lambda: store.size(name),
        lambda: store.head_bytes(name, 8),
        lambda: put_object(store, block_id(1)),
    ):
        with pytest.raises(StoreFault) as caught:
            call()
        assert (caught.value.reason, caught.value.is_outage) == (Reason.OBJECT_NOT_A_FILE, False)
    assert [found.name for found in store.objects()] == [SCHEMA.object_name(checkpoint_id(2))]
    store.set_aside(name)
    assert put_object(store, block_id(1))


def test_a_file_as_the_namespace_s_folder_is_found(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "objects" / SCHEMA.namespace).write_text("not a folder")
    assert fault(store, block_id(1)).reason is Reason.OBJECT_NOT_A_FILE
    with pytest.raises(StoreFault) as caught:
        put_object(store, block_id(1))
    assert caught.value.reason is Reason.OBJECT_NOT_A_FILE


def test_a_file_of_another_user_is_found() -> None:
    """In a child that gave root's rights up, if this is root."""
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(Path(folder))
        put_object(store, block_id(1))
        path = path_of(store.root, block_id(1))
        if os.geteuid():
            path.chmod(0)
            path.parent.chmod(0o500)
        else:
            # The way there is open to everybody; the file itself is its owner's.
            for above in path.parents[: len(path.parents) - len(store.root.parents)]:
                above.chmod(0o755)
        # What a child that fails wrote is raised here; see run_in_child.
        run_in_child(lambda: read_as_nobody(store))
        assert list(store.objects()), "the object was not touched"


def read_as_nobody(store: LocalStore) -> None:
    if not os.geteuid():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    assert fault(store, block_id(1)).reason is Reason.OBJECT_FORBIDDEN
    path_of(store.root, block_id(1)).stat()  # it was the file that could not be opened
    with pytest.raises(StoreFault) as caught:
        put_object(store, block_id(9))
    assert (caught.value.reason, caught.value.is_outage) == (Reason.OBJECT_FORBIDDEN, False)
