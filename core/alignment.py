"""What each device demands of the addresses and strides of pages.

A rule states the hardware's need, not what an allocator happens to give: an engine may hand over
a pool that begins inside a larger allocation. ``cudaMalloc`` aligns to at least 256 bytes (CUDA
C++ Programming Guide, "Device Memory Accesses"), so a pool that is an allocation of its own meets
every CUDA rule here; pages, at multiples of 64 bytes, meet the rules of every processor. Tiles
in shared memory, which TMA's swizzle wants at 128 bytes, are the kernel's own and bind no page.

Sources: CUDA C++ Programming Guide, "Device Memory Accesses" (a word of 16 bytes that is not
naturally aligned gives wrong results); CUDA Driver API, ``cuTensorMapEncodeTiled``
(``globalAddress`` and ``globalStrides``: 16 bytes; 32 for packed types of 4 and 6 bits); Linux
``open(2)``, O_DIRECT, and ``statx(2)``, STATX_DIOALIGN.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import ConfigError

__all__ = [
    "CUDA_ALLOCATION_BYTES",
    "RULES",
    "AlignmentRule",
    "Misaligned",
    "misaligned",
    "rule_for",
]

CUDA_ALLOCATION_BYTES = 256  # every cudaMalloc begins at a multiple of this


@dataclass(frozen=True)
class AlignmentRule:
    """What one device demands.

    Args:
        device: "cpu", "cuda:<major compute capability>", "direct" or "direct:512".
        address: bytes of which every page's address is a multiple.
        stride: bytes of which the distance of two pages is a multiple.
        why: what would go wrong otherwise, for people.
    """

    device: str
    address: int
    stride: int
    why: str


class Misaligned(NamedTuple):
    """One address or stride that breaks a rule."""

    item: int
    """Index into the arrays asked about."""
    reason: str
    """``"UNALIGNED_ADDRESS"`` or ``"UNALIGNED_STRIDE"``."""
    expected: int
    """Bytes of which it had to be a multiple."""
    found: int
    """The address or stride itself."""


def _table(*rules: AlignmentRule) -> Mapping[str, AlignmentRule]:
    return {rule.device: rule for rule in rules}


_VECTOR = "kernels load 16 bytes at once; such a load, misaligned, faults or reads other words"
_TMA = "TMA refuses a tensor whose address or stride is no multiple of 16 bytes"
_PACKED = "TMA wants 32 bytes for packed types of 4 and 6 bits, in which index keys are stored"
_SECTOR = "O_DIRECT fails with EINVAL off the file system's blocks"

RULES: Mapping[str, AlignmentRule] = _table(
    AlignmentRule("cpu", 64, 64, "one cache line, which AVX-512 and the checksum load whole"),
    AlignmentRule("cuda:7", 16, 16, _VECTOR),
    AlignmentRule("cuda:8", 16, 16, _VECTOR),
    AlignmentRule("cuda:9", 16, 16, _TMA),
    AlignmentRule("cuda:10", 32, 32, _PACKED),
    AlignmentRule("cuda:12", 32, 32, _PACKED),
    AlignmentRule("direct", 4096, 4096, _SECTOR),
    AlignmentRule("direct:512", 512, 512, f"{_SECTOR}, 512 bytes at the least"),
)


def rule_for(device: str, capability: tuple[int, int] | None = None) -> AlignmentRule:
    """Look up what a device demands.

    Args:
        device: "cpu", "cuda" or "cuda:<index>" as torch names them, "direct" or "direct:512".
        capability: major and minor compute capability of a CUDA device; ignored elsewhere.

    Raises:
        ConfigError: no rule is known for the device; names those that are.
    """
    name = device
    if device.partition(":")[0] == "cuda":
        if capability is None:
            raise ConfigError(f"device {device!r}: expected its compute capability, found none")
        name = f"cuda:{capability[0]}"
    elif device.partition(":")[0] == "cpu":
        name = "cpu"
    if name not in RULES:
        asked = device if capability is None else f"{device}, compute capability {capability}"
        raise ConfigError(
            f"alignment: expected a device one of {', '.join(RULES)} "
            f"(cuda by major compute capability), found {asked}"
        )
    return RULES[name]


def misaligned(
    rule: AlignmentRule, addresses: NDArray[np.int64], strides: NDArray[np.int64]
) -> list[Misaligned]:
    """Find the addresses and strides that break a rule.

    Args:
        rule: of the device that reads them.
        addresses: int64[n], bytes: where pools, pages or tensors begin.
        strides: int64[n], bytes: the distance of two pages at the same index.

    Returns:
        What breaks the rule, by index, an address before the stride of the same index; empty if
        nothing does.

    Raises:
        ConfigError: the two arrays differ in length.
    """
    addresses = np.asarray(addresses, dtype=np.int64)
    strides = np.asarray(strides, dtype=np.int64)
    if addresses.ndim != 1 or addresses.shape != strides.shape:
        raise ConfigError(
            "alignment: expected as many addresses as strides, "
            f"found shapes {addresses.shape} and {strides.shape}"
        )
    bad_address = addresses % rule.address != 0
    bad_stride = strides % rule.stride != 0
    found = []
    for index in np.flatnonzero(bad_address | bad_stride).tolist():
        if bad_address[index]:
            address = int(addresses[index])
            found.append(Misaligned(index, "UNALIGNED_ADDRESS", rule.address, address))
        if bad_stride[index]:
            stride = int(strides[index])
            found.append(Misaligned(index, "UNALIGNED_STRIDE", rule.stride, stride))
    return found
