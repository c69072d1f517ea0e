"""What every database behind a catalogue has to do; a test file per database runs it."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from kvstrata.core.errors import StoreError
from kvstrata.tiers.catalogue import Catalogue, Entry
from kvstrata.tiers.database import REVISION, VERSION_TABLE

NAMESPACE = "0123456789abcdef" * 2
OTHER_NAMESPACE = "f" * 32
ZEROS = bytes(16)


def entry(
    number: int,
    used_s: float = 0.0,
    *,
    is_checkpoint: bool = False,
    position: int = 0,
    num_bytes: int = 100,
    tier: str = "disk",
    namespace: str = NAMESPACE,
    owner: str = "engine",
    created_s: float = 1.0,
) -> Entry:
    key = number.to_bytes(16, "big")
    suffix = "checkpoint" if is_checkpoint else "block"
    name = f"{namespace}/{key.hex()[:2]}/{key.hex()}.{suffix}"
    return Entry(
        namespace, name, is_checkpoint, key, ZEROS, position, num_bytes, tier, owner, created_s,
        used_s,
    )  # fmt: skip


def keys(entries: Sequence[Entry] | Iterator[Entry]) -> list[int]:
    return [int.from_bytes(item.key, "big") for item in entries]


def names(*numbers: int) -> list[str]:
    return [entry(number).name for number in numbers]


def work_in_a_process(url: str, offset: int, barrier: threading.Barrier) -> None:
    """Open at the same time as others, then write rows of its own and rows of everybody's."""
    barrier.wait(60)
    catalogue = Catalogue.open(url)
    for start in range(0, 200, 20):
        catalogue.add([entry(offset + start + index, start) for index in range(20)])
        shared = [entry(index, start) for index in range(20)]
        catalogue.add(shared if offset % 2 else shared[::-1])
        catalogue.touch("disk", names(*range(20)), start + 0.5)
    catalogue.close()


