from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from kvstrata.core.checksum import checksum_bytes
from kvstrata.core.views import COMPILES
from kvstrata.tiers.outcomes import Loaded, LoadFailed
from kvstrata.tiers.whole_files import read_whole_files

from .shaky import Rig, Thing

HOST, DISK, REMOTE = 0, 1, 2
ON_DISK = 1 << DISK

quickly = pytest.mark.skipif(not COMPILES, reason="the quick way is compiled code")


class Into:
    """The places that some things are loaded into."""

    def __init__(self, things: list[Thing]) -> None:
        self.things = things

    def addresses(self) -> npt.NDArray[np.int64]:
        return np.array(
            [[np.frombuffer(page, np.uint8).ctypes.data for page in t.into] for t in self.things]
        )

    def pages(self, number: int) -> list[memoryview]:
        return self.things[number].into

    def checksum(self, number: int, part: int) -> int:
        return checksum_bytes(self.things[number].into[part])


def load_many(
    rig: Rig,
    things: list[Thing],
    masks: list[int] | int = ON_DISK,
    dead: Callable[[int], bool] = lambda number: False,
) -> list[Loaded | LoadFailed]:
    masks = masks if isinstance(masks, list) else [masks] * len(things)
    identities = [thing.identity for thing in things]
    return list(rig.tiers.load_many(identities, masks, Into(things), dead))


def stored(
    rig: Rig, numbers: range, is_checkpoint: bool = False, mask: int = ON_DISK
) -> list[Thing]:
    things = [Thing(number, is_checkpoint) for number in numbers]
    for thing in things:
        assert rig.tiers.store(thing.header, thing.pages, mask).tiers == mask
    return things


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "with a späce", "host", "disk", "remote")


@quickly
@pytest.mark.parametrize("is_checkpoint", [False, True])
def test_whole_objects_come_in_one_read(rig: Rig, is_checkpoint: bool) -> None:
    things = stored(rig, range(1, 8), is_checkpoint)
    found = load_many(rig, things)
    assert all(thing.is_loaded for thing in things)
    disk = rig.stores[DISK]
    assert (disk.calls["read_many"], disk.calls["read"]) == (1, 0)
    for thing, one in zip(things, found, strict=True):
        assert isinstance(one, Loaded)
        assert (one.tier, one.header, one.num_bytes) == (DISK, thing.header, thing.num_bytes)
        assert (one.faults, one.gone, one.gained) == ((), 0, 0)
    stats = rig.tiers.stats()["disk"]
    assert (stats.reads, stats.read_bytes) == (7, sum(thing.num_bytes for thing in things))


@quickly
def test_a_wrong_byte_anywhere_is_found_as_by_a_single_load(rig: Rig) -> None:
    good, bad = stored(rig, range(1, 3))
    path = rig.stores[DISK].path(bad.name)
    whole = path.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x41
        path.write_bytes(changed)
        one = Thing(2).load(rig.tiers, ON_DISK)
        path.write_bytes(changed)  # the single load set it aside
        first, second = load_many(rig, [Thing(1), Thing(2)])
        assert isinstance(first, Loaded), at
        assert first.header == good.header
        assert isinstance(second, LoadFailed), at
        assert second == one
        path.write_bytes(whole)


