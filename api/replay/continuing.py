"""Going on with a log directory: only the same trace with the same options may."""

from __future__ import annotations

from pathlib import Path

from kvstrata import CacheLayout, ConfigError
from kvstrata.core.arena import ArenaParams
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.reader import stored_projection

__all__ = ["check_options", "holds_log"]


def holds_log(directory: Path) -> bool:
    """Whether there is something to go on with."""
    return LogPaths(directory).format.exists()


def check_options(directory: Path, layout: CacheLayout, params: ArenaParams) -> None:
    """Check that a log was made with the same options; changes nothing.

    Raises:
        ConfigError: it was not; says which.
    """
    _, stored = stored_projection(directory)
    found = ArenaParams(**stored.params)
    if stored.layout != layout.to_json():
        _refuse(directory, f"--layout {layout.name}", f"one of {stored.layout.get('name')}")
    if found.stored_keys != params.stored_keys:
        _refuse(directory, "the same --tier-policy and --tier-keys", "one with others")
    if found.max_sequences != params.max_sequences:
        theirs = f"one with {found.max_sequences}"
        _refuse(directory, f"--concurrency {params.max_sequences}", theirs)
    if found.slots != params.slots:
        _refuse(directory, "the same --budget", "one with another")
    if found != params:
        _refuse(directory, "the same trace", "another's")


def _refuse(directory: Path, expected: str, found: str) -> None:
    raise ConfigError(
        f"{directory}: expected the log of a replay with {expected}, found {found}; name another "
        "--dir, or remove this one"
    )
