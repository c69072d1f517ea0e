"""Pools: the fixed storage of every group, as torch tensors that never move.

A pool is one uint8 tensor ``[slots, page_bytes]``; typed views of a page's components share its
memory. Slot 0 is scratch: a target for padding, never handed out. In a directory on tmpfs a pool
is a file ``<group>.pool`` of exactly ``slots * page_bytes`` bytes, mapped into the process; it
outlives the process, and whether its bytes are to be trusted is for the caller to know.
"""

import errno
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from kvstrata.core.errors import ConfigError, InvariantViolation
from kvstrata.core.layout import CacheLayout

from .checksum import page_checksums
from .copy import copy_pages

__all__ = ["POOL_SUFFIX", "TORCH_DTYPES", "PoolSet", "pool_bytes"]

_Key = TypeVar("_Key", str, tuple[str, str])

POOL_SUFFIX = ".pool"
TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "u8": torch.uint8,
    }
)


def pool_bytes(layout: CacheLayout, slots: Mapping[str, int]) -> dict[str, int]:
    """Sizes of the pools a layout needs.

    Args:
        layout: the groups.
        slots: pages of each group, the scratch page included; at least 2.

    Returns:
        Group name to bytes, in the layout's order.

    Raises:
        ConfigError: a group is missing, unknown, or has fewer than 2 slots.
    """
    names = [group.name for group in layout.groups]
    if set(slots) != set(names):
        raise ConfigError(
            f"slots: expected the groups {', '.join(names)}, found {', '.join(sorted(slots))}"
        )
    for name in names:
        if slots[name] < 2:
            raise ConfigError(
                f"slots of {name}: expected at least 2 (scratch and one page), found {slots[name]}"
            )
    return {group.name: slots[group.name] * group.page_bytes for group in layout.groups}


