from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstrata.core.errors import ConfigError, StoreError
from kvstrata.core.events import Reason
from kvstrata.tiers.catalogue import Catalogue, Entry
from kvstrata.tiers.garbage import collect_garbage, find_garbage
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.rebuild import rebuild
from kvstrata.tiers.retention import Chosen, Retention, choose, decide, enforce, trim
from kvstrata.tiers.store import Store, StoreFault

from .catalogue_contract import entry, keys
from .objects import SCHEMA, MemoryStore, name_of, put

SIZE = SCHEMA.object_bytes(False)
NOW_S = 1_700_000_000.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'catalogue.sqlite'}"


@pytest.fixture
def catalogue(url: str) -> Iterator[Catalogue]:
    found = Catalogue.open(url)
    yield found
    found.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def hold(
    store: Store,
    catalogue: Catalogue,
    number: int,
    used_s: float,
    is_checkpoint: bool = False,
    position: int = 0,
) -> str:
    """Store an object and add its row."""
    name = put(store, number, is_checkpoint, position)
    size = SCHEMA.object_bytes(is_checkpoint)
    row = entry(number, used_s, is_checkpoint=is_checkpoint, position=position, num_bytes=size)
    catalogue.add([row._replace(name=name, created_s=used_s)])
    return name


def names_of(entries: Sequence[Chosen]) -> list[int]:
    return keys([each.entry for each in entries])


def test_dsk_06_an_object_gone_behind_our_back_is_counted_and_tolerated(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "disk")
    cap = Retention(cap_bytes=20 * SIZE)
    for number in range(1, 21):
        hold(store, catalogue, number, float(number))
    assert enforce(store, catalogue, "disk", cap, NOW_S) == (0, 0, 0, 0, 0)
    (tmp_path / "disk" / "objects" / name_of(1)).unlink()
    hold(store, catalogue, 21, 21.0)
    done = enforce(store, catalogue, "disk", cap, NOW_S)
    assert (done.num_objects, done.num_drifted, done.num_failed) == (1, 1, 0)
    assert catalogue.num_bytes("disk") == 20 * SIZE
    held = {stored.name for stored in store.objects()}
    assert held == {row.name for row in catalogue.entries("disk")}
    assert len(held) == 20


def test_room_can_be_made_before_an_object_is_stored(
    catalogue: Catalogue, store: MemoryStore
) -> None:
    for number in range(4):
        hold(store, catalogue, number, float(number))
    cap = Retention(cap_bytes=4 * SIZE)
    assert choose(catalogue, "disk", cap, NOW_S) == []
    assert names_of(choose(catalogue, "disk", cap, NOW_S, SIZE + 1)) == [0, 1]
    assert choose(catalogue, "disk", cap, NOW_S, 4 * SIZE + 1) == []
    assert cap.admits(4 * SIZE)
    assert not cap.admits(4 * SIZE + 1)
    assert Retention().admits(2**60)


def test_what_is_used_stays(catalogue: Catalogue, store: MemoryStore) -> None:
    for number in range(4):
        hold(store, catalogue, number, float(number))
    catalogue.touch("disk", [name_of(0)], 10.0)
    enforce(store, catalogue, "disk", Retention(cap_bytes=2 * SIZE), NOW_S)
    assert set(store.held) == {name_of(0), name_of(3)}


def test_a_prefix_is_cut_back_from_its_end(catalogue: Catalogue, store: MemoryStore) -> None:
    for number in range(1, 5):
        hold(store, catalogue, number, 5.0, position=128 * number)
    checkpoint = hold(store, catalogue, 9, 5.0, is_checkpoint=True, position=512)
    size = 3 * SIZE
    chosen = choose(catalogue, "disk", Retention(cap_bytes=size), NOW_S)
    assert names_of(chosen) == [9, 4]
    assert chosen[0].entry.name == checkpoint


