"""check_integrity finds planted damage, and a manager that broke a law mutates no more."""

from collections.abc import Callable

import pytest

from kvstrata import CacheManager, InvariantViolation, Sequence
from kvstrata.storage import BadPage

from .damage import DAMAGES
from .support import check_sums, prefill, request, serve


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_planted_damage_is_found(
    cache: CacheManager, damage: Callable[[CacheManager, Sequence], None]
) -> None:
    serve(cache, request("leased", 40))
    serve(cache, request("another", 80))
    running = prefill(cache, request("running", 40))
    check_sums(cache)
    damage(cache, running)
    with pytest.raises(InvariantViolation) as caught:
        cache.check_integrity()
    assert str(caught.value)
    before = cache.digest()
    for call in (
        cache.check_integrity,
        running.finish,
        running.cancel,
        lambda: cache.reserve([running.id], [1]),
        lambda: cache.begin(cache.match(request("new", 40))),
        lambda: cache.lease(cache.match(request("another", 80))),
        lambda: cache.quarantine(BadPage(0, 1, 1, 0, 1)),
    ):
        with pytest.raises(InvariantViolation, match="the manager mutates no more: "):
            call()
    assert cache.digest() == before