class CatalogueContract:
    """Tests of a `catalogue_url` that each database's fixture gives, empty every time."""

    @pytest.fixture
    def catalogue(self, catalogue_url: str) -> Iterator[Catalogue]:
        found = Catalogue.open(catalogue_url)
        yield found
        found.close()

    @pytest.fixture
    def execute(self, catalogue: Catalogue) -> Callable[[str], None]:
        def run(statement: str) -> None:
            with catalogue._engine.begin() as connection:
                connection.execute(text(statement))

        return run

    def test_a_row_comes_back_as_it_was_added(self, catalogue: Catalogue) -> None:
        added = Entry(
            NAMESPACE, "a/b.checkpoint", True, b"\xff" * 16, b"\x00\x80" * 8, 2**40, 2**41,
            "disk", "host:1", 1_700_000_000.123456, 1_700_000_001.654321,
        )  # fmt: skip
        catalogue.add([added])
        assert list(catalogue.entries("disk")) == [added]
        (found,) = catalogue.oldest("disk", None, 1)
        assert [type(value) for value in found] == [type(value) for value in added]

    def test_rows_outlive_the_connection(self, catalogue_url: str) -> None:
        first = Catalogue.open(catalogue_url)
        first.add([entry(1)])
        first.close()
        second = Catalogue.open(catalogue_url)
        assert keys(second.entries("disk")) == [1]
        second.close()

    def test_adding_again_keeps_owner_creation_and_the_later_use(
        self, catalogue: Catalogue
    ) -> None:
        first = entry(1, 5.0, owner="first", created_s=1.0)
        catalogue.add([first])
        catalogue.add([entry(1, 3.0, owner="second", created_s=2.0, num_bytes=7, position=9)])
        assert list(catalogue.entries("disk")) == [first._replace(num_bytes=7, position=9)]
        catalogue.add([entry(1, 8.0), entry(1, 6.0)])
        (found,) = catalogue.entries("disk")
        assert (found.used_s, found.owner, found.created_s) == (8.0, "first", 1.0)

    def test_tiers_and_namespaces_are_apart(self, catalogue: Catalogue) -> None:
        catalogue.add([entry(1), entry(1, tier="remote", num_bytes=7), entry(2)])
        catalogue.add([entry(3, namespace=OTHER_NAMESPACE)])
        assert keys(catalogue.entries("disk", NAMESPACE)) == [1, 2]
        assert keys(catalogue.entries("disk", OTHER_NAMESPACE)) == [3]
        assert keys(catalogue.entries("remote")) == [1]
        assert catalogue.num_bytes("disk") == 300
        assert catalogue.num_bytes("remote") == 7
        assert catalogue.num_bytes("host") == 0

    def test_removal_tells_each_row_to_one_caller(self, catalogue: Catalogue) -> None:
        catalogue.add([entry(number) for number in range(6)])
        catalogue.add([entry(2, tier="remote")])
        assert sorted(catalogue.remove("disk", names(1, 2, 9, 2))) == names(1, 2)
        assert catalogue.remove("disk", names(1, 2)) == []
        assert keys(catalogue.entries("remote")) == [2]
        with ThreadPoolExecutor(4) as threads:
            told = threads.map(lambda _: catalogue.remove("disk", names(0, 3, 4, 5)), range(8))
            assert sorted(name for list_ in told for name in list_) == names(0, 3, 4, 5)

    def test_entries_come_latest_used_first(self, catalogue: Catalogue) -> None:
        catalogue.add([entry(number, float(number)) for number in range(5)])
        assert keys(catalogue.entries("disk")) == [4, 3, 2, 1, 0]
        assert keys(catalogue.entries("disk", limit=2)) == [4, 3]
        catalogue.touch("disk", names(1, 77), 9.0)
        catalogue.touch("remote", names(2), 10.0)
        assert keys(catalogue.entries("disk")) == [1, 4, 3, 2, 0]
        catalogue.touch("disk", names(1), 0.5)
        assert keys(catalogue.entries("disk"))[0] == 1

    def test_entries_may_change_while_they_are_read(self, catalogue: Catalogue) -> None:
        catalogue.add([entry(number) for number in range(2500)])
        seen = []
        for item in catalogue.entries("disk"):
            seen.append(item)
            if len(seen) % 500 == 0:
                catalogue.touch("disk", [item.name], 5.0)
                catalogue.remove("disk", [item.name])
        assert keys(seen) == list(range(2500))
        assert len(list(catalogue.entries("disk"))) == 2495

    def test_a_reader_may_stop_early(self, catalogue: Catalogue) -> None:
        catalogue.add([entry(number) for number in range(50)])
        for _ in range(40):  # more than the connections of the pool
            next(catalogue.entries("disk"))
        catalogue.add([entry(99)])
        assert len(list(catalogue.entries("disk"))) == 51

    def test_the_oldest_are_those_used_least_recently(self, catalogue: Catalogue) -> None:
        catalogue.add([entry(1, 3.0), entry(2, 1.0), entry(3, 2.0, is_checkpoint=True)])
        assert keys(catalogue.oldest("disk", None, 10)) == [2, 3, 1]
        assert keys(catalogue.oldest("disk", False, 10)) == [2, 1]
        assert keys(catalogue.oldest("disk", True, 10)) == [3]
        assert keys(catalogue.oldest("disk", None, 1)) == [2]
        assert catalogue.oldest("remote", None, 1) == []

    def test_of_one_use_what_hangs_from_a_block_goes_before_it(self, catalogue: Catalogue) -> None:
        chain = [entry(number, 5.0, position=number * 128) for number in range(1, 5)]
        catalogue.add([*chain, entry(9, 5.0, is_checkpoint=True, position=512)])
        assert keys(catalogue.oldest("disk", None, 10)) == [9, 4, 3, 2, 1]
        assert keys(catalogue.expired("disk", False, 6.0, 10)) == [4, 3, 2, 1]

    def test_the_expired_were_not_used_since(self, catalogue: Catalogue) -> None:
        catalogue.add([entry(number, float(number)) for number in range(5)])
        catalogue.add([entry(9, 0.0, is_checkpoint=True)])
        assert keys(catalogue.expired("disk", False, 3.0, 10)) == [0, 1, 2]
        assert keys(catalogue.expired("disk", False, 3.0, 2)) == [0, 1]
        assert keys(catalogue.expired("disk", True, 3.0, 10)) == [9]
        assert catalogue.expired("disk", True, 0.0, 10) == []

    def test_names_are_values_not_statements(self, catalogue: Catalogue) -> None:
        odd = entry(1)._replace(name="a'; DROP TABLE kvstrata_objects; -- %s :of", owner="\"'%")
        catalogue.add([odd])
        catalogue.touch("disk", [odd.name], 4.0)
        assert list(catalogue.entries("disk")) == [odd._replace(used_s=4.0)]
        assert catalogue.remove("disk", [odd.name]) == [odd.name]

    def test_nothing_to_do_is_done(self, catalogue: Catalogue) -> None:
        catalogue.add([])
        catalogue.touch("disk", [], 1.0)
        assert catalogue.remove("disk", []) == []
        assert list(catalogue.entries("disk")) == []

    def test_processes_open_and_write_it_at_once(self, catalogue_url: str) -> None:
        start = multiprocessing.get_context("spawn")
        barrier = start.Barrier(3)
        offsets = (1001, 2002, 3003)
        workers = [
            start.Process(target=work_in_a_process, args=(catalogue_url, offset, barrier))
            for offset in offsets
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        found = Catalogue.open(catalogue_url)
        held = list(found.entries("disk"))
        found.close()
        assert sorted(keys(held)) == sorted(
            [*range(20), *(offset + index for offset in offsets for index in range(200))]
        )
        assert {item.used_s for item in held if item.key < (20).to_bytes(16, "big")} == {180.5}

    def test_threads_open_it_at_once(self, catalogue_url: str) -> None:
        with ThreadPoolExecutor(6) as threads:
            opened = list(threads.map(Catalogue.open, [catalogue_url] * 6))
        opened[0].add([entry(1)])
        for catalogue in opened:
            assert keys(catalogue.entries("disk")) == [1]
            catalogue.close()

    def test_it_is_migrated_from_nothing(
        self, catalogue: Catalogue, execute: Callable[[str], None], catalogue_url: str
    ) -> None:
        with catalogue._engine.connect() as connection:
            query = text(f"SELECT version_num FROM {VERSION_TABLE}")
            assert list(connection.execute(query).scalars()) == [REVISION]
        execute("DROP TABLE kvstrata_objects")
        execute(f"DROP TABLE {VERSION_TABLE}")
        again = Catalogue.open(catalogue_url)
        again.add([entry(1)])
        again.close()

    def test_a_later_revision_is_refused_by_name(
        self, catalogue: Catalogue, execute: Callable[[str], None], catalogue_url: str
    ) -> None:
        catalogue.add([entry(1)])
        execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        with pytest.raises(StoreError, match=f"expected revision {REVISION} .* found 9999: update"):
            Catalogue.open(catalogue_url)
        assert keys(catalogue.entries("disk")) == [1]

    def test_a_lost_table_is_an_error_that_says_what_to_do(
        self, catalogue: Catalogue, execute: Callable[[str], None]
    ) -> None:
        execute("DROP TABLE kvstrata_objects")
        for call in (
            lambda: catalogue.add([entry(1)]),
            lambda: catalogue.num_bytes("disk"),
            lambda: list(catalogue.entries("disk")),
        ):
            with pytest.raises(StoreError, match=r"^catalogue .*kvstrata_objects.*; \w+"):
                call()

    def test_a_closed_catalogue_says_so(self, catalogue_url: str) -> None:
        catalogue = Catalogue.open(catalogue_url)
        catalogue.close()
        catalogue.close()
        with pytest.raises(StoreError, match="found it closed"):
            catalogue.add([entry(1)])
