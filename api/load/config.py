"""What a load is called with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvstrata.core.errors import ConfigError

__all__ = ["LoadConfig", "ServeConfig"]


@dataclass(frozen=True)
class ServeConfig:
    """The admin API beside the load.

    Attributes:
        host: address to listen at.
        port: where; 0 for any that is free.
        token_file: tokens of its users; None for none, at a loopback address.
        catalogue: URL of the catalogue; None for the one in the log directory.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    token_file: Path | None = None
    catalogue: str | None = None

    @property
    def arguments(self) -> list[str]:
        """Options of ``kvstrata serve``."""
        found = ["--host", self.host, "--port", str(self.port)]
        if self.token_file is not None:
            found += ["--token-file", str(self.token_file)]
        if self.catalogue is not None:
            found += ["--catalogue", self.catalogue]
        return found


@dataclass(frozen=True)
class LoadConfig:
    """An endless load.

    Attributes:
        directory: of the log; absent, empty, or that of a load before, which goes on. None for one
            of the moment, removed at the end with all that lies beside it.
        shared_memory_root: where ring and pools lie.
        seed: of the model's weights and of who speaks when.
        requests_per_s: that come, as long as the engine keeps up.
        duration_s: after which it ends; None for never.
        fault_every_s: seconds between two faults; None for none.
        tiers: folders or buckets below the device; by default a folder in the directory.
        serve: the API; None for none.
    """

    directory: Path | None
    shared_memory_root: Path
    seed: int = 0
    requests_per_s: float = 2.0
    duration_s: float | None = None
    fault_every_s: float | None = None
    tiers: tuple[str, ...] = ()
    serve: ServeConfig | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("rate", self.requests_per_s),
            ("duration", self.duration_s),
            ("fault-every", self.fault_every_s),
        ):
            if value is not None and not 0 < value < 1e9:
                raise ConfigError(f"--{name}: expected more than 0, found {value:g}")

    @property
    def place(self) -> Path:
        """The directory; only where there is one."""
        if self.directory is None:
            raise RuntimeError("expected a load that has a directory by now")
        return self.directory

    @property
    def tier_urls(self) -> tuple[str, ...]:
        """Where the tiers are."""
        return self.tiers or (str(self.place / "disk"),)