def test_each_kind_expires_by_its_own_time(catalogue: Catalogue, store: MemoryStore) -> None:
    hold(store, catalogue, 1, NOW_S - 90)
    hold(store, catalogue, 2, NOW_S - 90, is_checkpoint=True)
    hold(store, catalogue, 3, NOW_S - 30, is_checkpoint=True)
    hold(store, catalogue, 4, NOW_S - 3_601)
    limits = Retention(checkpoint_ttl_s=60, block_ttl_s=3_600)
    chosen = choose(catalogue, "disk", limits, NOW_S)
    assert names_of(chosen) == [2, 4]
    assert {each.reason for each in chosen} == {Reason.EXPIRED}
    done = enforce(store, catalogue, "disk", limits, NOW_S)
    assert (done.num_objects, done.num_expired) == (2, 2)
    assert set(store.held) == {name_of(1), name_of(3, is_checkpoint=True)}


@pytest.mark.parametrize("checkpoint_ttl_s", [None, 1e9])
def test_a_checkpoint_never_outlives_its_blocks(
    catalogue: Catalogue, store: MemoryStore, checkpoint_ttl_s: float | None
) -> None:
    hold(store, catalogue, 1, NOW_S - 61, position=128)
    hold(store, catalogue, 2, NOW_S - 61, is_checkpoint=True, position=128)
    limits = Retention(checkpoint_ttl_s=checkpoint_ttl_s, block_ttl_s=60)
    assert names_of(choose(catalogue, "disk", limits, NOW_S)) == [2, 1]


def test_what_has_expired_goes_first_and_counts_for_the_cap(
    catalogue: Catalogue, store: MemoryStore
) -> None:
    hold(store, catalogue, 1, NOW_S - 500)
    hold(store, catalogue, 2, NOW_S - 400)
    hold(store, catalogue, 3, NOW_S - 100, is_checkpoint=True)
    hold(store, catalogue, 4, NOW_S - 1, is_checkpoint=True)
    limits = Retention(cap_bytes=2 * SIZE, checkpoint_ttl_s=60)
    chosen = choose(catalogue, "disk", limits, NOW_S)
    assert [each.reason for each in chosen] == [Reason.EXPIRED, Reason.OVER_CAP]
    assert names_of(chosen) == [3, 1]


def test_no_limits_ask_nothing_of_the_catalogue(catalogue: Catalogue) -> None:
    catalogue.close()
    assert choose(catalogue, "disk", Retention(), NOW_S) == []


sizes = st.lists(st.integers(1, 50), min_size=1, max_size=30)


@given(sizes, st.integers(1, 400), st.integers(0, 60), st.data())
def test_as_little_goes_as_has_to(
    sizes: list[int], cap: int, incoming: int, data: st.DataObject
) -> None:
    rows = [entry(number, num_bytes=size) for number, size in enumerate(sizes)]
    expired = [row for row in rows if data.draw(st.booleans())]
    chosen = decide(expired, rows, sum(sizes), cap, incoming)
    names = [each.entry.name for each in chosen]
    assert len(set(names)) == len(names)
    assert [each.entry for each in chosen[: len(expired)]] == expired
    evicted = [each.entry for each in chosen[len(expired) :]]
    left = sum(sizes) - sum(each.entry.num_bytes for each in chosen)
    if incoming > cap:
        assert evicted == []
    else:
        assert left + incoming <= cap
        assert evicted == [row for row in rows if row not in expired][: len(evicted)]
        if evicted:
            assert left + incoming + evicted[-1].num_bytes > cap


def test_the_index_forgets_before_the_bytes_go(catalogue: Catalogue, store: MemoryStore) -> None:
    name = hold(store, catalogue, 1, 1.0)
    told: list[Chosen] = []

    def forget(chosen: Sequence[Chosen]) -> None:
        assert list(catalogue.entries("disk")) == []
        assert name in store.held
        told.extend(chosen)

    enforce(store, catalogue, "disk", Retention(block_ttl_s=1), NOW_S, forget=forget)
    assert [(each.entry.name, each.reason) for each in told] == [(name, Reason.EXPIRED)]
    assert store.held == {}


