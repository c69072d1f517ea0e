"""The seam to the machine: every file call, clock and identity the log uses.

Tests pass a System that fails, stalls, kills the process or keeps only part of what was not
synced. It holds no state, so one instance serves every thread.
"""

import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from .formats import Buffer

__all__ = ["System", "replace_file", "write_whole"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class System:
    """The machine as the log sees it. Everything raises OSError as the kernel says."""

    def open(self, path: Path, flags: int) -> int:
        """A file descriptor; new files are readable by their owner only."""
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def close(self, descriptor: int) -> None:
        """Close without syncing."""
        os.close(descriptor)

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Write buffers one after the other at an offset; returns the bytes written."""
        return os.pwritev(descriptor, buffers, offset)

    def fdatasync(self, descriptor: int) -> None:
        """Make the file's data durable, and of its metadata what reading it needs."""
        os.fdatasync(descriptor)

    def fallocate(self, descriptor: int, size: int) -> None:
        """Reserve the first ``size`` bytes; what was not written reads as zeros."""
        os.posix_fallocate(descriptor, 0, size)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut or extend the file."""
        os.ftruncate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it."""
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is not there is no error."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Make a folder and those above it; one that is there is no error."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals in a folder durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def boot_id(self) -> bytes:
        """16 bytes that change with every boot of this machine."""
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def realtime_ns(self) -> int:
        """Wall time since 1970."""
        return time.time_ns()


def write_whole(system: System, descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
    """Write all buffers, or fail.

    Returns:
        Bytes written.

    Raises:
        OSError: the write failed or was short; what reached the file is unknown.
    """
    expected = sum(map(len, buffers))
    written = system.pwritev(descriptor, buffers, offset)
    if written != expected:
        raise OSError(f"short write: expected {expected} bytes, {written} written")
    return written


def replace_file(system: System, path: Path, buffers: Sequence[Buffer]) -> None:
    """Write a file that after a crash is there whole or not at all, and durable on return.

    Each buffer is one write.

    Raises:
        OSError: the file was not replaced.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    descriptor = system.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        offset = 0
        for buffer in buffers:
            offset += write_whole(system, descriptor, [buffer], offset)
        system.fdatasync(descriptor)
    finally:
        system.close(descriptor)
    system.rename(temporary, path)
    system.sync_directory(path.parent)