def damage(kind: str, path: Path) -> None:
    whole = path.read_bytes()
    path.unlink()
    if kind == "cut":
        path.write_bytes(whole[:-1])
    elif kind == "longer":
        path.write_bytes(whole + b"\0")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        (path.parent / "elsewhere").write_bytes(whole)
        path.symlink_to(path.parent / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        assert kind == "missing"


@pytest.mark.parametrize("kind", ["missing", "cut", "longer", "empty", "folder", "link", "pipe"])
def test_what_is_no_object_spoils_no_other(rig: Rig, kind: str) -> None:
    things = stored(rig, range(1, 6))
    damage(kind, rig.stores[DISK].path(things[2].name))
    found = load_many(rig, things)
    assert [isinstance(one, Loaded) for one in found] == [True, True, False, True, True]
    assert all(thing.is_loaded for number, thing in enumerate(things) if number != 2)
    failed = found[2]
    assert isinstance(failed, LoadFailed)
    again = Rig(rig.stores[DISK].inner.root.parent / "again", "host", "disk", "remote")
    (thing,) = stored(again, range(3, 4))
    damage(kind, again.stores[DISK].path(thing.name))
    single = thing.load(again.tiers, ON_DISK)
    assert isinstance(single, LoadFailed)
    assert [fault.reason for _, fault in failed.faults] == [f.reason for _, f in single.faults]
    assert failed.gone == single.gone


@quickly
def test_another_objects_bytes_under_a_name_are_no_hit(rig: Rig) -> None:
    things = stored(rig, range(1, 4))
    disk = rig.stores[DISK]
    disk.path(things[1].name).write_bytes(disk.path(things[0].name).read_bytes())
    found = load_many(rig, things)
    assert [isinstance(one, Loaded) for one in found] == [True, False, True]


def test_each_comes_from_the_fastest_tier_that_has_it(rig: Rig) -> None:
    things = stored(rig, range(1, 4), mask=0b011)
    masks = [0b011, 0b010, 0b011]
    found = load_many(rig, things, masks)
    assert [one.tier for one in found if isinstance(one, Loaded)] == [HOST, DISK, HOST]
    assert all(thing.is_loaded for thing in things)


def test_what_is_cancelled_is_not_read(rig: Rig) -> None:
    things = stored(rig, range(1, 4))
    found = load_many(rig, things, dead=lambda number: True)
    assert all(isinstance(one, LoadFailed) for one in found)
    assert (rig.stores[DISK].calls["read_many"], rig.stores[DISK].calls["read"]) == (0, 0)


def test_a_tier_that_is_down_is_not_asked(rig: Rig) -> None:
    things = stored(rig, range(1, 4))
    disk = rig.stores[DISK]
    disk.always = {"read": OSError("gone"), "read_many": OSError("gone")}
    for _ in range(4):
        assert all(isinstance(one, LoadFailed) for one in load_many(rig, things))
    before = disk.calls.copy()
    assert all(isinstance(one, LoadFailed) for one in load_many(rig, things))
    assert disk.calls == before
    assert rig.tiers.stats()["disk"].down


def test_files_read_whole_are_told_from_all_others(tmp_path: Path) -> None:
    paths = [tmp_path / f"file {number}" for number in range(4)]
    sizes = [32, 40_008, 64]
    num_bytes = sum(sizes)
    whole = np.random.default_rng(1).integers(0, 256, (4, num_bytes), dtype=np.uint8)
    for number, path in enumerate(paths[:3]):
        path.write_bytes(whole[number].tobytes() + b"x" * (number == 1))
    buffers = np.zeros_like(whole)
    parts = np.zeros((4, 3, 2), dtype=np.int64)
    parts[:, :, 0] = buffers.ctypes.data + np.arange(4)[:, None] * num_bytes + [0, 32, 40_040]
    parts[:, :, 1] = sizes
    sums = np.zeros((4, 3), dtype=np.int64)
    read = read_whole_files([str(path) for path in paths], parts, num_bytes, sums)
    assert read.tolist() == ([True, False, True, False] if COMPILES else [False] * 4)
    if COMPILES:
        for number in (0, 2):
            assert np.array_equal(buffers[number], whole[number])
            pages = np.split(whole[number], [32, 40_040])
            assert sums[number].tolist() == [checksum_bytes(page.tobytes()) for page in pages]
    assert read_whole_files([], parts[:0], num_bytes, sums[:0]).tolist() == []


@quickly
def test_no_descriptor_is_left_open(rig: Rig) -> None:
    things = stored(rig, range(1, 6))
    damage("cut", rig.stores[DISK].path(things[1].name))
    load_many(rig, things)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        load_many(rig, things)
    assert len(os.listdir("/proc/self/fd")) == before