def test_without_the_catalogue_no_bytes_go(catalogue: Catalogue, store: MemoryStore) -> None:
    name = hold(store, catalogue, 1, 1.0)
    chosen = choose(catalogue, "disk", Retention(block_ttl_s=1), NOW_S)
    catalogue.close()
    with pytest.raises(StoreError):
        trim(store, catalogue, "disk", chosen, NOW_S, lambda _: pytest.fail("forgotten"))
    assert name in store.held


def test_one_that_cannot_be_deleted_does_not_stop_the_others(
    catalogue: Catalogue, store: MemoryStore
) -> None:
    for number in range(4):
        hold(store, catalogue, number, float(number))
    store.refuses[name_of(0)] = StoreFault(Reason.OBJECT_FORBIDDEN, "a folder not ours")
    done = enforce(store, catalogue, "disk", Retention(cap_bytes=2 * SIZE), NOW_S)
    assert (done.num_objects, done.num_bytes, done.num_failed) == (2, 2 * SIZE, 1)
    assert catalogue.num_bytes("disk") == 2 * SIZE
    assert set(store.held) == {name_of(0), name_of(3)}
    (latest, _) = catalogue.entries("disk")
    assert (latest.name, latest.used_s) == (name_of(0), NOW_S)


def test_where_nothing_can_be_deleted_it_ends(catalogue: Catalogue, store: MemoryStore) -> None:
    for number in range(4):
        store.refuses[hold(store, catalogue, number, 1.0)] = StoreFault(
            Reason.OBJECT_FORBIDDEN, "not ours"
        )
    done = enforce(store, catalogue, "disk", Retention(cap_bytes=SIZE), NOW_S)
    assert (done.num_objects, done.num_failed) == (0, 3)
    assert len(list(catalogue.entries("disk"))) == 4


def test_an_outage_is_met_once_and_the_rows_come_back(
    catalogue: Catalogue, store: MemoryStore
) -> None:
    for number in range(4):
        hold(store, catalogue, number, float(number))
    before = list(catalogue.entries("disk"))
    store.refuses[name_of(1)] = StoreFault(Reason.STORE_TIMEOUT, "no answer", is_outage=True)
    store.refuses[name_of(0)] = store.refuses[name_of(1)]
    done = enforce(store, catalogue, "disk", Retention(block_ttl_s=1), NOW_S)
    assert (done.num_objects, done.num_failed) == (0, 4)
    assert len(store.calls) == 1
    assert list(catalogue.entries("disk")) == before


def test_many_go_in_rounds(catalogue: Catalogue, store: MemoryStore) -> None:
    rows: list[Entry] = []
    for number in range(700):
        rows.append(entry(number, float(number), num_bytes=SIZE)._replace(name=put(store, number)))
    catalogue.add(rows)
    told: list[int] = []
    done = enforce(
        store, catalogue, "disk", Retention(cap_bytes=10 * SIZE), NOW_S,
        forget=lambda chosen: told.append(len(chosen)),
    )  # fmt: skip
    assert done == (690, 690 * SIZE, 0, 0, 0)
    assert len(told) > 1
    assert set(store.held) == {name_of(number) for number in range(690, 700)}


