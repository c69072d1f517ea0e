"""A machine whose power can fail after any call: it keeps only what was synced, and any part
of what was not.

The files themselves are written as always (that is what a process sees); beside them every
call is recorded. :meth:`Recording.after` then makes the directory that a power loss after the
n-th call may leave:

* a write that no sync covered: any subset of its sectors;
* a size that no sync covered: the old or the new one;
* creations, renames and removals that no directory sync covered: any number of the first ones.
"""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvstrata.eventstore.log.formats import Buffer
from kvstrata.eventstore.log.system import System

SECTOR = 512


@dataclass
class File:
    """Content of one file: on the device, and on its way there."""

    stored: bytearray = field(default_factory=bytearray)
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)

    def change(self, kind: str, place: int, data: bytes = b"") -> None:
        self.pending.append((kind, place, data))

    def sync(self) -> None:
        for kind, place, data in self.pending:
            _change(self.stored, kind, place, data)
        self.pending.clear()

    def survivor(self, dice: random.Random) -> bytes:
        """What the device may hold after a power loss."""
        content = bytearray(self.stored)
        keep = dice.choice(("none", "all", "some"))
        for kind, place, data in self.pending:
            if keep == "none" or (keep == "some" and kind != "write" and dice.random() < 0.5):
                continue
            if kind != "write" or keep == "all":
                _change(content, kind, place, data)
                continue
            end = place + len(data)
            for start in range(place // SECTOR * SECTOR, end, SECTOR):
                low, high = max(start, place), min(start + SECTOR, end)
                if dice.random() < 0.5:
                    _change(content, "write", low, data[low - place : high - place])
        return bytes(content)


def _change(content: bytearray, kind: str, place: int, data: bytes) -> None:
    size = place + len(data)
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if kind == "write":
        content[place:size] = data
    elif kind == "truncate":
        del content[place:]


Call = tuple[str, tuple[object, ...]]


class Recording(System):
    """Records every call on files below one directory, in order.

    Args:
        directory: the log directory.
        boot: told apart by :meth:`boot_id`.
    """

    def __init__(self, directory: Path, boot: int = 0) -> None:
        self._directory = directory
        self._boot = boot
        self._files: dict[tuple[int, int], int] = {}
        self.calls: list[Call] = []
        self.begin = {
            str(path.relative_to(directory)): path.read_bytes()
            for path in directory.rglob("*")
            if path.is_file()
        }

    def note(self, name: str, *arguments: object) -> None:
        """Record something the test wants to know the moment of."""
        self.calls.append((name, arguments))

    def boot_id(self) -> bytes:
        return self._boot.to_bytes(16, "little")

    def _name(self, path: Path) -> str | None:
        return str(path.relative_to(self._directory)) if self._is_ours(path) else None

    def _is_ours(self, path: Path) -> bool:
        return path.is_relative_to(self._directory)

    def _key(self, descriptor: int) -> tuple[int, int]:
        status = os.fstat(descriptor)
        return status.st_dev, status.st_ino

    def open(self, path: Path, flags: int) -> int:
        is_new = not path.exists()
        descriptor = super().open(path, flags)
        if self._is_ours(path):
            if is_new or self._key(descriptor) not in self._files:
                self._files[self._key(descriptor)] = len(self.calls)
            self.note("open", self._name(path), self._files[self._key(descriptor)], is_new)
            if flags & os.O_TRUNC and not is_new:
                self.note("change", self._file(descriptor), "truncate", 0, b"")
        return descriptor

    def _file(self, descriptor: int) -> int | None:
        return self._files.get(self._key(descriptor))

    def _change(self, descriptor: int, kind: str, place: int, data: bytes = b"") -> None:
        file = self._file(descriptor)
        if file is not None:
            self.note("change", file, kind, place, data)

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._change(descriptor, "write", offset, data)
        return super().pwritev(descriptor, [data], offset)

    def fallocate(self, descriptor: int, size: int) -> None:
        self._change(descriptor, "extend", size)
        super().fallocate(descriptor, size)

    def truncate(self, descriptor: int, size: int) -> None:
        self._change(descriptor, "truncate", size)
        super().truncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        super().fdatasync(descriptor)
        if self._file(descriptor) is not None:
            self.note("sync", self._file(descriptor))

    def rename(self, source: Path, target: Path) -> None:
        if self._is_ours(source):
            self.note("rename", self._name(source), self._name(target))
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        if self._is_ours(path) and path.exists():
            self._files.pop((path.stat().st_dev, path.stat().st_ino), None)
            self.note("unlink", self._name(path))
        super().unlink(path)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        if self._is_ours(path):
            self.note("sync_directory", self._name(path))

    def after(self, num_calls: int, dice: random.Random, target: Path) -> None:
        """Make the directory that a power loss after so many calls may leave."""
        device = _Device(self.begin)
        for name, arguments in self.calls[:num_calls]:
            device.replay(name, arguments)
        device.leave(dice, target)


class _Device:
    """The device behind a recording: names and files, stored and on their way."""

    def __init__(self, begin: dict[str, bytes]) -> None:
        self._files: dict[object, File] = {
            name: File(bytearray(data)) for name, data in begin.items()
        }
        self._names: dict[str, object] = {name: name for name in begin}
        self._stored_names = dict(self._names)
        self._pending: dict[str, list[tuple[str, str, object]]] = {}

    def replay(self, name: str, arguments: tuple[object, ...]) -> None:
        if name == "open":
            self._open(*arguments)  # type: ignore[arg-type]
        elif name == "change":
            self._resolve(arguments[0]).change(*arguments[1:])  # type: ignore[arg-type]
        elif name == "sync":
            self._resolve(arguments[0]).sync()
        elif name == "rename":
            source, target = str(arguments[0]), str(arguments[1])
            file = self._names.pop(source)
            self._names[target] = file
            self._note(source, "rename", target, file)
        elif name == "unlink":
            path = str(arguments[0])
            self._names.pop(path)
            self._note(path, "unlink", path, None)
        elif name == "sync_directory":
            for change in self._pending.pop(str(arguments[0]), []):
                self._apply(self._stored_names, change)

    def _open(self, path: str, file: int, is_new: bool) -> None:
        if is_new:
            self._files[file] = File()
            self._names[path] = file
            self._note(path, "create", path, file)
        else:
            # A file from before the recording is known by its name; give it its number.
            self._files.setdefault(file, self._files[self._names[path]])

    def _resolve(self, file: object) -> File:
        return self._files[file]

    def _note(self, path: str, kind: str, target: str, file: object) -> None:
        folder = str(Path(path).parent)
        self._pending.setdefault(folder, []).append((kind, path + "\0" + target, file))

    @staticmethod
    def _apply(names: dict[str, object], change: tuple[str, str, object]) -> None:
        kind, paths, file = change
        source, target = paths.split("\0")
        if kind == "unlink":
            names.pop(target, None)
            return
        if kind == "rename":
            names.pop(source, None)
        names[target] = file

    def leave(self, dice: random.Random, target: Path) -> None:
        names = dict(self._stored_names)
        for changes in self._pending.values():
            for change in changes[: dice.randint(0, len(changes))]:
                self._apply(names, change)
        for folder in ("segments", "snapshots", "blobs", "damaged"):
            (target / folder).mkdir(parents=True, exist_ok=True)
        survivors: dict[int, bytes] = {}
        for name, key in names.items():
            file = self._files[key]
            if id(file) not in survivors:
                survivors[id(file)] = file.survivor(dice)
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(survivors[id(file)])
