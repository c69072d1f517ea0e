"""Pools: what a page looks like, addresses that stay, and files that outlive their process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kvstrata.core.errors import ConfigError, InvariantViolation
from kvstrata.core.layout import CacheLayout, Kind
from kvstrata.core.presets import Row, attention_layout, sized_group
from kvstrata.kernels.pools import PoolSet, pool_bytes

SLOTS = {"full": 5, "swa": 3}


@pytest.fixture
def layout() -> CacheLayout:
    return attention_layout(4, sliding_layers=[0, 2], window=8, shape=(2, 4), dtype="bf16")


@pytest.fixture(params=["private", "shared"])
def pool_set(
    request: pytest.FixtureRequest, layout: CacheLayout, tmp_path: Path
) -> Iterator[PoolSet]:
    path = tmp_path / "pools" if request.param == "shared" else None
    made = PoolSet.allocate(layout, SLOTS, path)
    yield made
    made.close()


def test_pools_are_zero_aligned_and_of_the_stated_size(
    pool_set: PoolSet, layout: CacheLayout
) -> None:
    for group in layout.groups:
        storage = pool_set.storage(group.name)
        assert storage.shape == (SLOTS[group.name], group.page_bytes)
        assert storage.dtype is torch.uint8
        assert storage.is_contiguous()
        assert not storage.any()
        assert pool_set.data_ptr(group.name) % 64 == 0
        assert pool_set.num_slots(group.name) == SLOTS[group.name]
    assert pool_set.num_bytes == sum(pool_bytes(layout, SLOTS).values())


def test_views_share_the_pool_and_do_not_overlap(pool_set: PoolSet, layout: CacheLayout) -> None:
    for group in layout.groups:
        for component in group.components:
            view = pool_set.view(group.name, component.name)
            assert view.shape == (SLOTS[group.name], *group.component_shape(component.name))
            assert view.dtype is torch.bfloat16
        pool_set.view(group.name, "k").fill_(1)
        assert not pool_set.view(group.name, "v").any()
        pool_set.view(group.name, "v")[1].fill_(2)
        assert (pool_set.view(group.name, "k") == 1).all()
        assert not pool_set.view(group.name, "v")[2:].any()


def test_a_component_lies_where_the_layout_says() -> None:
    rows = [Row("a", "u8", (3,)), Row("b", "fp32", (5,)), Row("c", "fp16", (1,))]
    group = sized_group("g", Kind.COMPRESSED, (0, 1, 2), rows, 7, 1)
    layout = CacheLayout("odd", (group,), 7, 1, 3)
    pool_set = PoolSet.allocate(layout, {"g": 3})
    pool_set.view("g", "b")[2, 1, 6, 4] = 1.0
    offset = group.component_offset("b") + ((1 * 7 + 6) * 5 + 4) * 4
    expected = np.zeros((3, group.page_bytes), dtype=np.uint8)
    expected[2, offset : offset + 4] = np.frombuffer(np.float32(1.0).tobytes(), dtype=np.uint8)
    assert np.array_equal(pool_set.storage("g").numpy(), expected)
    assert pool_set.words("g").view(np.uint8).sum() == expected.sum()


def test_addresses_and_tensors_stay(pool_set: PoolSet) -> None:
    before = {group: pool_set.data_ptr(group) for group in SLOTS}
    tensors = {group: pool_set.view(group, "k") for group in SLOTS}
    for group in SLOTS:
        pool_set.storage(group).fill_(7)
        assert pool_set.view(group, "k") is tensors[group]
        assert tensors[group].data_ptr() == before[group]
    assert {group: pool_set.data_ptr(group) for group in SLOTS} == before


def test_bytes_outlive_a_killed_process(layout: CacheLayout, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from kvstrata.core.presets import attention_layout\n"
        "from kvstrata.kernels.pools import PoolSet\n"
        "layout = attention_layout(4, [0, 2], 8, shape=(2, 4), dtype='bf16')\n"
        f"pools = PoolSet.allocate(layout, {SLOTS!r}, Path(sys.argv[1]))\n"
        "pools.view('full', 'v')[4, 1, 15] = 3\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert child.returncode == -9
    attached = PoolSet.attach(layout, SLOTS, tmp_path)
    view = attached.view("full", "v")
    assert (view[4, 1, 15] == 3).all()
    assert view.sum() == 3 * 8
    attached.close()


def test_two_mappings_see_each_other(layout: CacheLayout, tmp_path: Path) -> None:
    first = PoolSet.allocate(layout, SLOTS, tmp_path)
    second = PoolSet.attach(layout, SLOTS, tmp_path)
    first.view("swa", "k")[1].fill_(5)
    assert (second.view("swa", "k")[1] == 5).all()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["full.pool", "swa.pool"]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tmp_path.iterdir())


def test_files_are_reserved_not_sparse(layout: CacheLayout, tmp_path: Path) -> None:
    slots = {"full": 500, "swa": 300}
    PoolSet.allocate(layout, slots, tmp_path).close()
    for name, size in pool_bytes(layout, slots).items():
        status = (tmp_path / f"{name}.pool").stat()
        assert status.st_size == size
        assert status.st_blocks * 512 >= size


def test_allocating_again_replaces_the_files(layout: CacheLayout, tmp_path: Path) -> None:
    old = PoolSet.allocate(layout, SLOTS, tmp_path)
    old.storage("full").fill_(9)
    new = PoolSet.allocate(layout, {"full": 7, "swa": 3}, tmp_path)
    assert not new.storage("full").any()
    assert (old.storage("full") == 9).all()


def test_close_keeps_files_and_refuses_use(pool_set: PoolSet, tmp_path: Path) -> None:
    kept = pool_set.storage("full")
    pool_set.close()
    pool_set.close()
    kept.fill_(1)
    assert pool_set.num_bytes == 0
    for use in (
        lambda: pool_set.storage("full"),
        lambda: pool_set.view("full", "k"),
        lambda: pool_set.data_ptr("full"),
    ):
        with pytest.raises(InvariantViolation, match="the pools are closed"):
            use()
    shared = tmp_path / "pools"
    if shared.exists():
        assert (PoolSet.attach(pool_set.layout, SLOTS, shared).storage("full") == 1).all()


def test_unknown_names_are_refused(pool_set: PoolSet) -> None:
    with pytest.raises(InvariantViolation, match="expected one of full, swa; found 'c4'"):
        pool_set.storage("c4")
    with pytest.raises(InvariantViolation, match=r"found \('full', 'x'\)"):
        pool_set.view("full", "x")


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ({"full": 5}, "expected the groups full, swa, found full"),
        ({**SLOTS, "c4": 5}, "expected the groups full, swa, found c4, full, swa"),
        ({"full": 5, "swa": 1}, r"slots of swa: expected at least 2 .*, found 1"),
    ],
    ids=["missing", "unknown", "too-few"],
)
def test_slots_that_do_not_fit_the_layout(
    layout: CacheLayout, slots: dict[str, int], message: str, tmp_path: Path
) -> None:
    for path in (None, tmp_path / "pools"):
        with pytest.raises(ConfigError, match=message):
            PoolSet.allocate(layout, slots, path)
    assert not (tmp_path / "pools").exists()


def test_attach_refuses_other_sizes_and_missing_files(layout: CacheLayout, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pool of full: expected 5120 bytes .*found no file"):
        PoolSet.attach(layout, SLOTS, tmp_path)
    PoolSet.allocate(layout, SLOTS, tmp_path)
    with pytest.raises(ConfigError, match=r"pool of full: expected 6144 bytes .*found 5120"):
        PoolSet.attach(layout, {**SLOTS, "full": 6}, tmp_path)


def test_too_little_room_is_named_before_anything_changes(
    layout: CacheLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PoolSet.allocate(layout, SLOTS, tmp_path)
    old.storage("full").fill_(9)
    held = sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir())
    small = SimpleNamespace(f_blocks=10, f_bavail=2, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda path: small)
    slots = {"full": 400, "swa": 30}
    needed = sum(pool_bytes(layout, slots).values())
    with pytest.raises(ConfigError, match=f"room for {needed} bytes, found {8192 + held}; enlarge"):
        PoolSet.allocate(layout, slots, tmp_path)
    assert (PoolSet.attach(layout, SLOTS, tmp_path).storage("full") == 9).all()


def test_room_that_vanishes_while_reserving_leaves_no_files(
    layout: CacheLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []

    def full_at_the_second(descriptor: int, offset: int, length: int) -> None:
        reserved.append(length)
        if len(reserved) == 2:
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full_at_the_second)
    with pytest.raises(ConfigError, match="expected room for"):
        PoolSet.allocate(layout, SLOTS, tmp_path)
    assert len(reserved) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_directory_is_refused(layout: CacheLayout, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ConfigError, match="expected a directory to write in, found"):
        PoolSet.allocate(layout, SLOTS, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "not a directory"
