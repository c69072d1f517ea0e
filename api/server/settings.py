"""Settings of the admin API's server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from kvstrata.core.errors import ConfigError

__all__ = ["ServerSettings", "is_loopback"]


@dataclass(frozen=True)
class ServerSettings:
    """How the server listens and what it allows.

    Attributes:
        host: address to listen on. Another than the loopback needs a token file.
        port: to listen on; 0 for any free one.
        token_file: roles, names and tokens, a line each; None lets in everybody who can connect.
        catalogue: URL of the catalogue of history; None for an SQLite file beside the log.
        max_body_bytes: a longer request is refused with 413.
        body_timeout_s: a request that takes longer to arrive is refused with 408.
        requests_per_s: of one client, in the long run; more are refused with 429.
        burst: requests of one client at once.
        max_limit: rows of one answer at most.
        scan_events: events that one answer looks through at most; its cursor goes on from there.
        max_explain_tokens: tokens of a prompt to explain.
        max_streams: clients that may tail events at once.
        stream_max_s: a tail ends after so long; the client goes on where it was.
        max_queries: analytical queries that may run at once.
        query_memory_mb: memory of one of them, in MB.
        max_waiting_commands: commands of one log that may wait for its engine.
        ready_lag_s: a follower that is farther behind is not ready.
        keep_incidents: whether this server opens incidents for what its follower finds.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    token_file: Path | None = None
    catalogue: str | None = None
    max_body_bytes: int = 8 << 20
    body_timeout_s: float = 10.0
    requests_per_s: float = 50.0
    burst: int = 200
    max_limit: int = 1000
    scan_events: int = 2_000_000
    max_explain_tokens: int = 1 << 20
    max_streams: int = 32
    stream_max_s: float = 3600.0
    max_queries: int = 2
    query_memory_mb: int = 512
    max_waiting_commands: int = 1000
    ready_lag_s: float = 10.0
    keep_incidents: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port: expected 0 to 65535, found {self.port}")
        at_least_one = {
            "max_body_bytes": self.max_body_bytes,
            "burst": self.burst,
            "max_limit": self.max_limit,
            "scan_events": self.scan_events,
            "max_explain_tokens": self.max_explain_tokens,
            "max_streams": self.max_streams,
            "max_queries": self.max_queries,
            "query_memory_mb": self.query_memory_mb,
            "max_waiting_commands": self.max_waiting_commands,
        }
        for name, count in at_least_one.items():
            if count < 1:
                raise ConfigError(f"{name}: expected at least 1, found {count}")
        above_zero = {
            "body_timeout_s": self.body_timeout_s,
            "requests_per_s": self.requests_per_s,
            "stream_max_s": self.stream_max_s,
            "ready_lag_s": self.ready_lag_s,
        }
        for name, number in above_zero.items():
            if not number > 0:
                raise ConfigError(f"{name}: expected more than 0, found {number}")
        if self.token_file is None and not is_loopback(self.host):
            raise ConfigError(
                f"host: expected a loopback address, since there is no token file, found "
                f"{self.host!r}: whoever could connect could change the cache; give --token-file, "
                "or listen on 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
