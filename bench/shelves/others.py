"""The same pages in safetensors files, and in plain ones: read by as many threads, unchecked."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from stores.figures import timed

from .prefix import LAYOUT, WORKERS, forget, warm

Pages = dict[str, "np.ndarray[Any, np.dtype[np.uint8]]"]


def pages_of(number: int) -> Pages:
    """Pages of one block, by group."""
    rng = np.random.default_rng(number)
    return {
        group.name: rng.integers(0, 255, group.page_bytes, dtype=np.uint8)
        for group in LAYOUT.history_groups
    }


def write_safetensors(folder: Path, num_blocks: int) -> None:
    """One file a block."""
    folder.mkdir()
    for number in range(num_blocks):
        save_file(pages_of(number), folder / f"{number}.safetensors")


def write_plain(folder: Path, num_blocks: int) -> None:
    """One file a block, its pages one after another."""
    folder.mkdir()
    for number in range(num_blocks):
        (folder / f"{number}.pages").write_bytes(
            b"".join(p.tobytes() for p in pages_of(number).values())
        )


def read(
    folder: Path, num_blocks: int, is_cold: bool, read_one: Callable[[Path, Pages], int]
) -> dict[str, float]:
    """Read every block into pages of its own: wall and CPU seconds, and bytes."""
    forget(folder) if is_cold else warm(folder)
    targets = [
        {g.name: np.empty(g.page_bytes, dtype=np.uint8) for g in LAYOUT.history_groups}
        for _ in range(num_blocks)
    ]
    for target in targets:
        for page in target.values():
            page[:] = 0  # the pool's memory is there as well
    paths = sorted(folder.iterdir(), key=lambda path: int(path.stem))
    with ThreadPoolExecutor(WORKERS) as threads:
        sizes, took = timed(lambda: sum(threads.map(read_one, paths, targets)))
    return took | {"bytes": float(sizes)}


def read_safetensors(path: Path, pages: Pages) -> int:
    """One block by safetensors, copied where the kernels read it."""
    found = load_file(path)
    for name, page in pages.items():
        page[:] = found[name]
    return sum(page.nbytes for page in pages.values())


def read_plain(path: Path, pages: Pages) -> int:
    """One block by plain reads into its pages."""
    with path.open("rb", buffering=0) as file:
        return sum(file.readinto(page) for page in pages.values())
