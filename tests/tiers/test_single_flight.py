from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvstrata.core.checksum import checksum_bytes
from kvstrata.core.events import Reason
from kvstrata.tiers.outcomes import Loaded, LoadFailed
from kvstrata.tiers.store import Buffer

from .shaky import Rig, Shaky, Thing

RANKS = 8
FETCH_S = 0.044
SPREAD_S = 0.012
DIES_S = 0.020
LONG_S = 60.0
DISK, REMOTE = 0, 1


class Slow(Shaky):
    """A backend whose reads take a while and are counted in a file, across processes."""

    def __init__(self, root: Path, first_reader_dies: bool) -> None:
        super().__init__(root)
        self.counts = root / "reads"
        self.first_reader_dies = first_reader_dies

    def read(self, name: str, parts: Sequence[Buffer]) -> None:
        descriptor = os.open(self.counts, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(descriptor, b"x")
        is_first = os.fstat(descriptor).st_size == 1
        os.close(descriptor)
        if is_first and self.first_reader_dies:
            time.sleep(DIES_S)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(FETCH_S)
        super().read(name, parts)


def load_in_a_process(root: Path, rank: int, first_reader_dies: bool) -> None:
    """A rank: its own stores, its own tiers; says how it went by its exit code."""
    rig = slow_rig(root, first_reader_dies)
    thing = Thing(1)
    time.sleep(rank * SPREAD_S / RANKS)
    found = thing.load(rig.tiers, 1 << REMOTE)
    os._exit(0 if isinstance(found, Loaded) and thing.is_loaded else 1)


def slow_rig(root: Path, first_reader_dies: bool) -> Rig:
    rig = Rig(root, "disk", "remote")
    slow = Slow(root / "remote", first_reader_dies)
    rig.stores[REMOTE] = slow
    rig.tiers.tiers[REMOTE].store = slow
    return rig


@pytest.mark.parametrize(
    ("first_reader_dies", "reads"), [(False, 1), (True, 2)], ids=["no fault", "fetcher dies"]
)
def test_adm_04_eight_ranks_read_a_prefix_from_the_backend_once(
    tmp_path: Path, first_reader_dies: bool, reads: int
) -> None:
    """Eight ranks read the same prefix eight times: no single flight across processes."""
    rig = slow_rig(tmp_path, first_reader_dies)
    thing = Thing(1)
    rig.keep(thing, REMOTE)
    fork = multiprocessing.get_context("fork")
    ranks = [
        fork.Process(target=load_in_a_process, args=(tmp_path, rank, first_reader_dies))
        for rank in range(RANKS)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(LONG_S)
    codes = sorted(rank.exitcode if rank.exitcode is not None else 99 for rank in ranks)
    killed = [-signal.SIGKILL] if first_reader_dies else []
    assert codes == [*killed, *[0] * (RANKS - len(killed))]
    assert (tmp_path / "remote" / "reads").stat().st_size == reads
    assert rig.tiers.find([thing.identity]) == [0b11]


def test_what_was_fetched_is_promoted_and_served_from_there(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "host", "disk", "remote")
    thing = Thing(1)
    rig.keep(thing, 2)
    found = thing.load(rig.tiers, 0b100)
    assert isinstance(found, Loaded)
    assert thing.is_loaded
    assert (found.tier, found.gained, found.gone) == (2, 0b010, 0)
    assert rig.tiers.find([thing.identity]) == [0b110]

    again = Thing(1)
    found = again.load(rig.tiers, 0b100)  # as by a process that does not know of the promotion
    assert isinstance(found, Loaded)
    assert again.is_loaded
    assert (found.tier, found.gained) == (1, 0b010)
    assert [store.calls["read"] for store in rig.stores] == [0, 1, 1]
    stats = rig.tiers.stats()
    assert (stats["disk"].promotions, stats["disk"].writes, stats["disk"].shared) == (1, 1, 1)


def test_a_folder_that_lost_it_gains_it_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote")
    thing = Thing(1)
    rig.keep(thing, DISK, REMOTE)
    rig.spoil(thing, DISK)
    found = thing.load(rig.tiers, 0b11)
    assert isinstance(found, Loaded)
    assert (found.tier, found.gone, found.gained) == (REMOTE, 0, 0b01)
    assert found.faults[0][1].reason == Reason.CHECKSUM_MISMATCH
    again = Thing(1)
    assert isinstance(again.load(rig.tiers, 0b01), Loaded)
    assert again.is_loaded


def test_a_bad_copy_in_the_folder_is_fetched_anew(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote")
    thing = Thing(1)
    rig.keep(thing, DISK, REMOTE)
    rig.spoil(thing, DISK)
    found = thing.load(rig.tiers, 0b10)
    assert isinstance(found, Loaded)
    assert thing.is_loaded
    assert (found.tier, found.gained) == (REMOTE, 0b01)
    assert [store.calls["read"] for store in rig.stores] == [1, 1]
    assert rig.tiers.stats()["disk"].set_aside == 1


def test_a_folder_that_cannot_be_written_does_not_stop_the_load(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote")
    thing = Thing(1)
    rig.keep(thing, REMOTE)
    rig.stores[DISK].fail("put", reason=Reason.STORE_FULL, is_outage=True)
    found = thing.load(rig.tiers, 0b10)
    assert isinstance(found, Loaded)
    assert (found.tier, found.gained) == (REMOTE, 0)
    assert [fault.reason for _, fault in found.faults] == [Reason.STORE_FULL]


def test_a_folder_that_is_down_is_passed_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote")
    thing = Thing(1)
    rig.keep(thing, REMOTE)
    rig.stores[DISK].fail(
        "claim", "size", "put", "read", reason=Reason.STORE_FAILED, is_outage=True
    )
    for _ in range(3):
        found = thing.load(rig.tiers, 0b10)
        assert isinstance(found, Loaded)
        assert (found.tier, found.gained) == (REMOTE, 0)
    assert rig.tiers.stats()["disk"].down
    assert rig.stores[REMOTE].calls["read"] == 3


def test_a_missing_object_on_the_backend_is_forgotten(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote")
    found = Thing(1).load(rig.tiers, 0b10)
    assert isinstance(found, LoadFailed)
    assert (found.fault.reason, found.gone) == (Reason.OBJECT_MISSING, 0b10)


def test_the_backend_is_asked_twice_at_most_when_its_client_fails(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote")
    rig.keep(Thing(1), REMOTE)
    rig.stores[REMOTE].always["read"] = RuntimeError("odd")
    found = Thing(1).load(rig.tiers, 0b10)
    assert isinstance(found, LoadFailed)
    assert (found.fault.reason, found.gone) == (Reason.STORE_FAILED, 0)
    assert rig.stores[REMOTE].calls["read"] == 2


def test_a_stuck_fetcher_is_waited_for_no_longer_than_the_time_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote", claim_timeout_s=0.05)
    thing = Thing(1)
    rig.keep(thing, REMOTE)
    with Shaky(tmp_path / "disk").claim(thing.name, LONG_S) as had:
        assert had
        found = thing.load(rig.tiers, 0b10)
    assert isinstance(found, Loaded)
    assert (found.tier, found.gained) == (REMOTE, 0b01)


def test_a_load_that_is_cancelled_while_it_waits_reads_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote", claim_timeout_s=LONG_S)
    thing = Thing(1)
    rig.keep(thing, REMOTE)
    start_s = time.monotonic()
    with Shaky(tmp_path / "disk").claim(thing.name, LONG_S) as had:
        assert had
        found = thing.load(rig.tiers, 0b10, dead=lambda: rig.stores[DISK].calls["claim"] > 1)
    assert isinstance(found, LoadFailed)
    assert (found.fault.reason, found.gone) == (Reason.LOAD_CANCELLED, 0)
    assert rig.stores[REMOTE].calls["read"] == 0
    assert time.monotonic() - start_s < LONG_S / 2


def test_the_checks_come_after_the_read_and_before_the_promotion(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk", "remote")
    thing = Thing(1)
    rig.keep(thing, REMOTE)
    order: list[str] = []
    rig.stores[REMOTE].next["read"].append(lambda: order.append("read"))
    rig.stores[DISK].next["put"].append(lambda: order.append("put"))

    def checksum(part: int) -> int:
        order.append(f"checksum {part}")
        return checksum_bytes(thing.into[part])

    rig.tiers.load(thing.identity, 0b10, thing.into, checksum, lambda: False)
    assert order == ["read", "checksum 0", "checksum 1", "put"]
