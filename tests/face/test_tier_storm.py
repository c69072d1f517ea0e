"""Five hundred requests for twenty prefixes at once, over a store that is slow."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvstrata import AdmissionConfig, CacheManager, Deferred, OutOfPages, Request, StaleLease
from kvstrata.core.events import EventType
from kvstrata.core.planner import Rates
from tests.cases.support import asked, check_hit
from tests.face.tiered import SIZE, Corner, corner, events_in, hook, stored, text, tiering_of

PREFIXES, REQUESTS, BLOCKS = 20, 500, 6
OBJECTS = PREFIXES * (BLOCKS + 1)
READ_S, WORKERS = 0.02, 4
SIZES: dict[str, Any] = {"blocks": PREFIXES * BLOCKS + 40, "images": 80, "max_sequences": 8}
SLOW = Rates(tokens_per_s=10, bytes_per_s=10**9)


def prefix(number: int) -> Any:
    return text((f"prefix {number}", BLOCKS * SIZE))


def arriving() -> list[Request]:
    """In an order of no pattern, each with a question of its own."""
    order = np.random.default_rng(7).permutation(REQUESTS) % PREFIXES
    return [
        asked(np.concatenate([prefix(int(which)), text((f"question {number}", 5))]))
        for number, which in enumerate(order)
    ]


def serve_all(cache: CacheManager, waiting: list[Request]) -> list[float]:
    """An engine's loop in one thread: who is due asks; who begins is checked; their waits."""
    begin_s = time.monotonic()
    due = dict.fromkeys(range(len(waiting)), begin_s)
    waits = []
    while due:
        now_s = time.monotonic()
        assert now_s - begin_s < 60.0, f"{len(due)} requests have not begun"
        for number in [number for number, at_s in due.items() if at_s <= now_s]:
            try:
                sequence = cache.begin(cache.match(waiting[number]))
            except Deferred as error:
                due[number] = time.monotonic() + error.retry_after_s
                continue
            except (OutOfPages, StaleLease):
                continue
            waits.append(time.monotonic() - begin_s)
            del due[number]
            check_hit(cache, sequence)
            assert sequence.plan.resume_at == BLOCKS * SIZE
            sequence.cancel()
        wait_s = max(0.0, min(due.values(), default=0.0) - time.monotonic())
        if due and tiering_of(cache).wait(wait_s):
            due = dict.fromkeys(due, 0.0)  # something came: whoever waited for it may go on
    return waits


def wanted_s() -> float:
    """Seconds for which this thread has run, or would have had the machine been its own."""
    ran_ns, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return (int(ran_ns) + int(waited_ns)) / 1e9


def most_in_recovery(cache: CacheManager) -> tuple[int, int]:
    """Most loads, and most bytes granted to loads, between their begin and their end."""
    running: dict[int, int] = {}
    granted, most_loads, most_bytes = 0, 0, 0
    for event in events_in(cache):
        kind = int(event["type"])
        if kind == EventType.ADMISSION_GRANTED and int(event["c"]):
            granted = int(event["c"])
        elif kind == EventType.LOAD_BEGUN:
            assert 0 < int(event["c"]) <= granted
            running[int(event["a"])] = granted
        elif kind == EventType.LOAD_ENDED:
            del running[int(event["a"])]
        most_loads = max(most_loads, len(running))
        most_bytes = max(most_bytes, sum(running.values()))
    assert not running
    return most_loads, most_bytes


def filled(place: Corner) -> None:
    stored(
        place,
        *(text((f"prefix {number}", BLOCKS * SIZE), ("x", 3)) for number in range(20)),
        **SIZES,
    )
    assert len(place.files()) == OBJECTS


@pytest.mark.parametrize(
    "limits",
    [{}, {"max_recoveries": 3}, {"max_recovery_bytes": 4500}],
    ids=["no cap", "3 recoveries", "4500 bytes"],
)
def test_a_storm(limits: dict[str, int]) -> None:
    """Every object is read once, no cap is passed, and nobody starves."""
    admission = AdmissionConfig(max_waiting=REQUESTS, **limits)  # type: ignore[arg-type]
    with corner() as place:
        filled(place)
        tiers = place.tiers(workers=WORKERS)
        with place.opened(admission=admission, rates=SLOW, tiers=tiers, **SIZES) as cache:
            reads: list[str] = []

            took_s: list[float] = []

            def slow(name: str) -> None:
                reads.append(name)
                begin_s = time.monotonic()
                time.sleep(READ_S)
                took_s.append(time.monotonic() - begin_s)

            hook(cache).hooks["read"] = slow
            before_s = wanted_s()
            waits = serve_all(cache, arriving())
            engine_s = wanted_s() - before_s
            assert len(waits) == REQUESTS
            assert len(reads) == len(set(reads)) == OBJECTS
            loads, num_bytes = most_in_recovery(cache)
            assert 0 < loads <= limits.get("max_recoveries", 16)
            assert 0 < num_bytes <= limits.get("max_recovery_bytes", 1 << 40)
            # The work: of the store, and of the engine's own thread, as long as they really took.
            bound_s = 3 * (sum(took_s) / WORKERS + engine_s)
            print(
                f"longest wait {max(waits):.2f} s of at most {bound_s:.2f} s "
                f"(the engine's thread worked {engine_s:.2f} s), at most {loads} "
                f"loads and {num_bytes} bytes at once; {tiering_of(cache).stats().loads}"
            )
            assert max(waits) < bound_s
            stats = cache.stats().admission
            assert stats is not None
            assert (stats.promised_blocks, stats.recoveries, stats.waiting) == (0, 0, 0)
            assert cache.stats().sequences == 0
            assert stats.num_denied == 0
