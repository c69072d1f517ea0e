"""What was computed on a page that went bad is nobody's hit, however it came to be findable."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvstrata import (
    AdmissionConfig,
    CacheConfig,
    CacheManager,
    Deferred,
    InvariantViolation,
    LogConfig,
    OutOfPages,
    Request,
    Sequence,
    StaleLease,
    abi_of,
)
from kvstrata.core import finish as core_finish
from kvstrata.core.words import HOLDER_TAINTED
from tests.eventstore.support import shared_corner

from .stamps import Stamps, hashes_of, layout_of

PROMPT = list(range(1, 15))
LAYOUT = layout_of(("c1", "swa"), 4, 2)


def request(tokens: list[int], **fields: Any) -> Request:
    return Request(np.array(tokens), "m", **fields)


def open_cache(**changes: Any) -> tuple[CacheManager, Stamps]:
    settings: dict[str, Any] = {
        "slots": {"c1": 21, "swa": 13},
        "max_sequences": 3,
        "max_leases": 2,
        "max_tokens_per_sequence": 40,
        "admission": None,
        "log": LogConfig(ring_events=1 << 12),
    }
    cache = CacheManager.open(LAYOUT, CacheConfig(**(settings | changes)), None, "private")
    return cache, Stamps(cache)


def begin(cache: CacheManager, tokens: list[int], **fields: Any) -> Sequence:
    return cache.begin(cache.match(request(tokens, **fields)))


def compute(
    cache: CacheManager, stamps: Stamps, sequence: Sequence, tokens: list[int], end: int
) -> None:
    """Compute up to a position, with true stamps, in steps that end at captures."""
    hashes = hashes_of("m", tokens)
    while sequence.position < end:
        start = sequence.position
        stop = min([capture for capture in sequence.captures if capture > start] + [end])
        step = cache.reserve([sequence.id], [stop - start])
        assert not step.refused[0]
        slots = cache.block_slots(sequence, "c1").tolist()
        read, write = (found["swa"] for found in step.image_slots(0))
        if read != write:
            stamps.copy("swa", read, write)
        for position in range(start, stop):
            if position >= sequence.protected:
                stamps.write_history("c1", slots, hashes, position)
            stamps.write_state("swa", write, hashes, position)
        step.commit(tokens=np.array(tokens[start:stop], dtype=np.int32))


def is_tainted(cache: CacheManager, sequence: Sequence) -> bool:
    return bool(cache.tables.holders[sequence.id & 0xFFFF, HOLDER_TAINTED])


def twins(cache: CacheManager, stamps: Stamps) -> tuple[Sequence, Sequence]:
    """Two that computed the same block: the second one reads its own, which is not indexed."""
    first, second = begin(cache, PROMPT[:5]), begin(cache, PROMPT)
    compute(cache, stamps, first, PROMPT, 5)
    compute(cache, stamps, second, PROMPT, 4)
    return first, second


def test_a_duplicate_found_bad_takes_what_was_published_on_it_along() -> None:
    cache, stamps = open_cache()
    first, second = twins(cache, stamps)
    first.finish()
    stamps.flip("c1", int(cache.block_slots(second, "c1")[0]), 3)
    compute(cache, stamps, second, PROMPT, 13)
    assert cache.match(request([*PROMPT, 7])).resume_at == 12
    assert cache.scrub(1 << 30).bad == 1
    assert is_tainted(cache, second)
    assert cache.match(request([*PROMPT, 7])).is_cold


def test_a_fork_of_who_read_a_bad_duplicate_publishes_nothing() -> None:
    cache, stamps = open_cache()
    first, second = twins(cache, stamps)
    first.finish()
    stamps.flip("c1", int(cache.block_slots(second, "c1")[0]), 3)
    compute(cache, stamps, second, PROMPT, 6)
    child = second.fork()
    cache.scrub(1 << 30)
    assert is_tainted(cache, child)
    compute(cache, stamps, child, PROMPT, 13)
    child.finish()
    assert cache.match(request([*PROMPT, 7])).is_cold


def test_a_fork_does_not_adopt_what_nobody_validated() -> None:
    """It would share the block that is indexed, which its parent does not read."""
    cache, stamps = open_cache()
    first, second = twins(cache, stamps)
    slot = int(cache.block_slots(first, "c1")[0])
    first.finish()
    stamps.flip("c1", slot, 3)
    with pytest.raises(StaleLease, match="failed validation"):
        second.fork()
    assert cache.stats().validation_failures == {"0/checksum_mismatch/c1": 1}


@pytest.mark.parametrize("policy", ["never", "always"])
def test_a_checkpoint_outlives_its_block_and_not_what_it_stood_on(policy: str) -> None:
    cache, stamps = open_cache(slots={"c1": 7, "swa": 13}, verify_hits=policy)
    first = begin(cache, PROMPT[:5])
    compute(cache, stamps, first, PROMPT, 5)
    slot = int(cache.block_slots(first, "c1")[0])
    running = begin(cache, PROMPT[:13])
    first.finish()
    stamps.flip("c1", slot, 3)
    compute(cache, stamps, running, PROMPT, 13)
    running.finish()
    image = cache.match(request([*PROMPT[:13], 1])).checkpoint
    other = list(range(50, 68))
    pressing = begin(cache, other)
    compute(cache, stamps, pressing, other, 18)  # evicts the blocks above the bad one
    pressing.finish()
    assert cache.match(request([*PROMPT[:13], 1])).history_tokens == 4
    assert cache.scrub(1 << 30).bad == 1
    again = begin(cache, PROMPT[:13])
    assert again.plan.is_cold
    compute(cache, stamps, again, PROMPT, 13)
    again.finish()
    assert cache.match(request([*PROMPT[:13], 1])).checkpoint != image


def test_who_began_on_a_partial_block_found_bad_later_is_tainted() -> None:
    cache, stamps = open_cache(verify_hits="never")
    sequence = begin(cache, PROMPT[:7])
    compute(cache, stamps, sequence, PROMPT, 6)
    slot = int(cache.block_slots(sequence, "c1")[1])
    suspended = sequence.suspend()
    stamps.flip("c1", slot, 3)
    resumed = cache.resume(suspended, PROMPT[:9])
    assert resumed.plan.source == "suspended"
    cache.scrub(1 << 30)
    assert is_tainted(cache, resumed)


def test_an_interrupted_suspend_ends_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its image is sealed by then: a step more would write into a checkpoint."""
    cache, stamps = open_cache()
    sequence = begin(cache, PROMPT[:13])
    compute(cache, stamps, sequence, PROMPT, 6)
    run = cache._call.run

    def interrupted(function: Any, *arguments: Any) -> int:
        if function is core_finish.end_sequence:
            raise KeyboardInterrupt
        return run(function, *arguments)

    monkeypatch.setattr(cache._call, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sequence.suspend()
    with pytest.raises(InvariantViolation, match="interrupted by KeyboardInterrupt"):
        cache.reserve([sequence.id], [1])


def lives(folder: Path) -> CacheManager:
    settings = CacheConfig(
        slots={"c1": 20, "swa": 12},
        max_sequences=2,
        max_leases=1,
        max_tokens_per_sequence=40,
        log=LogConfig(ring_events=1 << 12, shared_memory_root=folder),
    )
    return CacheManager.open(LAYOUT, settings, folder / "log", "shared")


def test_the_next_engine_does_not_inherit_an_abi() -> None:
    with shared_corner() as folder:
        cache = lives(folder)
        cache.register_abi("c1", abi_of(LAYOUT, "c1", kernel="swizzled", kernel_version="7"))
        sequence = begin(cache, PROMPT[:13])
        compute(cache, Stamps(cache), sequence, PROMPT, 13)
        sequence.finish()
        assert begin(cache, PROMPT).resumed_at == 12
        cache.close()
        with lives(folder) as cache:
            assert begin(cache, PROMPT).plan.is_cold
            assert "2/abi_mismatch/c1" in cache.stats().validation_failures


def test_a_sequence_reported_complete_as_the_manager_closes() -> None:
    with shared_corner() as folder:
        cache = lives(folder)
        first = begin(cache, PROMPT[:5])
        compute(cache, Stamps(cache), first, PROMPT, 5)
        begin(cache, [7, 7, 7])
        cache.complete(first.id)
        cache.close()
        with lives(folder) as again:
            assert again.recovery is not None
            assert again.recovery.sequences_ended == 0


def test_an_attempt_that_found_no_row_pays_for_no_load() -> None:
    image = LAYOUT.image_bytes
    limits = AdmissionConfig(bytes_per_s=float(image), burst_bytes=4 * image)
    cache, stamps = open_cache(max_sequences=2, admission=limits)
    sequence = begin(cache, PROMPT[:13])
    compute(cache, stamps, sequence, PROMPT, 13)
    sequence.finish()
    running = [begin(cache, [9, 9]), begin(cache, [8, 8])]
    wanted = request(PROMPT)
    for _ in range(8):
        with pytest.raises(OutOfPages):
            cache.begin(cache.match(wanted))
    running[0].finish()
    assert cache.begin(cache.match(wanted)).plan.source == "checkpoint"


def test_forks_and_leases_keep_what_is_promised() -> None:
    limits = AdmissionConfig()
    cache, stamps = open_cache(slots={"c1": 10, "swa": 21}, max_sequences=6, admission=limits)
    promised = begin(cache, PROMPT[:5], max_new_tokens=15)  # five blocks
    other = begin(cache, [7, 8, 9, 10, 11, 12])
    compute(cache, stamps, other, [7, 8, 9, 10, 11, 12], 6)
    for _ in range(2):  # two of nine blocks are left beside the promise and what it holds
        other.fork()
    with pytest.raises(OutOfPages, match="promised to no sequence"):
        other.fork()
    step = cache.reserve([promised.id], [20])
    assert not step.refused[0]


def test_a_join_ends_with_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("kvstrata.joining.time.monotonic", lambda: now_s)
    cache, stamps = open_cache()
    running = begin(cache, PROMPT)
    compute(cache, stamps, running, PROMPT, 6)
    wanted = request([*PROMPT, 9], join=True, deadline_s=0.05)
    with pytest.raises(Deferred):
        cache.begin(cache.match(wanted))
    assert cache.explain(wanted).join is not None
    now_s += 0.1
    assert cache.begin(cache.match(wanted)).plan.source in ("cold", "replay")


def test_nobody_waits_for_a_sequence_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("kvstrata.joining.time.monotonic", lambda: now_s)
    cache, stamps = open_cache()
    running = begin(cache, PROMPT)
    compute(cache, stamps, running, PROMPT, 6)
    wanted = request([*PROMPT, 9], join=True)
    for _ in range(3):
        with pytest.raises(Deferred):
            cache.begin(cache.match(wanted))
        now_s += 0.3
    now_s += 0.5
    assert cache.match(wanted).join is None


def test_who_may_not_reuse_a_prefix_does_not_wait_for_it() -> None:
    cache, stamps = open_cache()
    running = begin(cache, PROMPT)
    compute(cache, stamps, running, PROMPT, 6)
    assert cache.match(request([*PROMPT, 9], join=True, max_resume=0)).join is None
