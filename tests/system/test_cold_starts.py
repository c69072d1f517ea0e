"""After a reboot, or an epoch that went past the log: no device pages, never wrong ones."""

import shutil

import pytest

from kvstrata.eventstore.log import place_of
from tests.eventstore.support import OtherBoot
from tests.face.support import Place, check_sums, hit, prefill, request, serve

from .restart import bring, came_up_cold, everything_is_free

NAMES = ["one", "two"]


def served(place: Place, pools: str | None, how: str) -> None:
    """A log with two prompts in it and one sequence running, closed or as a crash leaves it."""
    cache = place.open(pools)
    for name in NAMES:
        serve(cache, request(name))
    running = prefill(cache, request("running"))
    cache.reserve([running.id], [3])
    cache.flush()
    if how == "closed":
        cache.close()
    else:
        assert cache.log is not None
        cache.log.close(clean=False)


@pytest.mark.parametrize("pools", [None, "private", "shared"])
@pytest.mark.parametrize("how", ["closed", "crashed"])
def test_the_same_boot(place: Place, how: str, pools: str | None) -> None:
    """The control: nothing is lost but what was not sealed, where the bytes survive."""
    served(place, pools, how)
    with place.open(pools) as cache:
        assert cache.recovery is not None
        lost = cache.recovery.pages_lost
        # Two blocks and a checkpoint each.
        assert (cache.recovery.pages_kept, lost["bytes_untrusted"]) == (
            (0, 9) if pools == "private" else (9, 0)
        )
        assert lost["crashed"] == (3 if how == "crashed" else 0)
        for name in [*NAMES, "running"]:
            assert hit(cache, request(name)) == ((0, 0) if pools == "private" else (32, 32))
        check_sums(cache)


@pytest.mark.parametrize("pools", [None, "private", "shared"])
@pytest.mark.parametrize("how", ["closed", "crashed"])
def test_another_boot(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str, pools: str | None
) -> None:
    served(place, pools, how)
    bring(monkeypatch, OtherBoot())
    assert came_up_cold(place, pools, NAMES, lost=9) == 9


@pytest.mark.parametrize("pools", [None, "shared"])
def test_another_boot_whose_memory_is_gone(
    place: Place, monkeypatch: pytest.MonkeyPatch, pools: str | None
) -> None:
    """What a real reboot leaves: the directory, and an empty tmpfs."""
    served(place, pools, "crashed")
    shutil.rmtree(place_of(place.directory, place.shared).root)
    bring(monkeypatch, OtherBoot())
    assert came_up_cold(place, pools, NAMES, lost=9) == 9


def test_pools_that_are_gone_in_the_same_boot(place: Place) -> None:
    """Somebody emptied the tmpfs between two lives."""
    served(place, "shared", "closed")
    shutil.rmtree(place_of(place.directory, place.shared).pools)
    with place.open("shared") as cache:
        assert cache.recovery is not None
        assert cache.recovery.pages_lost["bytes_untrusted"] == 9
        everything_is_free(cache)
        serve(cache, request("one"))
        assert hit(cache, request("one")) == (32, 32)


@pytest.mark.parametrize("how", ["closed", "crashed"])
@pytest.mark.parametrize("pools", [None, "shared"])
def test_an_unlogged_epoch(place: Place, pools: str | None, how: str) -> None:
    """Pages were reused past the log: what it says of them is old."""
    cache = place.open(pools)
    for name in NAMES:
        serve(cache, request(name))
    cache.flush()
    assert cache.log is not None
    cache.log.end_epoch("tried out")
    for number in range(20):  # evicts what the log knows
        serve(cache, request(f"past {number}", 100))
    assert hit(cache, request("one")) == (0, 0)
    if cache.pools is not None:
        cache.pools.storage("full").fill_(99)
    check_sums(cache)
    if how == "closed":
        cache.close()
    else:
        cache.log.close(clean=False)
    came_up_cold(place, pools, [*NAMES, "past 19"], lost=6)


def test_killed_before_the_recovery_was_logged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A life that distrusted the pools and died at once: the next one distrusts them too."""
    served(place, "shared", "closed")
    bring(monkeypatch, OtherBoot())
    with monkeypatch.context() as patched:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr("kvstrata.manager.recover", die)
        with pytest.raises(KeyboardInterrupt):
            place.open("shared")
    came_up_cold(place, "shared", NAMES, lost=9)


def test_from_one_boot_to_the_next_and_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old pages do not come back to life when the first boot id does."""
    served(place, "shared", "closed")
    with monkeypatch.context() as patched:
        bring(patched, OtherBoot())
        with place.open("shared") as cache:
            everything_is_free(cache)
    with place.open("shared") as cache:
        everything_is_free(cache)
        serve(cache, request("one"))
    with place.open("shared") as cache:
        assert hit(cache, request("one")) == (32, 32)
        assert hit(cache, request("two")) == (0, 0)
