"""A folder as a store: on a tmpfs the host tier, on a disk the disk tier; docs/format.md.

An object gets its name by ``link``, which replaces nothing, once its bytes are durable. Until
then it is a temporary that its writer holds locked (``flock``), so that the leavings of a dead
writer can be told from the work of a live one.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import Reason
from kvstrata.core.words import Arena
from kvstrata.eventstore.log.tmpfs import place_of

from .local_files import Files, fault_of, read_all, write_all
from .local_locks import READ_FLAGS, lock_within, remove_if_dead, temporary_file
from .schema import parse_name
from .store import Buffer, Bytes, Flags, StoredObject, StoreFault, check_name
from .syncing import SyncQueues

__all__ = ["QUARANTINE_KEPT", "LocalStore"]

QUARANTINE_KEPT: Final = 64
"""So many bad objects are kept for a look; the oldest make room."""
_OPEN_AT_ONCE: Final = 64
"""Files or folders that one call keeps open: others of this process want descriptors too."""


class LocalStore:
    """Objects as files below a folder, shared by any number of threads and processes.

    Args:
        root: the folder, made where there is none.
        files: the machine.

    Raises:
        ConfigError: the folder cannot be used.
    """

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self.root = root.absolute()
        self.url = self.root.as_uri()
        self._files = files or Files()
        self._queues = SyncQueues()
        self._objects = self.root / "objects"
        self._temporary = self.root / "temporary"
        self._quarantine = self.root / "quarantine"
        self._claims = self.root / "claims"
        # Folders whose own entry is known to be durable.
        self._durable: set[Path] = set()
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self._objects, self._temporary, self._quarantine, self._claims):
                folder.mkdir(mode=0o700, exist_ok=True)
            self.is_memory = place_of(self.root, self.root).is_memory
            self._sync(self.root)
        except OSError as error:
            raise ConfigError(
                f"expected a folder to keep objects in, found {self.root}: {error}; choose "
                "another, or give this user the right to write there"
            ) from error

    def put(self, name: str, parts: Sequence[Bytes], settle: bool = True) -> bool:
        """See :meth:`.Store.put`."""
        target = self._objects / check_name(name)
        try:
            if self._is_there(target):
                return self._left_as_it_was(target, settle)
            self._make_folders(target.parent)
            with temporary_file(self._files, self._temporary) as (temporary, descriptor):
                write_all(self._files, descriptor, parts)
                if not self.is_memory:
                    self._files.fdatasync(descriptor)
                try:
                    self._link(temporary, target)
                except FileExistsError:
                    return self._left_as_it_was(target, settle)
                if settle:
                    self._sync(target.parent)
                return True
        except OSError as error:
            raise fault_of(error, name, is_write=True) from error

    def put_many(self, names: Sequence[str], objects: Sequence[Sequence[Bytes]]) -> Flags:
        """See :meth:`.Store.put_many`; under a claim on each name, had at once or not at all."""
        parts = [
            self._put_some(names[at : at + _OPEN_AT_ONCE], objects[at : at + _OPEN_AT_ONCE])
            for at in range(0, len(names), _OPEN_AT_ONCE)
        ]
        return np.concatenate([np.zeros(0, dtype=np.bool_), *parts])

    def _put_some(self, names: Sequence[str], objects: Sequence[Sequence[Bytes]]) -> Flags:
        """All are on their way to the disk before the first is waited for: they share commits."""
        written = np.zeros(len(names), dtype=np.bool_)
        claims: dict[str, bool] = {}
        begun: list[tuple[int, Path, int, Path]] = []
        with ExitStack() as stack:
            for number, (name, parts) in enumerate(zip(names, objects, strict=True)):
                with suppress(OSError, StoreFault):
                    target = self._objects / check_name(name)
                    digits = target.parent.name
                    if digits not in claims:
                        claims[digits] = stack.enter_context(self.claim(name, 0.0))
                    if not claims[digits] or self._is_there(target):
                        continue
                    self._make_folders(target.parent)
                    temporary, descriptor = stack.enter_context(
                        temporary_file(self._files, self._temporary)
                    )
                    write_all(self._files, descriptor, parts)
                    if not self.is_memory:
                        self._files.start_writing(descriptor)
                    begun.append((number, temporary, descriptor, target))
            try:
                self._sync_all([descriptor for _, _, descriptor, _ in begun], data_only=True)
            except OSError:
                return written
            for number, temporary, _, target in begun:
                with suppress(OSError):
                    self._link(temporary, target)
                    written[number] = True
        return written

    def settle(self, names: Iterable[str]) -> None:
        """See :meth:`.Store.settle`; all folders at once: they share the disk's commits."""
        if self.is_memory:
            return
        folders = sorted({(self._objects / check_name(name)).parent for name in names})
        try:
            for at in range(0, len(folders), _OPEN_AT_ONCE):
                self._sync_folders(folders[at : at + _OPEN_AT_ONCE])
        except OSError as error:
            raise fault_of(error, self.url, is_write=True) from error

    def _sync_folders(self, folders: list[Path]) -> None:
        try:
            with ExitStack() as stack:
                descriptors = []
                for folder in folders:
                    flags = os.O_RDONLY | os.O_DIRECTORY
                    descriptors.append(self._files.open(folder, flags))
                    stack.callback(os.close, descriptors[-1])
                self._sync_all(descriptors, data_only=False)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            for folder in folders:
                self._sync(folder)

    def read(self, name: str, parts: Sequence[Buffer]) -> None:
        """See :meth:`.Store.read`."""
        expected = sum(part.nbytes for part in parts)
        try:
            descriptor, found = self._open(name)
            try:
                if found == expected:
                    found = read_all(self._files, descriptor, parts)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise fault_of(error, name, is_write=False) from error
        if found != expected:
            cut = found < expected
            reason = Reason.OBJECT_TRUNCATED if cut else Reason.OBJECT_TOO_LONG
            raise StoreFault(reason, f"{name}: expected {expected} bytes, found {found}")

    def read_many(
        self, names: Sequence[str], parts: Arena, num_bytes: int, checksums: Arena
    ) -> Flags:
        """See :meth:`.Store.read_many`."""
        folder = f"{self._objects}/"
        paths = [folder + check_name(name) for name in names]
        return self._files.read_whole(paths, parts, num_bytes, checksums)

    def size(self, name: str) -> int | None:
        """See :meth:`.Store.size`."""
        path = self._objects / check_name(name)
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise fault_of(error, name, is_write=False) from error
        return _size_of_file(status, name)

    def objects(self, namespace: str | None = None) -> Iterator[StoredObject]:
        """See :meth:`.Store.objects`; sorted by name."""
        for outer in [namespace] if namespace is not None else self._names(self._objects):
            for inner in self._names(self._objects / outer):
                for entry in self._names(self._objects / outer / inner):
                    name = f"{outer}/{inner}/{entry}"
                    if parse_name(name) is None:
                        continue
                    try:
                        status = (self._objects / name).lstat()
                    except OSError:
                        continue  # removed since it was listed
                    if stat.S_ISREG(status.st_mode):
                        yield StoredObject(name, status.st_size, status.st_mtime)

    def head_bytes(self, name: str, count: int) -> bytes:
        """See :meth:`.Store.head_bytes`."""
        head = bytearray(count)
        try:
            descriptor, _ = self._open(name)
            try:
                found = read_all(self._files, descriptor, [memoryview(head)])
            finally:
                os.close(descriptor)
        except OSError as error:
            raise fault_of(error, name, is_write=False) from error
        return bytes(head[:found])

    def delete(self, name: str) -> bool:
        """See :meth:`.Store.delete`; not synced: one that comes back after a crash is whole."""
        try:
            os.unlink(self._objects / check_name(name))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise fault_of(error, name, is_write=True) from error
        return True

    def set_aside(self, name: str) -> None:
        """See :meth:`.Store.set_aside`; the newest 64 are kept."""
        source = self._objects / check_name(name)
        # Nanoseconds in 20 digits: the names sort by age.
        aside = self._quarantine / f"{time.time_ns():020d}.{name.replace('/', '.')}"
        try:
            self._files.rename(source, aside)
            self._sync(source.parent)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not os.path.lexists(source):
                return
            raise fault_of(error, name, is_write=True) from error
        for oldest in self._names(self._quarantine)[:-QUARANTINE_KEPT]:
            with suppress(OSError):  # another process was faster
                self._files.unlink(self._quarantine / oldest)

    def collect(self, older_than_s: float = 3600) -> int:
        """See :meth:`.Store.collect`."""
        before_s = time.time() - older_than_s
        return sum(
            remove_if_dead(self._files, self._temporary / name, before_s)
            for name in self._names(self._temporary)
        )

    @contextmanager
    def claim(self, name: str, timeout_s: float) -> Iterator[bool]:
        """See :meth:`.Store.claim`; one of 256 lock files, by the key's first two digits."""
        _, digits, _ = check_name(name).split("/")
        try:
            descriptor = self._files.open(self._claims / digits, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise fault_of(error, name, is_write=True) from error
        try:
            try:
                is_mine = lock_within(descriptor, timeout_s)
            except OSError as error:
                raise fault_of(error, name, is_write=True) from error
            yield is_mine
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing but the kernel's queues is held between calls."""
        self._queues.close()

    def _open(self, name: str) -> tuple[int, int]:
        """Descriptor and size of an object; never waits, whatever stands in its place."""
        descriptor = self._files.open(self._objects / check_name(name), READ_FLAGS)
        try:
            return descriptor, _size_of_file(os.fstat(descriptor), name)
        except BaseException:
            os.close(descriptor)
            raise

    def _link(self, temporary: Path, target: Path) -> None:
        try:
            self._files.link(temporary, target)
        except FileNotFoundError:  # somebody removed the empty folder meanwhile
            self._durable.clear()
            self._make_folders(target.parent)
            self._files.link(temporary, target)

    def _is_there(self, target: Path) -> bool:
        try:
            status = target.lstat()
        except FileNotFoundError:
            return False
        _size_of_file(status, target.name)
        return True

    def _left_as_it_was(self, target: Path, settle: bool) -> bool:
        # Its writer may have died between link and sync.
        self._is_there(target)
        if settle:
            self._sync(target.parent)
        return False

    def _make_folders(self, folder: Path) -> None:
        """The namespace's folder, and all 256 below it for the price of one sync.

        Another process may have made but not synced them.
        """
        if folder in self._durable:
            return
        namespace = folder.parent
        namespace.mkdir(mode=0o700, exist_ok=True)
        self._sync(self._objects)
        for number in range(256):
            (namespace / f"{number:02x}").mkdir(mode=0o700, exist_ok=True)
        self._sync(namespace)
        self._durable.update(namespace / f"{number:02x}" for number in range(256))

    def _sync(self, folder: Path) -> None:
        if not self.is_memory:
            self._files.sync_directory(folder)

    def _sync_all(self, descriptors: list[int], data_only: bool) -> None:
        if not self.is_memory:
            self._files.sync_all(self._queues, descriptors, data_only)

    def _names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise fault_of(error, str(folder), is_write=False) from error


def _size_of_file(status: os.stat_result, name: str) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise StoreFault(
            Reason.OBJECT_NOT_A_FILE,
            f"{name}: expected a file, found {stat.filemode(status.st_mode)}",
        )
    return status.st_size
