"""What a request needs, what the limits leave, and how admission may answer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .errors import ConfigError

__all__ = [
    "BLOCKS",
    "DEADLINE",
    "QUEUE",
    "RATE",
    "RECOVERIES",
    "RECOVERY_BYTES",
    "TENANT",
    "AdmissionConfig",
    "AdmissionStats",
    "Decision",
    "Deferred",
    "Denied",
    "Granted",
    "Left",
    "Need",
    "Room",
    "never_fits",
]

# The limits by name, as decisions and metrics carry them.
BLOCKS = "blocks"
DEADLINE = "deadline"
QUEUE = "queue"
RATE = "rate"
RECOVERIES = "recoveries"
RECOVERY_BYTES = "recovery_bytes"
TENANT = "tenant"


def _expect(holds: bool, what: str, expected: str, found: object) -> None:
    if not holds:
        raise ConfigError(f"admission: {what}: expected {expected}, found {found!r}")


@dataclass(frozen=True)
class AdmissionConfig:
    """The limits; by default only the promise of blocks acts.

    Args:
        bytes_per_s: rate at which recoveries may start to load; None for no limit.
        burst_bytes: bytes that may start at once after a quiet time; at least 1 with a rate.
        max_recoveries: recoveries that may run at once; None for no limit.
        max_recovery_bytes: device bytes that may be in recovery at once; None for no limit.
        ageing_s: nobody may take what a request lacks that has waited this long.
        deadline_s: how long a request may wait that names no deadline; None for ever.
        max_waiting: requests that may wait at once.
        tenant_bytes: bytes that a tenant may have in recovery at once; tenants not named have
            no quota of their own.

    Raises:
        ConfigError: a limit that nothing could meet.
    """

    bytes_per_s: float | None = None
    burst_bytes: int = 0
    max_recoveries: int | None = None
    max_recovery_bytes: int | None = None
    ageing_s: float = 1.0
    deadline_s: float | None = None
    max_waiting: int = 1024
    tenant_bytes: Mapping[str, int] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        rate = self.bytes_per_s
        if rate is not None:
            _expect(0 < rate < math.inf, "bytes_per_s", "a positive number or None", rate)
            burst = self.burst_bytes
            _expect(burst >= 1, "burst_bytes", "at least 1 with bytes_per_s", burst)
        _expect(self.burst_bytes >= 0, "burst_bytes", "at least 0", self.burst_bytes)
        for name in ("max_recoveries", "max_recovery_bytes"):
            limit = getattr(self, name)
            _expect(limit is None or limit >= 1, name, "at least 1 or None", limit)
        _expect(0 <= self.ageing_s < math.inf, "ageing_s", "at least 0 and finite", self.ageing_s)
        deadline = self.deadline_s
        _expect(deadline is None or deadline >= 0, "deadline_s", "at least 0 or None", deadline)
        _expect(self.max_waiting >= 0, "max_waiting", "at least 0", self.max_waiting)
        if self.tenant_bytes is not None:
            for tenant, quota in self.tenant_bytes.items():
                _expect(quota >= 0, f"tenant_bytes of {tenant!r}", "at least 0", quota)
            object.__setattr__(self, "tenant_bytes", dict(self.tenant_bytes))

    @cached_property
    def limits_loads(self) -> bool:
        """Whether anything but the promise of blocks acts."""
        limits = (self.bytes_per_s, self.max_recoveries, self.max_recovery_bytes)
        return bool(self.tenant_bytes) or any(limit is not None for limit in limits)

    def quota(self, tenant: str) -> float:
        """Bytes that a tenant may have in recovery at once; infinite without a quota."""
        return math.inf if self.tenant_bytes is None else self.tenant_bytes.get(tenant, math.inf)


@dataclass(frozen=True)
class Need:
    """What a request asks for, all or nothing.

    Args:
        blocks: blocks it will take until its end.
        load_bytes: bytes to load before it can run; 0 where nothing is recovered.
        tenant: whose quota pays.

    Raises:
        ConfigError: a negative size.
    """

    blocks: int
    load_bytes: int = 0
    tenant: str = ""

    def __post_init__(self) -> None:
        _expect(self.blocks >= 0, "blocks", "at least 0", self.blocks)
        _expect(self.load_bytes >= 0, "load_bytes", "at least 0", self.load_bytes)


@dataclass(frozen=True)
class Room:
    """What the pools have now.

    Args:
        total_blocks: of the pools, in use or not.
        available_blocks: free and evictable ones, promised ones included.
    """

    total_blocks: int
    available_blocks: int


@dataclass
class Left:
    """What every limit leaves at one moment; a sheet to reckon on.

    Args:
        config: the limits.
        blocks: available and not promised.
        bucket: bytes that may start to load now; negative in debt.
        recoveries: running.
        recovery_bytes: in recovery.
        tenants: bytes in recovery by tenant.
    """

    config: AdmissionConfig
    blocks: int
    bucket: float
    recoveries: int
    recovery_bytes: int
    tenants: dict[str, int]

    def missing(self, need: Need) -> dict[str, float]:
        """How much of each limit a request lacks now, by the limit's name; empty if it fits.

        A request beyond the burst fits once the bucket is full; the debt that it leaves makes up
        for it.
        """
        found: dict[str, float] = {BLOCKS: need.blocks - self.blocks}
        if need.load_bytes:
            config = self.config
            if config.bytes_per_s is not None:
                found[RATE] = min(need.load_bytes, config.burst_bytes) - self.bucket
            if config.max_recoveries is not None:
                found[RECOVERIES] = self.recoveries + 1 - config.max_recoveries
            if config.max_recovery_bytes is not None:
                in_recovery = self.recovery_bytes + need.load_bytes
                found[RECOVERY_BYTES] = in_recovery - config.max_recovery_bytes
            paid = self.tenants.get(need.tenant, 0) + need.load_bytes
            found[TENANT] = paid - config.quota(need.tenant)
        return {name: lack for name, lack in found.items() if lack > 0}

    def take(self, need: Need) -> None:
        """Write a request down as granted. Mutates: this sheet."""
        self.blocks -= need.blocks
        if need.load_bytes:
            self.bucket -= need.load_bytes
            self.recoveries += 1
            self.recovery_bytes += need.load_bytes
            self.tenants[need.tenant] = self.tenants.get(need.tenant, 0) + need.load_bytes


def never_fits(config: AdmissionConfig, need: Need, room: Room) -> tuple[str, str] | None:
    """Say why a request could not be granted even alone: (limit, sentence); None if it could."""
    if need.blocks > room.total_blocks:
        return BLOCKS, f"expected at most {room.total_blocks} blocks in all, found {need.blocks}"
    most = config.max_recovery_bytes
    if most is not None and need.load_bytes > most:
        return RECOVERY_BYTES, f"expected at most {most} bytes to load, found {need.load_bytes}"
    quota = config.quota(need.tenant)
    if need.load_bytes > quota:
        return TENANT, (
            f"expected at most {quota:.0f} bytes to load, the quota of tenant "
            f"{need.tenant!r}, found {need.load_bytes}"
        )
    return None


@dataclass(frozen=True)
class Granted:
    """May start now; ``waited_s`` since it first asked."""

    waited_s: float


@dataclass(frozen=True)
class Deferred:
    """Waits: ask again after ``retry_after_s``; ``ahead`` requests are before it.

    ``limit`` names what it lacks ("blocks", "rate", "recoveries", "recovery_bytes", "tenant", or
    "queue" behind others), ``why`` says it in words.
    """

    retry_after_s: float
    ahead: int
    why: str
    limit: str


@dataclass(frozen=True)
class Denied:
    """Refused; asking again makes sense only where ``retry_after_s`` is a number.

    ``limit`` is as in :class:`Deferred`, or "deadline".
    """

    why: str
    retry_after_s: float | None
    limit: str


Decision = Granted | Deferred | Denied


@dataclass(frozen=True)
class AdmissionStats:
    """Counts and sums at one moment; ``bucket_bytes`` is None without a rate."""

    promised_blocks: int
    waiting: int
    oldest_wait_s: float
    recoveries: int
    recovery_bytes: int
    bucket_bytes: float | None
    num_granted: int
    num_deferred: int
    num_denied: int
