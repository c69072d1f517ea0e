"""A log directory as the commands see it: what it was made for, and whether somebody writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kvstrata import CacheConfig, CacheLayout, LogConfig
from kvstrata.core.arena import ArenaParams
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.lock import is_locked
from kvstrata.eventstore.log.reader import stored_projection

__all__ = [
    "DEFAULT_SHARED_MEMORY_ROOT",
    "DirectoryArgument",
    "LogDirectory",
    "SharedMemoryRoot",
]

DEFAULT_SHARED_MEMORY_ROOT = LogConfig.shared_memory_root

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The log directory an engine was opened with.")
]
SharedMemoryRoot = Annotated[
    Path, typer.Option(help="The tmpfs the engine was configured with, for its ring and pools.")
]


@dataclass(frozen=True)
class LogDirectory:
    """A log directory, the layout it was made for and the sizes of its tables."""

    path: Path
    layout: CacheLayout
    params: ArenaParams

    @classmethod
    def read(cls, path: Path) -> LogDirectory:
        """Read what a directory says of itself; changes nothing.

        Raises:
            ConfigError: not a log directory.
            UnknownSchema: written by another version.
        """
        _, projection = stored_projection(path)
        layout = CacheLayout.from_json(projection.layout)
        return cls(path, layout, ArenaParams(**projection.params))

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the layout's groups by id."""
        return tuple(group.name for group in self.layout.groups)

    @property
    def first_seqno(self) -> int:
        """The first event that retention has left."""
        return LogPaths(self.path).first_seqno() or 1

    @property
    def has_writer(self) -> bool:
        """Whether a living engine holds the directory."""
        return is_locked(LogPaths(self.path))

    def config(self, shared_memory_root: Path) -> CacheConfig:
        """A configuration with which the directory can be opened as it is."""
        return CacheConfig(
            slots=self.params.slots,
            max_sequences=self.params.max_sequences,
            max_leases=self.params.max_leases,
            max_tokens_per_sequence=self.params.max_blocks_per_sequence * self.layout.block_tokens,
            images_per_sequence=self.params.images_per_sequence,
            stored_keys=self.params.stored_keys,
            log=LogConfig(shared_memory_root=shared_memory_root),
        )
