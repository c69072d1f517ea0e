"""What was not written is never a hit: reserved, in flight, aborted, cancelled, killed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kvstrata import CacheManager
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_STATE
from tests.eventstore.test_kill import in_child

from .support import Place, check_sums, hit, prefill, request, serve

PROMPT = request("unwritten", 80)
SHORTER = request("unwritten", 40)


def nothing_is_found(cache: CacheManager) -> None:
    for wanted in (PROMPT, SHORTER):
        assert hit(cache, wanted) == (0, 0)
    assert cache.stats().blocks["indexed"] == 0
    assert cache.stats().images["indexed"] == 0


def test_reserved_only(cache: CacheManager) -> None:
    sequence = cache.begin(cache.match(PROMPT))
    nothing_is_found(cache)
    step = cache.reserve([sequence.id], [80])
    assert step.refused.tolist() == [0]
    nothing_is_found(cache)
    step.commit()
    # No step ended where a checkpoint could be taken: the window before is computed again.
    assert hit(cache, PROMPT) == (32, 80)
    assert cache.match(PROMPT).source == "replay"
    check_sums(cache)


def test_in_flight_behind_a_committed_step(cache: CacheManager) -> None:
    sequence = cache.begin(cache.match(PROMPT))
    first = cache.reserve([sequence.id], [64])
    first.commit()
    second = cache.reserve([sequence.id], [16])
    assert hit(cache, PROMPT) == (64, 64)
    second.commit()
    assert hit(cache, PROMPT) == (64, 80)


def test_aborted(cache: CacheManager) -> None:
    sequence = cache.begin(cache.match(PROMPT))
    cache.reserve([sequence.id], [80]).abort()
    nothing_is_found(cache)
    sequence.finish()
    nothing_is_found(cache)
    check_sums(cache)


def test_accepted_nothing(cache: CacheManager) -> None:
    sequence = cache.begin(cache.match(PROMPT))
    cache.reserve([sequence.id], [80]).commit(accepted=[0])
    assert sequence.position == 0
    nothing_is_found(cache)
    sequence.finish()
    nothing_is_found(cache)
    assert "page_sealed" not in cache.stats().events


def test_accepted_in_part(cache: CacheManager) -> None:
    """The block that the rejected tokens were to complete is not found."""
    sequence = cache.begin(cache.match(PROMPT))
    cache.reserve([sequence.id], [64]).commit(accepted=[62])
    assert hit(cache, PROMPT)[1] == 48
    sequence.cancel()
    assert hit(cache, PROMPT)[1] == 48
    check_sums(cache)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_cancelled_in_flight(cache: CacheManager, end: str) -> None:
    sequence = cache.begin(cache.match(PROMPT))
    step = cache.reserve([sequence.id], [80])
    sequence.cancel()
    nothing_is_found(cache)
    drained = {pool.group: pool.pages["draining"] for pool in cache.stats().pools}
    assert drained["full"] == 5
    getattr(step, end)()
    nothing_is_found(cache)
    for pool in cache.stats().pools:
        assert pool.pages["free"] == pool.slots - 1
    check_sums(cache)


def test_a_page_in_flight_is_given_to_nobody(cache: CacheManager) -> None:
    """Cancelled, and its step still runs: the pages it writes stay taken."""
    sequence = cache.begin(cache.match(PROMPT))
    step = cache.reserve([sequence.id], [80])
    slots = set(cache.block_slots(sequence, "full").tolist())
    images = set(step.image_slots(0)[1].values())
    sequence.cancel()
    other = cache.begin(cache.match(request("other", 400)))
    cache.reserve([other.id], [400])
    assert not slots & set(cache.block_slots(other, "full").tolist())
    assert not images & set(cache.image_slots(other).values())
    assert not cache.writable("full", sorted(slots))


LIVES: dict[str, Callable[[CacheManager], object]] = {
    "begun": lambda cache: cache.begin(cache.match(PROMPT)),
    "reserved": lambda cache: cache.reserve([cache.begin(cache.match(PROMPT)).id], [80]),
    "aborted": lambda cache: cache.reserve([cache.begin(cache.match(PROMPT)).id], [80]).abort(),
}


@pytest.mark.parametrize("name", LIVES)
def test_a_copy_taken_before_the_commit(place: Place, tmp_path: Path, name: str) -> None:
    """The directory as a machine that died there would leave it, without its memory."""
    cache = place.open()
    LIVES[name](cache)
    cache.flush()
    copy = Place(tmp_path / "copy", tmp_path)
    shutil.copytree(place.directory, copy.directory)
    cache.close()
    with copy.open() as again:
        nothing_is_found(again)
        assert again.recovery is not None
        assert again.recovery.sequences_ended == 1
        assert set(again.tables.pages[:, PAGE_STATE].tolist()) == {int(PageState.FREE)}
        check_sums(again)


def die(place: Place, pools: str | None, when: str) -> None:
    """Serve one request, then die inside another one."""
    cache = place.open(pools)
    serve(cache, request("before", 40))
    sequence = prefill(cache, SHORTER) if when == "output" else cache.begin(cache.match(PROMPT))
    if when == "output":
        for token in range(7):
            cache.reserve([sequence.id], [1]).commit(tokens=[token])
    if when in ("reserved", "output", "cancelled"):
        cache.reserve([sequence.id], [64])
    if when == "cancelled":
        sequence.cancel()
    cache.flush()
    os._exit(9)


@pytest.mark.parametrize("pools", [None, "shared"])
@pytest.mark.parametrize("when", ["begun", "reserved", "output", "cancelled"])
def test_killed_before_commit(place: Place, when: str, pools: str | None) -> None:
    pid, pipe = in_child(lambda _: die(place, pools, when))
    os.close(pipe)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    with place.open(pools) as cache:
        assert cache.recovery is not None
        assert cache.recovery.sequences_ended == 1
        assert hit(cache, request("before", 40)) == (32, 32)
        written = 32 if when == "output" else 0
        assert hit(cache, PROMPT) == (written, written)
        # The block that 32 prompt tokens and output would have completed was not.
        tokens = np.concatenate([SHORTER.tokens, np.arange(40, dtype=np.int32)])
        assert cache.match(request("unwritten", tokens=tokens)).history_tokens == written
        check_sums(cache)
