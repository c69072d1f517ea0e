"""The log directory: where everything is, and its markers.

docs/files.md is this module in words. ``format.json`` is written last when a directory is made
and never changed: a directory without it was never opened.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from kvstrata.core.errors import ConfigError, LogError

from .system import System, replace_file

__all__ = ["LogPaths", "Marker"]

SEGMENT_SUFFIX: Final = ".seg"
SNAPSHOT_SUFFIX: Final = ".snap"


class Marker(StrEnum):
    """Empty-handed facts that must outlive a crash, each a file of its own."""

    UNLOGGED = "unlogged"
    """Changes went past the log: pages in the pools may not be what the log says."""
    UNTRUSTED = "untrusted"
    """A recovery distrusted the pools and its outcome is not yet in the log; or an engine ended
    while something could still write them."""


@dataclass(frozen=True)
class LogPaths:
    """Every path of one log directory."""

    root: Path

    @property
    def lock(self) -> Path:
        """Held by the writer while it lives; holds its process id."""
        return self.root / "LOCK"

    @property
    def format(self) -> Path:
        """Identity and versions."""
        return self.root / "format.json"

    @property
    def blobs(self) -> Path:
        """Canonical JSON by digest."""
        return self.root / "blobs"

    @property
    def segments(self) -> Path:
        """The events."""
        return self.root / "segments"

    @property
    def snapshots(self) -> Path:
        """Stored arenas."""
        return self.root / "snapshots"

    @property
    def watermark(self) -> Path:
        """What is known durable."""
        return self.root / "watermark"

    @property
    def damaged(self) -> Path:
        """Copies of what recovery or repair cut off."""
        return self.root / "damaged"

    @property
    def prepared(self) -> Path:
        """The next segment, reserved and not yet in use."""
        return self.segments / "next"

    def segment(self, first_seqno: int) -> Path:
        """The segment that begins with a seqno."""
        return self.segments / f"{first_seqno:020d}{SEGMENT_SUFFIX}"

    def snapshot(self, seqno: int) -> Path:
        """The snapshot at a seqno."""
        return self.snapshots / f"{seqno:020d}{SNAPSHOT_SUFFIX}"

    def marker(self, marker: Marker) -> Path:
        """The file of a marker."""
        return self.root / str(marker)

    def segment_files(self) -> list[Path]:
        """Segments, oldest first."""
        return _numbered(self.segments, SEGMENT_SUFFIX)

    def first_seqno(self) -> int | None:
        """The first event that retention has left, None where there is no segment."""
        segments = self.segment_files()
        return int(segments[0].stem) if segments else None

    def snapshot_files(self) -> list[Path]:
        """Snapshots, oldest first."""
        return _numbered(self.snapshots, SNAPSHOT_SUFFIX)

    def make(self, system: System) -> None:
        """Make the folders.

        Raises:
            ConfigError: the place holds something else.
            LogError: it holds a log that lost its identity.
        """
        known = {
            "LOCK",
            "blobs",
            "segments",
            "snapshots",
            "damaged",
            "watermark",
            "format.json.tmp",
        }
        if self.root.exists() and not self.root.is_dir():
            raise ConfigError(f"expected a directory for the log, found a file: {self.root}")
        if self.root.is_dir() and not self.format.exists():
            foreign = sorted({entry.name for entry in self.root.iterdir()} - known)
            if foreign:
                raise ConfigError(
                    f"expected an empty directory or a kvstrata log (format.json), found "
                    f"{foreign[0]!r} in {self.root}; choose another directory"
                )
            if self.segment_files() or self.snapshot_files():
                raise LogError(
                    f"expected {self.format.name} beside the segments, found none in {self.root}; "
                    "restore it from a copy of the directory"
                )
        for folder in (self.root, self.blobs, self.segments, self.snapshots, self.damaged):
            system.make_directory(folder)

    def require(self) -> None:
        """Refuse a place that holds no log. Raises ConfigError."""
        if not self.format.is_file():
            found = "no such directory" if not self.root.exists() else "no format.json"
            raise ConfigError(
                f"expected a kvstrata log directory, found {found}: {self.root}; "
                "name the directory that an engine was opened with"
            )

    def set_marker(self, system: System, marker: Marker, reason: str) -> None:
        """Write a marker durably. Raises OSError."""
        text = json.dumps({"marker": marker, "reason": reason}) + "\n"
        replace_file(system, self.marker(marker), [text.encode()])

    def clear_marker(self, system: System, marker: Marker) -> None:
        """Remove a marker durably. Raises OSError."""
        if self.marker(marker).exists():
            system.unlink(self.marker(marker))
            system.sync_directory(self.root)


def _numbered(folder: Path, suffix: str) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        entry for entry in folder.iterdir() if entry.suffix == suffix and entry.stem.isdecimal()
    )
