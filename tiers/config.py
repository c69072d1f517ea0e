"""Settings of the tiers, validated on construction."""

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from kvstrata.core.errors import ConfigError

__all__ = ["MAX_TIERS", "SPILL_LEASES", "CheckpointPolicy", "TierConfig", "TiersConfig"]

MAX_TIERS: Final = 8  # a set of tiers is a mask of one byte

SPILL_LEASES: Final = 4
"""Leases that spills hold at once."""

_SHARED_MEMORY: Final = "/dev/shm/"
_REMOTE: Final = "s3://"
_SPILLS: Final = ("seal", "evict", "never")
_Kind = Literal["full", "every", "ends", "none"]


def _expect(holds: bool, what: str, expected: str, found: object) -> None:
    if not holds:
        raise ConfigError(f"tiers: {what}: expected {expected}, found {found!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _expect_seconds(what: str, value: float | None) -> None:
    if value is not None:
        _expect(_is_number(value) and value > 0, what, "a positive, finite number", value)


def _expect_count(what: str, value: object, least: int = 1) -> None:
    if value is not None:
        holds = isinstance(value, int) and not isinstance(value, bool) and value >= least
        _expect(holds, what, f"an integer of at least {least}", value)


@dataclass(frozen=True)
class CheckpointPolicy:
    """Which checkpoints are written to the tiers.

    Attributes:
        kind: all of them ("full"), those at multiples of ``every_tokens`` ("every"), those where
            a prompt or an answer ends ("ends"), or none.
        every_tokens: 0 unless the kind is "every".
    """

    kind: _Kind
    every_tokens: int = 0

    def __post_init__(self) -> None:
        _expect(self.kind in get_args(_Kind), "checkpoints", "a known policy", self.kind)
        if self.kind == "every":
            _expect_count("checkpoints, tokens between two", self.every_tokens)
        else:
            _expect(self.every_tokens == 0, "checkpoints", "tokens with every:P only", self)

    @classmethod
    def parse(cls, text: str) -> "CheckpointPolicy":
        """Read "full", "every:P", "ends" or "none".

        Raises:
            ConfigError: it is none of them, or P is not a positive integer.
        """
        kind, separator, tokens = text.partition(":")
        if kind == "every" and tokens.isascii() and tokens.isdigit() and int(tokens) > 0:
            return cls("every", int(tokens))
        for known in get_args(_Kind):
            if kind == known != "every" and not separator:
                return cls(known)
        raise ConfigError(
            'tiers: checkpoints: expected "full", "every:P" with P tokens of at least 1, "ends" or '
            f'"none", found {text!r}'
        )

    def keeps(self, position: int, is_end: bool) -> bool:
        """Whether a checkpoint is written.

        Args:
            position: tokens before it.
            is_end: a prompt or an answer ends there.
        """
        if self.kind == "every":
            return position % self.every_tokens == 0
        return self.kind == "full" or (self.kind == "ends" and is_end)

    def __str__(self) -> str:
        return f"every:{self.every_tokens}" if self.kind == "every" else self.kind


@dataclass(frozen=True)
class TierConfig:
    """One tier: a folder, or a prefix of a bucket.

    Attributes:
        url: a path, ``file:///path`` or ``s3://bucket/prefix``.
        name: as metrics and the catalogue know it; by default "host" for a folder below
            ``/dev/shm``, "disk" for any other, "remote" for a bucket.
        cap_bytes: objects beyond so many bytes are evicted; None for no limit.
        checkpoint_ttl_s: checkpoints not used for so many seconds are deleted; None: kept.
        block_ttl_s: the same for blocks.
        timeout_s: longest wait for one answer of the place, in seconds.
        retries: how often a remote place is asked again.

    Raises:
        ConfigError: a setting that is not usable.
    """

    url: str
    name: str = ""
    cap_bytes: int | None = None
    checkpoint_ttl_s: float | None = None
    block_ttl_s: float | None = None
    timeout_s: float = 30.0
    retries: int = 3

    def __post_init__(self) -> None:
        url = self.url
        _expect(bool(url), "url", "a path or a URL", url)
        known = "://" not in url or url.startswith(("file:///", _REMOTE))
        _expect(known, "url", "a path, file:///path or s3://bucket/prefix", url)
        if not self.name:
            object.__setattr__(self, "name", self._usual_name())
        _expect(self.name.isprintable(), f"name of {url}", "printable characters", self.name)
        _expect_count(f"cap_bytes of {self.name}", self.cap_bytes)
        _expect_seconds(f"checkpoint_ttl_s of {self.name}", self.checkpoint_ttl_s)
        _expect_seconds(f"block_ttl_s of {self.name}", self.block_ttl_s)
        _expect_seconds(f"timeout_s of {self.name}", self.timeout_s)
        _expect_count(f"retries of {self.name}", self.retries, least=0)

    @property
    def is_folder(self) -> bool:
        """Whether its objects are files on this node, so that its processes share it."""
        return not self.url.startswith(_REMOTE)

    def _usual_name(self) -> str:
        if not self.is_folder:
            return "remote"
        path = self.url.removeprefix("file://")
        return "host" if path.startswith(_SHARED_MEMORY) else "disk"


@dataclass(frozen=True)
class TiersConfig:
    """All tiers of one engine, and how they are used.

    Attributes:
        tiers: fastest first, at most 8.
        spill: when blocks are written: as they are sealed, as they are evicted, or never.
        checkpoints: which are taken and written: one at every block ("full"), at every multiple of
            P tokens ("every:P"), where prompts and answers end ("ends"), or none.
        catalogue: URL of the shared index; None for SQLite beside the first folder, "" for none.
        workers: threads that load and spill.
        max_spills: how many of them may spill at once.
        load_deadline_s: a load that takes longer is given up, in seconds.
        max_queued_spills: spills that may wait; more are not begun.
        max_loads: loads in flight at once; the admission cap may allow fewer.
        objects: keys of stored objects that are remembered; older ones are looked up anew.

    Raises:
        ConfigError: a setting that is not usable.
    """

    tiers: tuple[TierConfig, ...]
    spill: Literal["seal", "evict", "never"] = "seal"
    checkpoints: str = "ends"
    catalogue: str | None = None
    workers: int = 4
    max_spills: int = 2
    load_deadline_s: float = 60.0
    max_queued_spills: int = 1024
    max_loads: int = 16
    objects: int = 65_536

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiers", tuple(self.tiers))
        count = len(self.tiers)
        _expect(1 <= count <= MAX_TIERS, "tiers", f"1 to {MAX_TIERS} of them", count)
        names = [tier.name for tier in self.tiers]
        twice = sorted({name for name in names if names.count(name) > 1})
        _expect(not twice, "tiers", "a name of its own for each (set name=)", twice)
        urls = [tier.url.removeprefix("file://").rstrip("/") for tier in self.tiers]
        again = sorted({url for url in urls if urls.count(url) > 1})
        _expect(not again, "tiers", "a place of its own for each", again)
        _expect(self.spill in _SPILLS, "spill", f"one of {', '.join(_SPILLS)}", self.spill)
        self.checkpoint_policy()
        for what in ("workers", "max_spills", "max_queued_spills", "max_loads", "objects"):
            _expect_count(what, getattr(self, what))
        _expect_seconds("load_deadline_s", self.load_deadline_s)

    def checkpoint_policy(self) -> CheckpointPolicy:
        """Which checkpoints are written, parsed."""
        return CheckpointPolicy.parse(self.checkpoints)
