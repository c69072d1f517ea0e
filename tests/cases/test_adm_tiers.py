"""Cases ADM of loads: one that never ends, one for all ranks, and loads among stores."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kvstrata import CacheManager, Deferred
from kvstrata.core.events import EventType
from kvstrata.tiers.config import TierConfig, TiersConfig
from kvstrata.tiers.local import LocalStore
from tests.cases.support import asked, check_hit, compute
from tests.face.support import pages_in
from tests.face.tiered import (
    FULL,
    Clock,
    Corner,
    Hooked,
    begun,
    corner,
    hook,
    served,
    settled,
    stored,
    text,
    tiering_of,
    told,
    until,
    use_bucket,
)

PREFIX = text(("p", 3 * 16 + 1))
RANKS, FETCH_S, SPREAD_S, DIES_S = 8, 0.044, 0.012, 0.020


@pytest.mark.parametrize("abort", ["withdrawn", "dropped"])
def test_adm_03_a_pending_hit_has_a_deadline(abort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """r1 loads k and is aborted, r2 waits for the same load, which never ends: after 61 s r2
    computes k itself, the pages of the load are given back, and one deadline is counted."""
    clock = Clock()
    clock.set(monkeypatch)
    gate = threading.Event()
    with corner(FULL) as place:
        stored(place, PREFIX)
        with place.opened(tiers=place.tiers(load_deadline_s=60.0, workers=1)) as cache:
            store = hook(cache)
            store.hooks["read"] = lambda _: gate.wait(30)
            r1, r2 = asked(PREFIX), asked(PREFIX)
            with pytest.raises(Deferred, match="3 objects are being loaded"):
                cache.begin(cache.match(r1))
            until(lambda: store.count("read") == 1)
            if abort == "withdrawn":
                cache.withdraw(r1)
            del r1
            with pytest.raises(Deferred):
                cache.begin(cache.match(r2))
            clock.now_s += 59.0
            with pytest.raises(Deferred):
                cache.begin(cache.match(r2))
            assert pages_in(cache, "full") == {"free": 37, "loading": 3}
            clock.now_s += 2.0
            cache.apply_completions()
            assert pages_in(cache, "full") == {"free": 37, "draining": 3}
            sequence = cache.begin(cache.match(r2))
            assert (sequence.plan.source, sequence.plan.resume_at) == ("cold", 0)
            loads = tiering_of(cache).stats().loads
            assert loads["deadline_expired"] == 1
            assert loads["begun"] == 1
            compute(cache, sequence)
            gate.set()
            settled(cache)
            assert pages_in(cache, "full") == {"free": 36, "sealed_pinned": 3, "open": 1}
            (ended,) = told(cache, EventType.LOAD_ENDED)
            assert (ended["reason"], ended["objects"]) == ("LOAD_DEADLINE", 0)
            sequence.finish()
            assert cache.stats().sequences == 0
            assert store.count("read") == 1  # the others saw that nobody waits


class Backend(Hooked):
    """A slow store that is asked over a net; its reads are counted in a file, by all processes."""

    counts: Path
    first_reader_dies = False

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(root))
        self.counts = root.parent / "reads"
        self.hooks["read"] = self.slow

    def slow(self, _: str) -> None:
        descriptor = os.open(self.counts, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(descriptor, b"x")
        is_first = os.fstat(descriptor).st_size == 1
        os.close(descriptor)
        if is_first and self.first_reader_dies:
            time.sleep(DIES_S)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(FETCH_S)


def rank_config(place: Corner) -> dict[str, Any]:
    """Of every rank: its node's folder, and a bucket; the index is shared."""
    places = TierConfig(str(place.root / "node"), name="node"), TierConfig("s3://bucket/objects")
    url = f"sqlite:///{place.root / 'index.sqlite'}"
    return {"tiers": TiersConfig(places, catalogue=url, workers=1, max_spills=1)}


