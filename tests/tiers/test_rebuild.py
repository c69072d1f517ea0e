from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstrata.core.events import Reason
from kvstrata.tiers.catalogue import Catalogue, Entry
from kvstrata.tiers.checking import check_object
from kvstrata.tiers.fields import Fault
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.rebuild import rebuild
from kvstrata.tiers.store import Store, StoredObject, StoreFault

from .objects import SCHEMA, MemoryStore, key_of, name_of, put

BLOCK_BYTES = SCHEMA.object_bytes(False)
CHECKPOINT_BYTES = SCHEMA.object_bytes(True)


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    found = Catalogue.open(f"sqlite:///{tmp_path / 'catalogue.sqlite'}")
    yield found
    found.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def listed(store: Store, name: str) -> StoredObject:
    (found,) = (stored for stored in store.objects() if stored.name == name)
    return found


def fault_of(store: Store, name: str) -> Fault:
    fault = check_object(store, listed(store, name))
    assert fault is not None
    return fault


def test_rows_say_what_the_headers_say(catalogue: Catalogue, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "disk")
    block = put(store, 5, position=640)
    checkpoint = put(store, 6, is_checkpoint=True, position=768)
    found = rebuild(store, catalogue, "disk", owner="rebuilt")
    assert found == (2, BLOCK_BYTES + CHECKPOINT_BYTES, 0, ())
    at_s = {stored.name: stored.modified_s for stored in store.objects()}
    expected = [
        Entry(SCHEMA.namespace, block, False, key_of(5), key_of(4), 640, BLOCK_BYTES, "disk",
              "rebuilt", at_s[block], at_s[block]),
        Entry(SCHEMA.namespace, checkpoint, True, key_of(6), bytes(16), 768, CHECKPOINT_BYTES,
              "disk", "rebuilt", at_s[checkpoint], at_s[checkpoint]),
    ]  # fmt: skip
    assert sorted(catalogue.entries("disk")) == sorted(expected)


def test_known_rows_keep_their_last_use_and_lost_ones_go(
    catalogue: Catalogue, store: MemoryStore
) -> None:
    kept, lost = put(store, 1), put(store, 2)
    rebuild(store, catalogue, "disk", owner="first")
    rebuild(store, catalogue, "remote")
    catalogue.touch("disk", [kept], 2e9)
    del store.held[lost]
    assert rebuild(store, catalogue, "disk", owner="second") == (1, BLOCK_BYTES, 1, ())
    (row,) = catalogue.entries("disk")
    assert (row.name, row.owner, row.used_s) == (kept, "first", 2e9)
    assert {row.name for row in catalogue.entries("remote")} == {kept, lost}


def test_an_object_that_is_not_readable_loses_its_row_and_is_named(
    catalogue: Catalogue, store: MemoryStore
) -> None:
    good, bad, cut, hidden = (put(store, number) for number in range(4))
    rebuild(store, catalogue, "disk")
    store.held[bad] = b"\0" * BLOCK_BYTES
    store.held[cut] = store.held[cut][:-1]
    store.refuses[hidden] = StoreFault(Reason.OBJECT_FORBIDDEN, "mode 000")
    found = rebuild(store, catalogue, "disk")
    assert (found.num_objects, found.num_removed) == (1, 3)
    assert {name: fault.reason for name, fault in found.faults} == {
        bad: Reason.OBJECT_HEADER,
        cut: Reason.OBJECT_TRUNCATED,
        hidden: Reason.OBJECT_FORBIDDEN,
    }
    assert [row.name for row in catalogue.entries("disk")] == [good]
    assert set(store.held) == {good, bad, cut, hidden}


def test_one_that_goes_meanwhile_is_no_fault(catalogue: Catalogue, store: MemoryStore) -> None:
    going, staying = put(store, 1), put(store, 2)
    store.refuses[going] = StoreFault(Reason.OBJECT_MISSING, "gone")
    found = rebuild(store, catalogue, "disk")
    assert (found.num_objects, found.faults) == (1, ())
    assert [row.name for row in catalogue.entries("disk")] == [staying]


def test_a_store_that_does_not_answer_ends_it(catalogue: Catalogue, store: MemoryStore) -> None:
    name = put(store, 1)
    rebuild(store, catalogue, "disk")
    store.refuses[name] = StoreFault(Reason.STORE_TIMEOUT, "no answer", is_outage=True)
    with pytest.raises(StoreFault, match="no answer"):
        rebuild(store, catalogue, "disk")
    assert [row.name for row in catalogue.entries("disk")] == [name]


def test_progress_is_told_after_every_object(catalogue: Catalogue, store: MemoryStore) -> None:
    for number in range(3):
        put(store, number)
    told: list[tuple[int, int]] = []
    rebuild(store, catalogue, "disk", progress=lambda *done: told.append(done))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_many_rows_come_in_several_batches(catalogue: Catalogue, store: MemoryStore) -> None:
    for number in range(1001):
        put(store, number)
    assert rebuild(store, catalogue, "disk").num_objects == 1001
    assert {row.name for row in catalogue.entries("disk")} == set(store.held)


@pytest.mark.parametrize("is_checkpoint", [False, True])
def test_every_flipped_byte_of_an_object_is_found(store: MemoryStore, is_checkpoint: bool) -> None:
    name = put(store, 1, is_checkpoint)
    assert check_object(store, listed(store, name)) is None
    whole = store.held[name]
    for place in range(len(whole)):
        store.held[name] = whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
        assert check_object(store, listed(store, name)) is not None, place


def test_a_fault_names_its_reason_and_its_group(store: MemoryStore) -> None:
    name = put(store, 1)
    whole = store.held[name]
    pages_at = SCHEMA.header_bytes(False)

    def damaged(place: int) -> Fault:
        store.held[name] = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        return fault_of(store, name)

    assert damaged(0).reason is Reason.OBJECT_HEADER
    first, second = damaged(pages_at), damaged(pages_at + 192)
    assert (first.reason, first.group) == (Reason.CHECKSUM_MISMATCH, 0)
    assert (second.reason, second.group) == (Reason.CHECKSUM_MISMATCH, 1)
    assert first.expected != first.found
    assert damaged(len(whole) - 1).reason is Reason.OBJECT_TRAILER
    store.held[name] = whole[:-20]
    assert fault_of(store, name).reason is Reason.OBJECT_TRUNCATED
    store.held[name] = whole + b"\0"
    fault = fault_of(store, name)
    assert (fault.reason, fault.found - fault.expected) == (Reason.OBJECT_TOO_LONG, 1)


def test_another_object_under_this_name_is_found(store: MemoryStore) -> None:
    name, other = put(store, 1), put(store, 2)
    store.held[name] = store.held[other]
    fault = fault_of(store, name)
    assert fault.reason is Reason.OBJECT_KEY
    assert key_of(2).hex() in fault.detail
    checkpoint = put(store, 3, is_checkpoint=True)
    store.held[name_of(3)] = store.held[checkpoint]
    assert fault_of(store, name_of(3)).reason is Reason.OBJECT_KEY
    elsewhere = "0" * 32 + name[32:]
    store.held[elsewhere] = store.held[other]
    assert fault_of(store, elsewhere).reason is Reason.OBJECT_KEY
