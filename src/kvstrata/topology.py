"""Static topology: where the pools are, sealed, so that captured graphs keep their addresses."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kvstrata.core.errors import InvariantViolation

if TYPE_CHECKING:
    import torch

    from kvstrata.kernels.pools import PoolSet

__all__ = ["PoolAddress", "Topology", "state_data_ptrs"]


@dataclass(frozen=True)
class PoolAddress:
    """Where the pages of one group are.

    Attributes:
        address: of slot 0, in bytes.
        stride: bytes from one slot to the next.
        slots: pages, the scratch page (slot 0) included.
        page_bytes: bytes of a page that count.
    """

    address: int
    stride: int
    slots: int
    page_bytes: int

    def page(self, slot: int) -> int:
        """Address of a page; slot 0 is scratch.

        Raises:
            InvariantViolation: the pool has no such slot.
        """
        if not 0 <= slot < self.slots:
            raise InvariantViolation(f"expected a slot in 0 to {self.slots - 1}, found {slot}")
        return self.address + slot * self.stride


def state_data_ptrs(pools: "PoolSet") -> Mapping[str, PoolAddress]:
    """Base address, stride and slots of every pool, by group name.

    Raises:
        InvariantViolation: the pools are closed.
    """
    found = {}
    for group in pools.layout.groups:
        storage = pools.storage(group.name)
        found[group.name] = PoolAddress(
            pools.data_ptr(group.name), storage.stride(0), storage.shape[0], storage.shape[1]
        )
    return MappingProxyType(found)


class Topology:
    """The pools as they were when the topology was sealed.

    Args:
        pools: the pools.
    """

    def __init__(self, pools: "PoolSet") -> None:
        self.pointers = state_data_ptrs(pools)
        self._storages: list[tuple[str, torch.Tensor, int, int]] = [
            (name, pools.storage(name), at.address, at.stride * at.slots)
            for name, at in self.pointers.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {name: asdict(at) for name, at in self.pointers.items()}

    def check(self, pools: "PoolSet") -> None:
        """Check that no pool moved: one look a group, whatever the number of pages.

        Raises:
            InvariantViolation: names the pool that did.
        """
        for name, sealed, address, size in self._storages:
            storage = pools.storage(name)
            if storage is sealed and storage.data_ptr() == address and storage.numel() == size:
                continue
            raise InvariantViolation(
                f"pool {name}: expected {size} bytes at {address:#x} as when the topology was "
                f"sealed, found {storage.numel()} at {storage.data_ptr():#x}: a captured graph "
                "would read other memory"
            )
