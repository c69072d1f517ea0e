"""Where ring and pools lie: memory that survives the process but not the machine's boot.

A directory's *place* is ``<shared_memory_root>/kvstrata-<digest of the resolved directory>/``
with ``owner.json``, ``ring`` and ``pools/``. Without a tmpfs it is ``<directory>/shared/``.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvstrata.core.errors import ConfigError

from .system import System, replace_file

__all__ = ["PLACE_PREFIX", "Place", "check_room", "place_of", "tmpfs_dir"]

PLACE_PREFIX: Final = "kvstrata-"
DEFAULT_ROOT: Final = Path("/dev/shm")
_MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class Place:
    """Where one directory's shared memory is.

    Attributes:
        root: its folder.
        is_memory: whether it is on a tmpfs.
        note: empty, or why it is not.
    """

    root: Path
    is_memory: bool
    note: str

    @property
    def ring(self) -> Path:
        """The ring, whose first page is the status page."""
        return self.root / "ring"

    @property
    def pools(self) -> Path:
        """Folder of the pools' files."""
        return self.root / "pools"

    @property
    def owner(self) -> Path:
        """JSON that names the directory."""
        return self.root / "owner.json"

    def make(self, system: System, directory: Path) -> None:
        """Make the folders, private to this user.

        Raises:
            ConfigError: somebody else owns the place.
        """
        system.make_directory(self.root)
        status = self.root.lstat()
        if self.root.is_symlink() or status.st_uid != os.geteuid():
            raise ConfigError(
                f"expected {self.root} to be a folder of user {os.geteuid()}, found one of user "
                f"{status.st_uid}; remove it, or set another shared_memory_root"
            )
        system.make_directory(self.pools)
        owner = {"directory": str(directory.resolve()), "uid": os.geteuid()}
        replace_file(system, self.owner, [(json.dumps(owner) + "\n").encode()])


def place_of(directory: Path, shared_memory_root: Path = DEFAULT_ROOT) -> Place:
    """The place of a directory's ring and pools; makes nothing.

    Args:
        directory: the log directory.
        shared_memory_root: a folder on a tmpfs.
    """
    kind = _file_system(shared_memory_root)
    if kind in _MEMORY_FILE_SYSTEMS:
        digest = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:16]
        return Place(shared_memory_root / f"{PLACE_PREFIX}{digest}", True, "")
    found = f"file system {kind}" if kind else "no such folder"
    note = (
        f"expected a tmpfs at {shared_memory_root}, found {found}: ring and pools lie in the log "
        "directory itself and cost disk writes; set shared_memory_root"
    )
    return Place(directory.resolve() / "shared", False, note)


def tmpfs_dir(directory: Path, shared_memory_root: Path = DEFAULT_ROOT) -> Path:
    """The folder for a directory's pools; makes nothing."""
    return place_of(directory, shared_memory_root).pools


def check_room(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Refuse what would not fit, before memory is touched.

    Args:
        folder: an existing folder of the file system asked about.
        needed_bytes: bytes still to be reserved there.
        purpose: what for, in words.

    Raises:
        ConfigError: says the size needed and available.
    """
    status = os.statvfs(folder)
    available = status.f_bavail * status.f_frsize
    if needed_bytes > available:
        raise ConfigError(
            f"expected {needed_bytes} bytes ({needed_bytes / 1e9:.2f} GB) for {purpose} on "
            f"{folder}, found {available} bytes ({available / 1e9:.2f} GB) available; enlarge it "
            "(mount -o remount,size=...), make it smaller, or run kvstrata clean"
        )


def _file_system(path: Path) -> str:
    """Type of the file system that holds a path, "" where there is no such folder."""
    if not path.is_dir():
        return ""
    resolved = path.resolve()
    best, kind = -1, "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, found, *_ = line.split(" ")
        mount = Path(point.encode().decode("unicode_escape"))
        if resolved.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), found
    return kind
