"""Managers with lower tiers in real folders, over bytes that tell which text they are of."""

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from kvstrata import CacheConfig, CacheLayout, CacheManager, LogConfig, Request, Sequence
from kvstrata.core.arena import arena_digest, new_arena
from kvstrata.core.events import EVENT_DTYPE, EventType, Reason, decode_payload
from kvstrata.core.replay import apply_events
from kvstrata.eventstore.log import read_events
from kvstrata.tiering import Tiering
from kvstrata.tiers.config import TierConfig, TiersConfig
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.tier import Tier
from tests.cases.support import Tokens, asked, check_hit, compute, layout_of, text

from .injected import Clock, Hooked
from .support import check_sums

SIZE = 16
LAYOUT = layout_of(SIZE, windows={"swa": 16}, ratios={"full": 1, "c4": 4})
"""Two history groups and a sliding one."""
FULL = layout_of(SIZE)
"""No state group: every whole block is a resume point."""
Pools = Literal["private", "shared"] | None


class Corner:
    """A folder on tmpfs for logs and tiers."""

    def __init__(self, root: Path, layout: CacheLayout = LAYOUT) -> None:
        self.root = root
        self.layout = layout
        (root / "shared").mkdir(exist_ok=True)

    def tiers(self, *names: str, **fields: Any) -> TiersConfig:
        """Folders of these names, fastest first."""
        places = tuple(TierConfig(str(self.root / name), name=name) for name in names or ("disk",))
        return TiersConfig(places, **fields)

    def config(self, blocks: int = 40, images: int = 24, **changes: Any) -> CacheConfig:
        slots = {group.name: blocks + 1 for group in self.layout.history_groups}
        slots |= {group.name: images + 1 for group in self.layout.state_groups}
        settings: dict[str, Any] = {
            "slots": slots,
            "max_sequences": 4,
            "max_leases": 4,
            "max_tokens_per_sequence": blocks * self.layout.block_tokens,
            "tiers": self.tiers(),
            "log": LogConfig(
                ring_events=1 << 13,
                segment_bytes=8 << 20,
                sync_interval_ms=2.0,
                shared_memory_root=self.root / "shared",
            ),
        }
        return CacheConfig(**(settings | changes))

    @contextmanager
    def opened(
        self, log: str = "log", pools: Pools = "private", **changes: Any
    ) -> Iterator[CacheManager]:
        """A manager; at the end every law holds and a replay of its log gives its tables."""
        config = self.config(**changes)
        with CacheManager.open(self.layout, config, self.root / log, pools) as cache:
            yield cache
            self.check(cache)

    def check(self, cache: CacheManager) -> None:
        check_sums(cache)
        cache.flush()
        arena = new_arena(self.layout, cache.config.arena_params(self.layout))
        events = events_in(cache)
        words = np.frombuffer(events.tobytes(), dtype=np.int64).reshape(-1, 8)
        assert apply_events(arena, words) == len(words)
        assert arena_digest(arena) == cache.digest()

    def store(self, name: str = "disk") -> LocalStore:
        return LocalStore(self.root / name)

    def files(self, name: str = "disk", suffix: str = "") -> list[Path]:
        """Objects of a tier, sorted by name."""
        found = (self.root / name / "objects").rglob(f"*{suffix}")
        return sorted(path for path in found if not path.is_dir())

    def aside(self, name: str = "disk") -> list[Path]:
        return sorted((self.root / name / "quarantine").iterdir())

    def file_of(self, tokens: Tokens, blocks: int, kind: str = "block") -> Path:
        """Where the object of a prefix's last block, or of the checkpoint behind it, lies."""
        key = asked(tokens).keys(self.layout.block_tokens)[blocks - 1].tobytes().hex()
        (found,) = [path for path in self.files() if path.name == f"{key}.{kind}"]
        return found


