"""The page checksum in torch, for tensors on any device."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvstrata.core.checksum import GOLDEN, ROW_WORDS, SEED, row_multipliers, word_multipliers

__all__ = ["page_checksums_reference"]


def page_checksums_reference(
    storage: torch.Tensor, slots: NDArray[np.integer[Any]]
) -> torch.Tensor:
    """Checksum pages of a pool, straight from the definition.

    torch has no unsigned 64-bit arithmetic; signed products and sums wrap to the same bits.

    Args:
        storage: uint8[num_slots, page_bytes], ``page_bytes`` a multiple of 4.
        slots: integers[n].

    Returns:
        int64[n] on the storage's device.
    """
    num_bytes = storage.shape[1]
    num_rows = -(-num_bytes // (4 * ROW_WORDS))
    chosen = storage[torch.as_tensor(slots).long().to(storage.device)]
    words = chosen.view(torch.int32).long() & 0xFFFF_FFFF
    missing = num_rows * ROW_WORDS - words.shape[1]
    rows = torch.nn.functional.pad(words, (0, missing)).view(-1, num_rows, ROW_WORDS)
    columns = torch.from_numpy(word_multipliers().astype(np.int64)).to(storage.device)
    multipliers = torch.from_numpy(row_multipliers(num_rows).view(np.int64).copy())
    row_sums = (rows * columns).sum(dim=2)
    start = (SEED + num_bytes * GOLDEN) & ((1 << 64) - 1)
    signed = start - (1 << 64) if start >> 63 else start
    return (row_sums * multipliers.to(storage.device)).sum(dim=1) + signed
