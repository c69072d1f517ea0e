"""Which log a directory holds: ``format.json``, written last when it is made, never changed."""

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kvstrata.core.errors import ConfigError, LogError, UnknownSchema
from kvstrata.core.events import EVENT_SCHEMA_VERSION

from .directory import LogPaths
from .formats import FORMAT_VERSION
from .system import System, replace_file

__all__ = ["Format", "set_aside_hint"]

FORMAT_MAGIC: Final = "kvstrata-log"


def set_aside_hint(directory: Path) -> str:
    """What to do with a directory that this version cannot use."""
    return f"set it aside (mv {directory} {directory}.aside) and start again with an empty one"


@dataclass(frozen=True)
class Format:
    """What ``format.json`` says: which log this is and what can read it.

    Attributes:
        log_id: 16 random bytes; in every segment and snapshot and in the ring.
        layout_digest: digest of the cache layout.
        projection_digest: digest of the arena's shape.
        layout: the layout, as JSON.
        params: the arena's sizes, as JSON.
    """

    log_id: bytes
    layout_digest: bytes
    projection_digest: bytes
    layout: dict[str, Any]
    params: dict[str, Any]
    created: str
    format_version: int = FORMAT_VERSION
    schema_version: int = EVENT_SCHEMA_VERSION

    @classmethod
    def new(
        cls,
        layout_digest: bytes,
        projection_digest: bytes,
        layout: dict[str, Any],
        params: dict[str, Any],
    ) -> "Format":
        """The format of a log that begins now."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        log_id = secrets.token_bytes(16)
        return cls(log_id, layout_digest, projection_digest, layout, params, created)

    def write(self, system: System, paths: LogPaths) -> None:
        """Store it; the directory is a log from here on. Raises OSError."""
        fields = {
            "magic": FORMAT_MAGIC,
            "format_version": self.format_version,
            "schema_version": self.schema_version,
            "log_id": self.log_id.hex(),
            "created": self.created,
            "layout_digest": self.layout_digest.hex(),
            "projection_digest": self.projection_digest.hex(),
            "layout": self.layout,
            "params": self.params,
        }
        replace_file(system, paths.format, [(json.dumps(fields, indent=1) + "\n").encode()])

    @classmethod
    def read(cls, paths: LogPaths) -> "Format":
        """The directory's format.

        Raises:
            ConfigError: not a log directory.
            UnknownSchema: written by another format or schema version.
            LogError: the file is damaged.
        """
        paths.require()
        try:
            fields = json.loads(paths.format.read_bytes())
            if fields["magic"] != FORMAT_MAGIC:
                raise ConfigError(
                    f"expected a kvstrata log, found magic {fields['magic']!r} in {paths.format}"
                )
            versions = int(fields["format_version"]), int(fields["schema_version"])
            if versions != (FORMAT_VERSION, EVENT_SCHEMA_VERSION):
                raise UnknownSchema(
                    f"expected log format {FORMAT_VERSION} and event schema "
                    f"{EVENT_SCHEMA_VERSION}, found {versions[0]} and {versions[1]} in "
                    f"{paths.format}; {set_aside_hint(paths.root)}"
                )
            return cls(
                bytes.fromhex(fields["log_id"]),
                bytes.fromhex(fields["layout_digest"]),
                bytes.fromhex(fields["projection_digest"]),
                dict(fields["layout"]),
                dict(fields["params"]),
                str(fields["created"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LogError(
                f"expected the JSON that an engine wrote, found damage in {paths.format} "
                f"({error}); restore the file from a copy of the directory"
            ) from error

    def check(self, paths: LogPaths, layout_digest: bytes, projection_digest: bytes) -> None:
        """Refuse a log of another layout or of other sizes. Raises ConfigError."""
        if self.layout_digest != layout_digest:
            raise ConfigError(
                f"expected a log of layout {layout_digest.hex()}, found layout "
                f"{self.layout_digest.hex()} ({self.layout.get('name', '?')}) in {paths.root}; "
                f"open it with that layout, or {set_aside_hint(paths.root)}"
            )
        if self.projection_digest != projection_digest:
            raise ConfigError(
                f"expected a log of tables {projection_digest.hex()}, found "
                f"{self.projection_digest.hex()} with sizes {self.params} in {paths.root}; "
                f"open it with those sizes, or {set_aside_hint(paths.root)}"
            )
