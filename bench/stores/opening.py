"""Opening a cache from a snapshot and 100,000 events after it, in processes of their own.

The log is left as a crash would leave it, its ring still in memory; before every open, directory
and ring are put back as they were.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .figures import medians
from .traffic import leave, open_chats, progress

_BENCH = Path(__file__).resolve().parents[1]
AGAIN = 3


class SavedLog:
    """A log directory and its ring, kept so that they can be put back.

    Sealed segments and snapshots are linked and not copied: nothing changes them. The others are
    reserved as the writer reserves them, and only what was written is copied.
    """

    def __init__(self, root: Path, shared_memory: Path) -> None:
        self.directory = root / "log"
        self.shared_memory = shared_memory
        self._saved = root / "saved"

    def save(self) -> None:
        self._copy(self.directory, self._saved / "log")
        shutil.copytree(self.shared_memory, self._saved / "shm")

    def put_back(self) -> None:
        shutil.rmtree(self.directory)
        shutil.rmtree(self.shared_memory)
        self._copy(self._saved / "log", self.directory)
        shutil.copytree(self._saved / "shm", self.shared_memory)
        os.sync()  # what was just copied is not to be written while an open syncs its own

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        *sealed, last = sorted((source / "segments").glob("*.seg"))
        fixed = {*sealed, *(source / "snapshots").glob("*.snap")}

        def copy(one: str, other: str) -> None:
            if Path(one) in fixed:
                os.link(one, other)
            elif Path(one).parent == last.parent:
                _copy_reserved(Path(one), Path(other))
            else:
                shutil.copy2(one, other)

        shutil.copytree(source, target, copy_function=copy)


def _copy_reserved(source: Path, target: Path) -> None:
    data = source.read_bytes()
    with target.open("xb") as file:
        os.posix_fallocate(file.fileno(), 0, len(data))
        file.write(data.rstrip(b"\0"))
        file.flush()
        os.fdatasync(file.fileno())


def prepare(root: Path, shared_memory: Path, num_pages: int, num_events: int) -> SavedLog:
    """Close the log in ``root`` with a snapshot, add so many events, and leave it."""
    saved = SavedLog(root, shared_memory)
    open_chats(saved.directory, shared_memory, num_pages)[0].close()
    cache, chats = open_chats(saved.directory, shared_memory, num_pages, seed=1)
    with progress("events after the snapshot", num_events):
        chats.run(num_events)
    leave(cache)
    saved.save()
    return saved


def measure(saved: SavedLog, num_pages: int, rounds: int) -> dict[str, Any]:
    """Medians of the first open of a process, its code read from disk, and of those after it.

    What they run was compiled when the log was made.
    """
    first: list[dict[str, float]] = []
    again: list[dict[str, float]] = []
    for _ in range(rounds):
        arguments = [saved.directory.parent, saved.shared_memory, num_pages, AGAIN]
        child = subprocess.run(
            [sys.executable, "-m", "stores.opening_child", *map(str, arguments)],
            cwd=_BENCH,
            check=True,
            capture_output=True,
            text=True,
        )
        opened = [json.loads(line) for line in child.stdout.splitlines()]
        first.append(opened[0])
        again += opened[1:]
    snapshot = max((saved.directory / "snapshots").glob("*.snap"))
    return {
        "pages_of_each_history_pool": num_pages,
        "snapshot_bytes": snapshot.stat().st_size,
        "events_replayed": first[0]["events_replayed"],
        "first": medians(first),
        "again": medians(again),
    }