class PoolSet:
    """The pools of all groups of a layout.

    Made by :meth:`allocate` or :meth:`attach`. Addresses stay the same until :meth:`close`.
    """

    def __init__(self, layout: CacheLayout, storages: Mapping[str, torch.Tensor]) -> None:
        self.layout = layout
        self._storages = dict(storages)
        self._views = {
            (group.name, component.name): _component_view(
                self._storages[group.name], layout, group.name, component.name
            )
            for group in layout.groups
            for component in group.components
        }

    @classmethod
    def allocate(
        cls, layout: CacheLayout, slots: Mapping[str, int], path: Path | None = None
    ) -> "PoolSet":
        """Make new pools, all bytes zero.

        Args:
            layout: the groups.
            slots: pages of each group, the scratch page included.
            path: directory on tmpfs for pools that outlive the process; private memory if None.
                Pool files of these names that are there already are replaced.

        Raises:
            ConfigError: sizes that do not fit the layout, or too little room at ``path``, named
                with the bytes needed and found; nothing is then changed there.
        """
        sizes = pool_bytes(layout, slots)
        if path is not None:
            _create_files(path, sizes)
            return cls.attach(layout, slots, path)
        storages = {
            name: torch.zeros(size, dtype=torch.uint8).view(slots[name], -1)
            for name, size in sizes.items()
        }
        return cls(layout, storages)

    @classmethod
    def attach(cls, layout: CacheLayout, slots: Mapping[str, int], path: Path) -> "PoolSet":
        """Map pools that :meth:`allocate` made at ``path``, bytes as they are.

        Args:
            layout: the groups, as when the pools were made.
            slots: pages of each group, as when the pools were made.
            path: their directory.

        Raises:
            ConfigError: a file is missing or has another size than layout and slots demand.
        """
        sizes = pool_bytes(layout, slots)
        for name, size in sizes.items():
            file = _pool_file(path, name)
            found = file.stat().st_size if file.is_file() else None
            if found != size:
                raise ConfigError(
                    f"pool of {name}: expected {size} bytes at {file}, found "
                    f"{'no file' if found is None else found}; allocate the pools anew"
                )
        storages = {
            name: _map_file(_pool_file(path, name), size).view(slots[name], -1)
            for name, size in sizes.items()
        }
        return cls(layout, storages)

    def storage(self, group: str) -> torch.Tensor:
        """The bytes of a group's pool.

        Returns:
            uint8[slots, page_bytes], contiguous; the same tensor at every call.

        Raises:
            InvariantViolation: no such group, or the pools are closed.
        """
        return _look_up(self._storages, group)

    def view(self, group: str, component: str) -> torch.Tensor:
        """One component of every page of a group's pool, typed.

        Returns:
            Tensor[slots, layers, rows, *shape] of the component's dtype, strided over the pool's
            memory; the same tensor at every call.

        Raises:
            InvariantViolation: no such component, or the pools are closed.
        """
        return _look_up(self._views, (group, component))

    def words(self, group: str) -> NDArray[np.uint64]:
        """The bytes of a group's pool for compiled code, without a copy.

        Returns:
            uint64[slots, page_bytes // 8].

        Raises:
            InvariantViolation: no such group, or the pools are closed.
        """
        return self.storage(group).numpy().view(np.uint64)

    def checksums(self, group: str, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Checksums of a group's pages; see :func:`.checksum.page_checksums`."""
        return page_checksums(self.storage(group), slots)

    def copy(self, group: str, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copy pages of a group onto others; see :func:`.copy.copy_pages`."""
        copy_pages(self.storage(group), sources, targets)

    def data_ptr(self, group: str) -> int:
        """Address of slot 0 of a group's pool.

        Raises:
            InvariantViolation: no such group, or the pools are closed.
        """
        return self.storage(group).data_ptr()

    def num_slots(self, group: str) -> int:
        """Pages of a group's pool, the scratch page included.

        Raises:
            InvariantViolation: no such group, or the pools are closed.
        """
        return self.storage(group).shape[0]

    @property
    def num_bytes(self) -> int:
        """Bytes of all pools; 0 when closed."""
        return sum(storage.numel() for storage in self._storages.values())

    def close(self) -> None:
        """Give the pools up; files stay. Memory goes when the last tensor over it does.

        Mutates: the pool set, which then refuses every look-up. Closing twice is allowed.
        """
        self._views.clear()
        self._storages.clear()


def _look_up(table: Mapping[_Key, torch.Tensor], key: _Key) -> torch.Tensor:
    try:
        return table[key]
    except KeyError:
        known = ", ".join(str(known) for known in table) or "none: the pools are closed"
        raise InvariantViolation(f"pools: expected one of {known}; found {key!r}") from None


def _component_view(
    storage: torch.Tensor, layout: CacheLayout, group_name: str, component_name: str
) -> torch.Tensor:
    group = layout.group(group_name)
    component = group.component(component_name)
    shape = group.component_shape(component_name)
    offset = group.component_offset(component_name)
    num_bytes = group.num_layers * component.rows * component.row_bytes
    flat = storage[:, offset : offset + num_bytes].view(TORCH_DTYPES[component.dtype])
    return flat.view(storage.shape[0], *shape)


def _pool_file(path: Path, group_name: str) -> Path:
    return path / f"{group_name}{POOL_SUFFIX}"


def _map_file(file: Path, size: int) -> torch.Tensor:
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        # All pages at once: one by one, on first use, costs ten times as much.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        mapping = mmap.mmap(descriptor, size, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(descriptor)
    # The tensor keeps the mapping alive but does not export its buffer: an explicit close would
    # unmap it under the tensor. So nobody else holds it, and it goes with the last tensor.
    return torch.frombuffer(mapping, dtype=torch.uint8)


def _create_files(path: Path, sizes: Mapping[str, int]) -> None:
    """Reserve every byte of new pool files, so that no later write can meet a full tmpfs."""
    files = {_pool_file(path, name): size for name, size in sizes.items()}
    needed = sum(sizes.values())
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        replaced = sum(file.stat().st_blocks * 512 for file in files if file.is_file())
        room = os.statvfs(path)
    except OSError as error:
        raise _not_writable(path, error) from error
    found = room.f_bavail * room.f_frsize + replaced
    # A tmpfs without a limit reports no blocks at all.
    if room.f_blocks and found < needed:
        raise _no_room(path, needed, found)
    try:
        _reserve_all(files)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_room(path, needed, found) from error
        raise _not_writable(path, error) from error


def _reserve_all(files: Mapping[Path, int]) -> None:
    """Replace the files, or leave none of them."""
    for file in files:
        file.unlink(missing_ok=True)
    try:
        for file, size in files.items():
            _reserve(file, size)
    except OSError:
        for file in files:
            file.unlink(missing_ok=True)
        raise


def _reserve(file: Path, size: int) -> None:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def _no_room(path: Path, needed: int, found: int) -> ConfigError:
    return ConfigError(
        f"pools at {path}: expected room for {needed} bytes, found {found}; "
        f"enlarge that file system or give the pools fewer slots"
    )


def _not_writable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"pools at {path}: expected a directory to write in, found {error}")