def test_what_another_process_trims_meanwhile_is_not_trimmed_twice(
    catalogue: Catalogue, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        hold(store, catalogue, number, float(number))
    cap, ask = Retention(cap_bytes=3 * SIZE), catalogue.num_bytes

    def num_bytes_and_then_another_trims(tier: str) -> int:
        found = ask(tier)
        monkeypatch.undo()
        enforce(store, catalogue, "disk", cap, NOW_S)
        return found

    monkeypatch.setattr(catalogue, "num_bytes", num_bytes_and_then_another_trims)
    assert enforce(store, catalogue, "disk", cap, NOW_S).num_objects == 0
    assert len(store.held) == 3


def trim_in_a_process(
    folder: str, url: str, barrier: threading.Barrier, results: multiprocessing.Queue[list[int]]
) -> None:
    store, catalogue = LocalStore(Path(folder)), Catalogue.open(url)
    barrier.wait(60)
    done = enforce(store, catalogue, "disk", Retention(cap_bytes=30 * SIZE), NOW_S)
    results.put(list(done))
    catalogue.close()


def test_two_processes_never_remove_one_object_twice_nor_too_many(
    catalogue: Catalogue, url: str, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "disk")
    for number in range(330):
        hold(store, catalogue, number, float(number))
    start = multiprocessing.get_context("spawn")
    barrier, results = start.Barrier(2), start.Queue()
    arguments = (str(tmp_path / "disk"), url, barrier, results)
    workers = [start.Process(target=trim_in_a_process, args=arguments) for _ in range(2)]
    for worker in workers:
        worker.start()
    done = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert [sum(column) for column in zip(*done, strict=True)] == [300, 300 * SIZE, 0, 0, 0]
    assert {row.name for row in catalogue.entries("disk")} == {
        stored.name for stored in store.objects()
    }


def test_garbage_is_what_index_and_store_do_not_share(catalogue: Catalogue, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "disk")
    both, lost = hold(store, catalogue, 1, 1.0), hold(store, catalogue, 2, 2.0)
    store.delete(lost)
    unknown = put(store, 3)
    garbage = find_garbage(store, catalogue.entries("disk"))
    assert garbage.rows == (lost,)
    assert [stored.name for stored in garbage.objects] == [unknown]
    assert {row.name for row in catalogue.entries("disk")} == {both, lost}

    done = collect_garbage(store, catalogue, "disk", owner="collector")
    assert (done.num_rows_removed, done.num_rows_added, done.faults) == (1, 1, ())
    assert {row.name: row.owner for row in catalogue.entries("disk")} == {
        both: "engine",
        unknown: "collector",
    }
    assert {stored.name for stored in store.objects()} == {both, unknown}
    assert collect_garbage(store, catalogue, "disk") == (0, 0, 0, ())


def test_temporaries_of_dead_writers_go(catalogue: Catalogue, store: MemoryStore) -> None:
    store.temporaries = 3
    assert collect_garbage(store, catalogue, "disk").num_temporaries == 3


def test_a_bad_object_without_a_row_gets_none_and_is_named(
    catalogue: Catalogue, store: MemoryStore
) -> None:
    name = put(store, 1)
    store.held[name] = b"nonsense"
    ((found, fault),) = collect_garbage(store, catalogue, "disk").faults
    assert (found, fault.reason) == (name, Reason.OBJECT_TRUNCATED)
    assert list(catalogue.entries("disk")) == []
    assert name in store.held


def test_an_object_stored_after_the_listing_keeps_its_row(
    catalogue: Catalogue, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = hold(store, catalogue, 1, 1.0)
    monkeypatch.setattr(store, "objects", lambda namespace=None: iter(()))
    assert find_garbage(store, catalogue.entries("disk")).rows == ()
    assert late in store.held


def test_a_folder_in_an_objects_place_is_no_object(catalogue: Catalogue, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "disk")
    name = hold(store, catalogue, 1, 1.0)
    store.delete(name)
    (tmp_path / "disk" / "objects" / name).mkdir()
    assert collect_garbage(store, catalogue, "disk").num_rows_removed == 1


def test_a_rebuilt_catalogue_trims_as_before(catalogue: Catalogue, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "disk")
    for number in range(3):
        put(store, number)
        time.sleep(0.01)  # so that the files' times tell them apart
    rebuild(store, catalogue, "disk")
    enforce(store, catalogue, "disk", Retention(cap_bytes=SIZE), NOW_S)
    assert [stored.name for stored in store.objects()] == [name_of(2)]


@pytest.mark.parametrize("name", ["cap_bytes", "checkpoint_ttl_s", "block_ttl_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_is_above_zero(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected more than 0"):
        Retention(**{name: value})  # type: ignore[arg-type]
