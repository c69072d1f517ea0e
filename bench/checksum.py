"""How close the page checksum, and the page copy, come to the speed of memory.

Thread CPU time, on data larger than the caches. A ratio of one run counts, a speed alone does
not: run it as ``python bench/checksum.py``.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from kvstrata.core.layout import preset
from kvstrata.kernels.checksum import page_checksums
from kvstrata.kernels.copy import copy_pages
from kvstrata.kernels.gather import gather_entries

TARGET = 0.70


def gigabytes_per_second(work: Callable[[], object], num_bytes: int, rounds: int) -> float:
    """The best of several rounds, after one that warms up."""
    work()
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time_ns()
        work()
        best = min(best, time.thread_time_ns() - start)
    return num_bytes / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=768, help="size of the pool")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    group = preset("deepseek-v4-flash").group("c4")
    num_slots = arguments.megabytes * 1_000_000 // group.page_bytes
    words = np.random.default_rng(0).integers(
        0, 2**63, (num_slots, group.page_bytes // 8), dtype=np.int64
    )
    storage = torch.from_numpy(words.view(np.uint8))
    slots = np.random.default_rng(1).permutation(num_slots)
    half = num_slots // 2

    def speed(work: Callable[[], object], num_bytes: int = words.nbytes) -> float:
        return gigabytes_per_second(work, num_bytes, arguments.rounds)

    read = speed(words.sum)
    checksum = speed(lambda: page_checksums(storage, slots))
    copied = half * group.page_bytes
    plain = np.empty_like(words[:half])
    memcpy = speed(lambda: np.copyto(plain, words[:half]), copied)
    copy = speed(lambda: copy_pages(storage, slots[:half], slots[half : 2 * half]), copied)
    component = group.component("entry")
    view = storage.view(num_slots, group.num_layers, component.rows, component.row_bytes)
    num_entries = num_slots * component.rows
    dense = torch.empty((num_entries, component.row_bytes), dtype=torch.uint8)
    gather = speed(
        lambda: gather_entries(view, slots, 0, num_entries, layer=0, out=dense), dense.numel()
    )

    print(f"{num_slots} pages of {group.page_bytes:,} bytes, GB/s of thread CPU time")
    print(f"  read all (numpy sum)       {read:6.1f}")
    print(f"  page checksums             {checksum:6.1f}   {checksum / read:4.0%} of reading")
    print(f"  copy all (numpy copyto)    {memcpy:6.1f}")
    print(f"  copy pages                 {copy:6.1f}   {copy / memcpy:4.0%} of copying")
    print(f"  gather one layer's entries {gather:6.1f}   {gather / memcpy:4.0%} of copying")
    verdict = "reached" if checksum >= TARGET * read else "NOT reached"
    print(f"checksum target {TARGET:.0%} of reading: {verdict}")


if __name__ == "__main__":
    main()
