"""Loads nobody wants any more, or nobody may have; and readers that change."""

import gc
import threading
from dataclasses import replace

import pytest

from kvstrata import Abi, AdmissionConfig, CacheManager, Deferred, abi_of
from kvstrata.core.events import EventType
from kvstrata.core.planner import Rates
from tests.cases.support import asked, text
from tests.face.support import pages_in
from tests.face.tiered import (
    FULL,
    SIZE,
    Corner,
    corner,
    failed,
    hook,
    peek,
    served,
    settled,
    stored,
    told,
    until,
)

BLOCKS = 9
PROMPT = text(("p", BLOCKS * SIZE + 3))
SLOW = Rates(tokens_per_s=100, bytes_per_s=10**9)
"""A machine that had rather load than compute."""


@pytest.mark.parametrize("how", ["dropped", "withdrawn"])
@pytest.mark.parametrize("joined", [False, True], ids=["alone", "another waits"])
def test_a_request_that_is_gone_while_it_loads(how: str, joined: bool) -> None:
    """Its pages come back when the last read has ended; one that others wait for goes on."""
    with corner() as place:
        stored(place, PROMPT)
        with place.opened() as cache:
            store, gate = hook(cache), threading.Event()
            store.hooks["read"] = lambda _: gate.wait(10)
            wanted, other = asked(PROMPT), asked(PROMPT)
            for one in (wanted, other)[: 1 + joined]:
                with pytest.raises(Deferred):
                    cache.begin(cache.match(one))
            until(lambda: store.count("read") > 0)
            if how == "withdrawn":
                cache.withdraw(wanted)
            del wanted, one
            gc.collect()
            until(lambda: looked_after(cache, "draining" in pages_in(cache, "full") or joined))
            gate.set()
            settled(cache)
            if joined:
                sequence = cache.begin_when_ready(other)
                assert sequence.plan.resume_at == BLOCKS * SIZE
                sequence.cancel()
            else:
                assert pages_in(cache, "full") == {"free": 40}
                assert store.count("read") < BLOCKS + 1
                (ended,) = told(cache, EventType.LOAD_ENDED)
                assert ended["reason"] == "LOAD_CANCELLED"
            assert cache.stats().sequences == 0
            assert peek(cache, PROMPT) == BLOCKS * SIZE
            snapshot = cache.stats().admission
            assert snapshot is not None
            assert (snapshot.promised_blocks, snapshot.recoveries, snapshot.waiting) == (0, 0, 0)


def looked_after(cache: CacheManager, holds: bool) -> bool:
    cache.apply_completions()
    return holds


def test_an_abi_of_its_own_has_objects_of_its_own() -> None:
    """What was stored under another ABI is no hit, and what is computed now is stored beside it."""
    with corner(FULL) as place:
        with place.opened(rates=SLOW) as cache:
            served(cache, PROMPT)
            settled(cache)
            old = place.files()
            assert len(old) == BLOCKS
            cache.register_abi("full", another_abi(place))
            assert served(cache, PROMPT) == 0
            assert failed(cache) == []
            settled(cache)
            new = [path for path in place.files() if path not in old]
            assert sorted(path.name for path in new) == sorted(path.name for path in old)
            assert len({path.parent.parent for path in (*old, *new)}) == 2
        with place.opened(rates=SLOW) as cache:
            cache.register_abi("full", another_abi(place))
            assert peek(cache, PROMPT) == BLOCKS * SIZE
            assert failed(cache) == []
            assert place.aside() == []


def another_abi(place: Corner) -> Abi:
    return replace(abi_of(place.layout, "full"), kernel_version="2")


def test_a_load_that_is_not_admitted_runs_cold() -> None:
    """More bytes than may be in recovery at all."""
    admission = AdmissionConfig(max_recovery_bytes=1000)
    with corner() as place:
        stored(place, PROMPT)
        with place.opened(admission=admission, rates=SLOW) as cache:
            assert served(cache, PROMPT) == 0
            assert not told(cache, EventType.LOAD_BEGUN)
            stats = cache.stats().admission
            assert stats is not None
            assert (stats.promised_blocks, stats.recoveries, stats.waiting) == (0, 0, 0)
