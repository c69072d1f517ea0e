"""How a manager comes up again: cold, whole, and warm once that is settled."""

import pytest

from kvstrata import CacheManager
from kvstrata.eventstore.log import log as log_module
from kvstrata.eventstore.log.system import System
from tests.face.support import Place, check_sums, hit, request, serve

__all__ = ["bring", "came_up_cold", "everything_is_free"]


def bring(monkeypatch: pytest.MonkeyPatch, system: System) -> None:
    """Managers opened from here on use this machine."""
    monkeypatch.setattr(log_module, "System", lambda: system)


def everything_is_free(cache: CacheManager) -> None:
    """No page is taken, no unit is indexed, and the sums hold."""
    stats = cache.stats()
    for pool in stats.pools:
        assert {state for state, count in pool.pages.items() if count} == {"free"}
    assert stats.blocks["indexed"] == stats.images["indexed"] == 0
    assert stats.sequences == stats.leases == 0
    check_sums(cache)


def came_up_cold(place: Place, pools: str | None, names: list[str], lost: int) -> int:
    """Open twice: without device pages, in order to work; then with what was served meanwhile.

    Args:
        place: the log.
        pools: where the pools are.
        names: prompts that were served, of 40 tokens and more.
        lost: sealed pages that the log knows, at least.

    Returns:
        Sealed pages that were lost.
    """
    with place.open(pools) as cache:
        assert cache.recovery is not None
        assert not cache.recovery.log.bytes_trusted
        assert cache.recovery.pages_kept == 0
        found = cache.recovery.pages_lost["bytes_untrusted"]
        assert found >= lost
        for name in names:
            assert hit(cache, request(name)) == (0, 0)
        everything_is_free(cache)
        for name in names:
            assert serve(cache, request(name)) == 0
            assert serve(cache, request(name)) == 32
        cache.flush()
    with place.open(pools) as cache:
        assert cache.recovery is not None
        assert cache.recovery.log.bytes_trusted
        assert cache.recovery.log.clean
        for name in names:
            assert hit(cache, request(name)) == ((0, 0) if pools == "private" else (32, 32))
        check_sums(cache)
    return found
