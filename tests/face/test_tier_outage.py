"""A tier that is out, a catalogue that is away: requests go on with what is left."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvstrata import CacheManager
from kvstrata.core.errors import StoreError
from kvstrata.core.events import EventType, Reason
from kvstrata.core.planner import Rates
from kvstrata.tiers.catalogue import Catalogue
from kvstrata.tiers.config import TierConfig, TiersConfig
from kvstrata.tiers.store import StoreFault
from tests.face.tiered import (
    FULL,
    SIZE,
    Clock,
    Corner,
    Hooked,
    corner,
    failed,
    hook,
    peek,
    served,
    settled,
    stored,
    text,
    tier_of,
    tiering_of,
    told,
    until,
    use_bucket,
)

SLOW = Rates(tokens_per_s=100, bytes_per_s=10**9)
BLOCKS = 3
NODE, REMOTE = 0, 1


def prompt(name: str) -> Any:
    return text((name, BLOCKS * SIZE + 1))


def refuse(_: str) -> None:
    raise StoreFault(Reason.STORE_FAILED, "connection refused", is_outage=True)


def break_down(store: Hooked) -> None:
    for method in ("put", "read", "size", "head_bytes", "delete", "set_aside"):
        store.hooks[method] = refuse


def two_tiers(place: Corner, remote: TierConfig) -> TiersConfig:
    return TiersConfig((TierConfig(str(place.root / "node"), name="node"), remote))


def test_a_remote_tier_that_is_out_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tries while it is down; hits on the folder go on; all is well when it answers again."""
    clock = Clock()
    clock.set(monkeypatch)
    far, near = prompt("far"), prompt("near")
    with corner(FULL) as place:
        tiers = two_tiers(place, use_bucket(place, monkeypatch))
        stored(place, near, far, tiers=tiers)
        for block in (1, 2, 3):
            forget_file(place, far, block)
        with place.opened(tiers=tiers, rates=SLOW) as cache:
            remote = hook(cache, REMOTE)
            break_down(remote)
            assert peek(cache, far) == 0
            assert set(failed(cache)) <= {"OBJECT_MISSING", "STORE_FAILED", "TIER_DOWN"}
            assert_down(cache, remote)
            goes_on(cache, near, far)
            assert_down(cache, remote)
            clock.now_s += 120.0
            assert peek(cache, near) == BLOCKS * SIZE  # does not ask it
            assert peek(cache, far) == 0  # the probe fails
            assert_down(cache, remote, 2)
            remote.hooks.clear()
            clock.now_s += 120.0
            # While one asks whether it is well again, the others go on without it.
            until(lambda: peek(cache, far) == BLOCKS * SIZE)
            stats = tier_of(cache, REMOTE).stats()
            assert (stats.down, stats.retry_in_s, stats.outages) == (False, 0.0, 1)
            assert stats.promotions == 0
            assert tier_of(cache, NODE).stats().promotions == BLOCKS
            settled(cache)
            assert len(place.files("bucket")) == (2 + 5) * BLOCKS, "what was late never came"
        with place.opened("another", tiers=tiers, rates=SLOW) as cache:
            shutil.rmtree(place.root / "node" / "objects")
            (place.root / "node" / "objects").mkdir()
            for name in ("far", "near", "new 0", "new 4"):
                assert peek(cache, prompt(name)) == BLOCKS * SIZE


def forget_file(place: Corner, tokens: Any, block: int) -> None:
    from tests.cases.support import asked

    key = asked(tokens).keys(SIZE)[block - 1].tobytes().hex()
    (path,) = [path for path in place.files("node") if path.stem == key]
    path.unlink()


def assert_down(cache: CacheManager, remote: Hooked, probes: int = 1) -> None:
    """Down, and asked no more than it takes to find that out: once a worker, and the probes."""
    stats = tier_of(cache, REMOTE).stats()
    assert stats.down
    assert stats.retry_in_s > 0
    assert len(remote.calls) <= 3 + 4 + probes
    shown = tiering_of(cache).stats().tiers["remote"]
    assert shown["down"]
    assert not tiering_of(cache).stats().tiers["node"]["down"]


