"""What a caller gets wrong is refused and harmless: foreign plans, other threads, odd numbers."""

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kvstrata import (
    CacheConfig,
    CacheManager,
    ConfigError,
    InvariantViolation,
    KvstrataError,
    LogPoisoned,
    Request,
    StaleLease,
)
from kvstrata.core.words import UNIT_KEY_0, UNIT_REFS
from kvstrata.eventstore.log import log as log_module
from kvstrata.storage import Storage
from tests.eventstore.faults import FailingSystem
from tests.eventstore.support import shared_corner
from tests.face.damage import indexed_blocks
from tests.face.support import (
    Place,
    in_another_thread,
    memory_manager,
    prefill,
    request,
    serve,
)


@pytest.fixture
def place() -> Iterator[Place]:
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        yield Place(corner / "log", corner / "shared")


@pytest.fixture
def cache() -> CacheManager:
    return memory_manager()


@pytest.mark.parametrize("verb", ["begin", "lease"])
def test_plan_of_another_manager_is_stale_and_ends_nothing(cache: CacheManager, verb: str) -> None:
    other = memory_manager()
    serve(cache, request("mine"))
    serve(other, request("theirs"))
    with pytest.raises(StaleLease):
        getattr(cache, verb)(other.match(request("theirs")))
    serve(cache, request("mine"))


def test_close_from_another_thread_leaves_it_closable(place: Place) -> None:
    cache = place.open()
    prefill(cache, request("running"))
    with pytest.raises(InvariantViolation, match="another"):
        in_another_thread(cache.close)
    cache.close()
    place.open().close()


def test_close_from_another_thread_is_refused_when_idle(place: Place) -> None:
    cache = place.open()
    digest = cache.digest()
    with pytest.raises(InvariantViolation, match="another"):
        in_another_thread(cache.close)
    assert cache.digest() == digest


def test_log_digest_from_another_thread(cache: CacheManager) -> None:
    digest = cache.digest()
    with pytest.raises(InvariantViolation, match="another"):
        in_another_thread(cache.log_digest)
    assert cache.digest() == digest


def test_log_digest_after_close(place: Place) -> None:
    cache = place.open()
    cache.close()
    digest = cache.digest()
    with pytest.raises(InvariantViolation, match="closed"):
        cache.log_digest()
    assert cache.digest() == digest


@pytest.mark.parametrize("running", [True, False])
def test_close_after_a_violation_frees_the_directory(place: Place, running: bool) -> None:
    cache = place.open()
    serve(cache, request("one"))
    if running:
        prefill(cache, request("running"))
    cache.tables.blocks.rows[indexed_blocks(cache)[0], UNIT_REFS] = -1
    with pytest.raises(InvariantViolation):
        cache.check_integrity()
    digest = cache.digest()
    with contextlib.suppress(InvariantViolation):
        cache.close()
    assert cache.digest() == digest
    place.open().close()


def test_a_close_that_fails_still_ends_the_manager(place: Place, monkeypatch: Any) -> None:
    system = FailingSystem()
    monkeypatch.setattr(log_module, "System", lambda: system)
    cache = place.open(
        "shared", log={"durability": "none", "sync_interval_ms": 900.0, "stall_limit_ms": 2000.0}
    )
    serve(cache, request("one"))
    system.fail("fdatasync", errno.EIO)
    with pytest.raises(LogPoisoned):
        cache.close()
    with pytest.raises(InvariantViolation, match="closed"):
        cache.begin(cache.match(request("one")))


@pytest.mark.parametrize("tokens", [2**63 - 1, 2**63 - 20])
def test_num_tokens_that_overflow(cache: CacheManager, tokens: int) -> None:
    sequence = prefill(cache, request("one"))
    try:
        step = cache.reserve([sequence.id], [tokens])
    except ConfigError:
        return
    assert step.refused.tolist() == [1]


@pytest.mark.parametrize(
    "given", [[2**32 + 5], np.array([2**32 + 5]), [5.5], np.array([5.5]), ["x"]], ids=str
)
def test_output_tokens_beyond_32_bits(cache: CacheManager, given: Any) -> None:
    sequence = prefill(cache, request("one"))
    step = cache.reserve([sequence.id], [1])
    digest = cache.digest()
    with pytest.raises(ConfigError):
        step.commit(tokens=given)
    assert cache.digest() == digest