def rank_loads(place: Corner, rank: int, report: Any) -> None:
    """A rank, in a thread or process of its own: how much of the prefix it begins with."""
    with CacheManager.open(FULL, place.config(**rank_config(place)), None, "private") as cache:
        report.wait(60)
        time.sleep(rank * SPREAD_S / RANKS)
        sequence = cache.begin_when_ready(asked(PREFIX[: 16 + 1]), 30.0)
        check_hit(cache, sequence)
        assert sequence.plan.resume_at == 16
        sequence.cancel()


def rank_process(place: Corner, rank: int, start: Any) -> None:
    status = 1
    try:
        rank_loads(place, rank, start)
        status = 0
    finally:
        os._exit(status)


def use_backend(place: Corner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket is a slow folder; P's first block lies there, and nowhere else."""
    use_bucket(place, monkeypatch, Backend)
    stored(place, PREFIX[: 16 + 1], **rank_config(place))
    for path in (*place.files("node"), place.root / "reads"):
        path.unlink(missing_ok=True)
    assert len(place.files("bucket")) == 1


@pytest.mark.parametrize("dies", [False, True], ids=["no fault", "the fetcher dies"])
def test_adm_04_ranks_in_processes_read_a_prefix_once(
    dies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight ranks ask within 12 ms for what takes 44 ms to fetch: one read; with a dead fetcher at
    most two, and all that live have loaded it."""
    fork = multiprocessing.get_context("fork")
    with corner(FULL) as place:
        use_backend(place, monkeypatch)
        monkeypatch.setattr(Backend, "first_reader_dies", dies)
        start = fork.Event()
        ranks = [fork.Process(target=rank_process, args=(place, rank, start)) for rank in range(8)]
        for one in ranks:
            one.start()
        start.set()
        for one in ranks:
            one.join(60)
        codes = sorted(99 if one.exitcode is None else one.exitcode for one in ranks)
        assert codes == [-signal.SIGKILL] * dies + [0] * (RANKS - dies)
        assert (place.root / "reads").stat().st_size == 1 + dies
        assert len(place.files("node")) == 1


def test_adm_04_ranks_in_threads_read_a_prefix_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a manager in each of eight threads of one process."""
    with corner(FULL) as place:
        use_backend(place, monkeypatch)
        start, errors = threading.Event(), []

        def rank(number: int) -> None:
            try:
                rank_loads(place, number, start)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(RANKS)]
        for thread in threads:
            thread.start()
        start.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert errors == []
        assert (place.root / "reads").stat().st_size == 1


def test_adm_06_a_load_waits_for_no_more_than_the_store_that_runs() -> None:
    """One lane, 50 stores of 10 ms each wait; then a load comes: it is next."""
    store_s = 0.010
    with corner(FULL) as place:
        stored(place, PREFIX)
        tiers = place.tiers(workers=1, max_spills=1)
        with place.opened("another", blocks=80, tiers=tiers, max_leases=8) as cache:
            store = hook(cache)
            store.hooks["put"] = lambda _: time.sleep(store_s)
            served(cache, text(("q", 50 * 16 + 1)))
            cache.apply_completions()
            until(lambda: store.count("put") > 0)
            stats = tiering_of(cache).stats()
            assert 45 <= stats.spills_waiting <= 50
            sequence = begun(cache, PREFIX)
            assert sequence.plan.resume_at == 3 * 16
            before = [method for method, _ in store.calls if method in ("put", "read")]
            assert 1 <= before.index("read") <= 10, "the load waited for the queue"
            workers = tiering_of(cache).stats().workers
            assert workers is not None
            assert workers.oldest_spill_age_s > workers.max_load_queue_wait_s
            print(f"a load waited {workers.max_load_queue_wait_s * 1e3:.1f} ms to start")
            assert workers.max_load_queue_wait_s < 3 * (store_s + 3 * store_s)
            sequence.cancel()
            settled(cache)
            assert tiering_of(cache).stats().spills == {"written": 50}