def goes_on(cache: CacheManager, near: Any, far: Any) -> None:
    """Ten requests, old and new, with what the folder has; nothing is loaded in vain."""
    loads = len(told(cache, EventType.LOAD_BEGUN))
    for number in range(5):
        assert peek(cache, near) == BLOCKS * SIZE
        assert served(cache, prompt(f"new {number}")) == 0
    assert peek(cache, far) == 0
    assert not cache.settle_tiers(0.1), "nothing was put off"
    assert len(told(cache, EventType.LOAD_BEGUN)) == loads + 1
    assert tiering_of(cache).stats().stored["node"]["blocks"] >= 6 * BLOCKS


def test_a_tier_that_hangs_does_not_hold_the_others_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time-outs count as an outage; a close does not wait for what a tier cannot take."""
    with corner(FULL) as place:
        tiers = two_tiers(place, use_bucket(place, monkeypatch))
        with place.opened(tiers=tiers) as cache:
            remote = hook(cache, REMOTE)

            def time_out(_: str) -> None:
                raise StoreFault(Reason.STORE_TIMEOUT, "no answer", is_outage=True)

            remote.hooks["put"] = time_out
            served(cache, prompt("a"))
            until(lambda: applied(cache, tier_of(cache, REMOTE).stats().down))
            served(cache, prompt("b"))
            until(lambda: applied(cache, len(place.files("node")) == 2 * BLOCKS))
            assert place.files("bucket") == []


def applied(cache: CacheManager, holds: bool) -> bool:
    cache.apply_completions()
    return holds


def catalogue_path(place: Corner) -> Path:
    return place.root / "disk" / "catalogue.sqlite"


def replace_by_folder(place: Corner, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    path = catalogue_path(place)
    for file in path.parent.glob("catalogue.sqlite*"):
        file.rename(place.root / file.name)
    path.mkdir()

    def restore() -> None:
        path.rmdir()
        for file in place.root.glob("catalogue.sqlite*"):
            file.rename(path.parent / file.name)

    return restore


def fail_all_methods(place: Corner, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def fail(*_: Any, **__: Any) -> Any:
        raise StoreError("catalogue: the server is gone; start it")

    with_patches = pytest.MonkeyPatch()
    for method in ("add", "touch", "remove", "entries", "num_bytes", "oldest", "expired"):
        with_patches.setattr(Catalogue, method, fail)
    return with_patches.undo


@pytest.mark.parametrize("how", [replace_by_folder, fail_all_methods])
@pytest.mark.parametrize("when", ["before it is opened", "while it is open"])
def test_a_catalogue_that_is_away(
    how: Callable[..., Callable[[], None]], when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests, loads and spills go on; it is asked again later, and then told of what is new."""
    clock = Clock()
    clock.set(monkeypatch)
    old, new, newer = prompt("old"), prompt("new"), prompt("newer")
    with corner(FULL) as place:
        stored(place, old)
        restore = how(place, monkeypatch) if when.startswith("before") else None
        with place.opened(rates=SLOW) as cache:
            restore = restore or how(place, monkeypatch)
            assert peek(cache, old) == BLOCKS * SIZE
            assert served(cache, new) == 0
            settled(cache)
            assert len(place.files()) == 2 * BLOCKS
            for number in range(5):
                served(cache, prompt(f"more {number}"))
                settled(cache)
            errors = tiering_of(cache).stats().catalogue_errors
            assert errors <= 4
            assert errors > 0 or how is replace_by_folder  # an open file goes on without its name
            restore()
            clock.now_s += 11.0
            assert served(cache, newer) == 0
            settled(cache)
            assert tiering_of(cache).stats().catalogue_errors == errors
            cache.check_integrity()
        found = Catalogue.open(f"sqlite:///{catalogue_path(place)}")
        try:
            keys = {entry.name for entry in found.entries("disk")}
        finally:
            found.close()
        names = {str(path.relative_to(place.root / "disk" / "objects")) for path in place.files()}
        assert keys <= names
        assert len(keys) >= 2 * BLOCKS
        with place.opened("another", rates=SLOW) as cache:
            for tokens in (old, new, newer):
                assert peek(cache, tokens) == BLOCKS * SIZE
