"""A machine that tells of its calls, fails them, or does them by halves; and its store."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from kvstrata.core.words import Arena
from kvstrata.eventstore.log.formats import Buffer
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.local_files import Files
from kvstrata.tiers.store import Flags, StoreFault
from kvstrata.tiers.syncing import SyncQueues


class WatchedFiles(Files):
    """Tells a hook of every call that changes something, before it is made.

    Attributes:
        calls: their names, and the bare name of the file where there is one.
        hook: called with the call's name; what it raises, the call raises.
        at_most_bytes: a read or write moves no more at once.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.hook: Callable[[str], None] = lambda call: None
        self.at_most_bytes = 1 << 40

    def fail(self, call: str, error: int) -> None:
        """From now on."""

        def hook(name: str) -> None:
            if name == call:
                raise OSError(error, os.strerror(error))

        self.hook = hook

    def _tell(self, call: str, path: Path | None = None) -> None:
        self.calls.append((call, path.name if path else ""))
        self.hook(call)

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._tell("pwritev")
        first = memoryview(buffers[0])[: self.at_most_bytes]
        if len(first) < len(buffers[0]):
            return super().pwritev(descriptor, [first], offset)
        return super().pwritev(descriptor, buffers, offset)

    def preadv(self, descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        self._tell("preadv")
        first = buffers[0][: self.at_most_bytes]
        if len(first) < len(buffers[0]):
            return super().preadv(descriptor, [first], offset)
        return super().preadv(descriptor, buffers, offset)

    def read_whole(self, paths: list[str], parts: Arena, num_bytes: int, checksums: Arena) -> Flags:
        """None: every byte is to come by the calls that are watched."""
        return np.zeros(len(paths), dtype=np.bool_)

    def fdatasync(self, descriptor: int) -> None:
        self._tell("fdatasync")
        super().fdatasync(descriptor)

    def sync_all(self, queues: SyncQueues, descriptors: Sequence[int], data_only: bool) -> None:
        """One after another, by the calls that are watched."""
        for descriptor in descriptors:
            if data_only:
                self.fdatasync(descriptor)
            else:
                self.sync_directory(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    def link(self, source: Path, target: Path) -> None:
        self._tell("link")
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._tell("unlink")
        super().unlink(path)

    def sync_directory(self, path: Path) -> None:
        self._tell("sync_directory", path)
        super().sync_directory(path)


def temporaries(store: LocalStore) -> list[Path]:
    return sorted((store.root / "temporary").iterdir())


def faulty(call: Callable[[], object]) -> StoreFault:
    with pytest.raises(StoreFault) as caught:
        call()
    return caught.value


def watched_store(folder: Path, files: WatchedFiles) -> LocalStore:
    """A store of which nothing was told yet; it syncs as on a disk, wherever the tests run."""
    store = LocalStore(folder / "store", files)
    store.is_memory = False
    files.calls.clear()
    return store