def use_bucket(
    place: Corner, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], Any] = LocalStore
) -> TierConfig:
    """A tier that is asked over a net: what lies in this bucket lies in a folder instead."""

    def open_store(url: str, timeout_s: float, retries: int) -> Any:
        return made(place.root / "bucket") if url.startswith("s3:") else LocalStore(Path(url))

    monkeypatch.setattr("kvstrata.tiers.tierset.open_store", open_store)
    return TierConfig("s3://bucket/objects", name="remote")


@contextmanager
def corner(layout: CacheLayout = LAYOUT) -> Iterator[Corner]:
    root = Path("/dev/shm") / f"kvstrata-tests-{uuid.uuid4().hex}"
    root.mkdir()
    try:
        yield Corner(root, layout)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def tiering_of(cache: CacheManager) -> Tiering:
    assert cache._tiering is not None
    return cache._tiering


def tier_of(cache: CacheManager, index: int = 0) -> Tier:
    return tiering_of(cache).tierset().tiers[index]


def hook(cache: CacheManager, index: int = 0) -> Hooked:
    """Put hooks before a tier's store."""
    tier = tier_of(cache, index)
    store = Hooked(tier.store)
    tier.store = store
    return store


def events_in(cache: CacheManager) -> Any:
    """Every event of the log so far."""
    cache.flush()
    assert cache.log is not None
    return np.concatenate([np.zeros(0, EVENT_DTYPE), *read_events(cache.log._paths.root)])


def told(cache: CacheManager, *kinds: EventType) -> list[dict[str, Any]]:
    """Events of these types, with their payloads and reasons by name."""
    found = events_in(cache)
    return [
        decode_payload(event)
        | {
            "type": EventType(int(event["type"])).name,
            "reason": Reason(int(event["reason"])).name,
            "tier": int(event["tier"]),
            "group": int(event["group"]),
        }
        for event in found[np.isin(found["type"], [int(kind) for kind in kinds])]
    ]


def failed(cache: CacheManager) -> list[str]:
    """Reasons of the objects that a tier gave wrong, in order."""
    return [event["reason"] for event in told(cache, EventType.OBJECT_FAILED)]


def begun(cache: CacheManager, tokens: Tokens, timeout_s: float = 20.0, **fields: Any) -> Sequence:
    """Begin when it can be; what is reused is, byte for byte, what these tokens give."""
    sequence = cache.begin_when_ready(asked(tokens, **fields), timeout_s)
    check_hit(cache, sequence)
    return sequence


def served(cache: CacheManager, tokens: Tokens, **fields: Any) -> int:
    """A whole request, computed from where it resumes; that place."""
    sequence = begun(cache, tokens, **fields)
    compute(cache, sequence)
    sequence.finish()
    return sequence.plan.resume_at


def peek(cache: CacheManager, tokens: Tokens, **fields: Any) -> int:
    """Where a request resumes when it is begun; nothing is computed."""
    sequence = begun(cache, tokens, **fields)
    resumed = sequence.plan.resume_at
    sequence.cancel()
    return resumed


def settled(cache: CacheManager) -> None:
    assert cache.settle_tiers(20.0)


def stored(place: Corner, *prompts: Tokens, log: str = "log", **changes: Any) -> None:
    """Serve prompts, have them stored, and close; device pages are gone at the next open."""
    with place.opened(log, **changes) as cache:
        for tokens in prompts:
            served(cache, tokens)
        settled(cache)


def until(holds: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for something that another thread does."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s, "it did not come in time"
        time.sleep(0.001)


__all__ = [
    "FULL",
    "LAYOUT",
    "SIZE",
    "Clock",
    "Corner",
    "Hooked",
    "Request",
    "asked",
    "begun",
    "corner",
    "events_in",
    "failed",
    "hook",
    "peek",
    "served",
    "settled",
    "stored",
    "text",
    "tier_of",
    "tiering_of",
    "told",
    "until",
    "use_bucket",
]