@pytest.mark.parametrize(
    ("ids", "tokens"),
    [("id", [1.9]), ("id", ["a"]), ([None], [1]), ([2**64], [1]), ([1.5], [1])],
    ids=str,
)
def test_reserve_of_no_integers(cache: CacheManager, ids: Any, tokens: Any) -> None:
    sequence = prefill(cache, request("one"))
    with pytest.raises(KvstrataError):
        cache.reserve([sequence.id] if ids == "id" else ids, tokens)


@pytest.mark.parametrize("accepted", [[1.9], ["x"], [None]], ids=str)
def test_accepted_no_integers(cache: CacheManager, accepted: Any) -> None:
    sequence = prefill(cache, request("one"))
    step = cache.reserve([sequence.id], [2])
    with pytest.raises(ConfigError):
        step.commit(accepted=accepted, tokens=[1, 2])


def test_accepted_after_a_refused_commit(cache: CacheManager) -> None:
    sequence = prefill(cache, request("one"))
    step = cache.reserve([sequence.id], [2])
    with pytest.raises(ConfigError):
        step.commit(accepted=[9], tokens=[1, 2])
    assert step.accepted.tolist() == [0]


def test_extras_are_a_copy() -> None:
    extras = {0: b"image"}
    wanted = Request(np.arange(40), "m", extras=extras)
    before = wanted.keys(16).tobytes()
    extras[0] = b"other"
    assert wanted.keys(16).tobytes() == before


def test_extras_of_no_block() -> None:
    with pytest.raises(ConfigError):
        Request(np.arange(40), "m", extras={-1: b"image"})


def test_integrity_sees_a_flipped_key(cache: CacheManager) -> None:
    serve(cache, request("one", 80))
    first = min(indexed_blocks(cache))
    cache.tables.blocks.rows[first, UNIT_KEY_0] ^= 1 << 40
    with pytest.raises(InvariantViolation):
        cache.check_integrity()


def test_flush_after_a_clean_close(place: Place) -> None:
    cache = place.open()
    serve(cache, request("one"))
    cache.close()
    with pytest.raises(InvariantViolation, match="was closed"):
        cache.flush()


def test_a_commit_that_breaks_off_ends_the_manager(place: Place, monkeypatch: Any) -> None:
    cache = place.open("private")
    sequence = cache.begin(cache.match(request("one", 40)))
    step = cache.reserve([sequence.id], [32])

    def fail(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Storage, "image_checksums", fail)
    with pytest.raises(KeyboardInterrupt):
        step.commit()
    with pytest.raises(InvariantViolation, match="commit was interrupted by KeyboardInterrupt"):
        step.commit()
    cache.close()
    monkeypatch.undo()
    with place.open("private") as again:
        again.check_integrity()
        assert again.stats().sequences == 0


def test_a_lease_is_checksummed_too(place: Place) -> None:
    cache = place.open("private")
    serve(cache, request("one", 40))
    plan = cache.match(request("one", 40))
    assert cache.pools is not None
    slot = int(cache.tables.images.pages[plan.checkpoint[0], 0])
    cache.pools.storage("swa")[slot, 0] ^= 1
    with pytest.raises(ConfigError, match="reuses something"):
        cache.lease(plan)
    cache.close()


def test_extras_of_a_block_without_number() -> None:
    with pytest.raises(ConfigError, match="found '0'"):
        Request(np.arange(40), "m", extras={"0": b"image"})  # type: ignore[dict-item]


def test_prompt_tokens_are_checked_again_after_a_rollback(cache: CacheManager) -> None:
    wanted = request("one", 37)
    sequence = cache.begin(cache.match(wanted))
    cache.reserve([sequence.id], [34]).commit()
    first, behind = cache.reserve([sequence.id], [3]), cache.reserve([sequence.id], [1])
    first.commit(accepted=[0], tokens=wanted.tokens[34:])
    behind.commit(tokens=[99])
    again = cache.reserve([sequence.id], [3])
    with pytest.raises(ConfigError, match="inside its prompt"):
        again.commit(tokens=[9, 9, 9])
    again.commit(tokens=wanted.tokens[34:])


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": {"full": 40.5, "swa": 20}},
        {"budget_bytes": float("nan")},
        {"budget_bytes": 10**9, "max_sequences": 1.5},
        {"budget_bytes": 10**9, "checkpoint_share": "x"},
    ],
    ids=str,
)
def test_settings_of_a_wrong_type(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="expected a"):
        CacheConfig(**wrong)
