"""What copying pages means, in torch."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["copy_pages_reference"]


def copy_pages_reference(
    storage: torch.Tensor,
    source_slots: NDArray[np.integer[Any]],
    target_slots: NDArray[np.integer[Any]],
) -> None:
    """Copy page ``source_slots[i]`` to page ``target_slots[i]`` for every ``i``.

    Args:
        storage: uint8[num_slots, page_bytes] on any device.
        source_slots: integers[n].
        target_slots: integers[n], distinct, none of them a source.

    Mutates: the target pages.
    """
    storage[torch.as_tensor(target_slots).long()] = storage[torch.as_tensor(source_slots).long()]
