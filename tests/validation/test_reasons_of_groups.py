"""Reasons about a group as a whole, about what is registered, and about addresses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kvstrata import CacheManager, ConfigError, InvariantViolation, abi_of
from kvstrata.core.checks import CHECKS, layer_of
from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import POOL_ROWS
from tests.face.support import check_sums, serve

from .provocations import PAGES, a_flipped_bit
from .support import (
    GROUPS,
    HISTORY,
    LAYOUT,
    STATES,
    WANTED,
    Log,
    begun,
    counted,
    explained,
    filled,
)

FAILED, LIMITED = EventType.VALIDATION_FAILED, EventType.HIT_LIMITED


# groups as a whole: nothing is withdrawn, all of it is a hit again as soon as the group is ready


def _kernel_not_ready(cache: CacheManager, group: str) -> None:
    cache.register_kernel(group, "attention", "7", ready=False)


def _kernel_ready(cache: CacheManager, group: str) -> None:
    cache.register_kernel(group, "attention", "7")


def _mapping_gone(cache: CacheManager, group: str) -> None:
    cache.register_mapping(group, "", resident=False)


def _mapping_back(cache: CacheManager, group: str) -> None:
    cache.register_mapping(group, "")


def _other_rows(cache: CacheManager, group: str) -> None:
    cache.tables.pools[GROUPS.index(group), POOL_ROWS] += 1


def _same_rows(cache: CacheManager, group: str) -> None:
    cache.tables.pools[GROUPS.index(group), POOL_ROWS] -= 1


def _replaced(cache: CacheManager, group: str, storage: torch.Tensor) -> None:
    assert cache.pools is not None
    cache.pools._storages[group] = storage


def _spread(cache: CacheManager, group: str, offset: int, gap: int) -> torch.Tensor:
    """Room for the same pages, from an address and with a stride that no rule allows."""
    assert cache.pools is not None
    slots, page_bytes = cache.pools.storage(group).shape
    room = torch.zeros(slots * (page_bytes + gap) + 64 + offset, dtype=torch.uint8)
    start = -room.data_ptr() % 64 + offset
    return room[start:].as_strided((slots, page_bytes), (page_bytes + gap, 1))


def _off_by_eight(cache: CacheManager, group: str) -> None:
    _replaced(cache, group, _spread(cache, group, 8, 0))


def _odd_stride(cache: CacheManager, group: str) -> None:
    _replaced(cache, group, _spread(cache, group, 0, 8))


Word = Callable[[CacheManager, str], None]
READY: list[tuple[Reason, str, Word, Word | None]] = [
    *((Reason.KERNEL_NOT_READY, name, _kernel_not_ready, _kernel_ready) for name in GROUPS),
    *((Reason.MAPPING_NOT_READY, name, _mapping_gone, _mapping_back) for name in ("c4", "c16")),
    *((Reason.STRIDE_MISMATCH, name, _other_rows, _same_rows) for name in STATES),
    *((Reason.UNALIGNED_ADDRESS, name, _off_by_eight, None) for name in GROUPS),
    *((Reason.UNALIGNED_STRIDE, name, _odd_stride, None) for name in GROUPS),
]


@pytest.mark.parametrize(
    ("reason", "group", "unready", "ready"),
    READY,
    ids=[f"{reason.name}-{group}" for reason, group, *_ in READY],
)
def test_a_group_that_cannot_be_read_now(
    reason: Reason, group: str, unready: Word, ready: Word | None
) -> None:
    cache = filled()
    assert cache.pools is not None
    pool = cache.pools.storage(group)
    unready(cache, group)
    log = Log(cache)
    layer = layer_of(reason)
    for times in (1, 2):
        expected = explained(cache, f"layer {layer} {reason.name}: {group} at ")
        assert begun(cache, expected) == ("cold", 0, 0)
        ((event, payload),) = log.new(FAILED)
        assert (event["reason"], payload["layer"]) == (reason, layer)
        assert (GROUPS[event["group"]], event["page"]) == (group, 0)
        assert cache.stats().validation_failures == {counted(layer, reason, group): times}
    if ready is not None:
        ready(cache, group)
    else:
        _replaced(cache, group, pool)
    assert explained(cache, "chosen") == ("checkpoint", 80, 80), "nothing was withdrawn"
    begun(cache, ("checkpoint", 80, 80))
    check_sums(cache)


def test_a_mapping_that_is_gone_stops_its_index_and_its_tails_too() -> None:
    """Without its history group nothing of c4 could be computed, but each is asked for itself."""
    cache = filled()
    cache.register_mapping("c4", "", resident=False)
    reach = {group.group: group.limit for group in cache.explain(WANTED).groups}
    assert "MAPPING_NOT_READY" in reach["c4"]
    assert "MAPPING_NOT_READY" in reach["c4.index"]
    assert "MAPPING_NOT_READY" not in reach["c16"]


# what the engine registers: pages written for another reader, or by another mapping


@pytest.mark.parametrize("group", GROUPS)
def test_another_version_of_the_kernel(group: str) -> None:
    cache = filled()
    cache.register_abi(group, abi_of(LAYOUT, group, kernel_version="2"))
    log = Log(cache)
    named = f"layer 2 ABI_MISMATCH: {group} page "
    expected = explained(cache, named)
    source, resume_at, _ = begun(cache, expected)
    assert (source, resume_at) == (("cold", 0) if group in HISTORY else ("replay", 48))
    events = log.new(FAILED)
    assert events
    for event, payload in events:
        assert (event["reason"], payload["layer"]) == (Reason.ABI_MISMATCH, 2)
        assert GROUPS[event["group"]] == group
    failures = cache.stats().validation_failures
    assert failures[counted(2, Reason.ABI_MISMATCH, group)] == len(events)
    serve(cache, WANTED)
    begun(cache, ("checkpoint", 80, 80))
    assert not log.new(FAILED)
    check_sums(cache)


@pytest.mark.parametrize("group", ["c4", "c16"])
def test_another_mapping(group: str) -> None:
    cache = filled()
    cache.register_mapping(group, "another")
    log = Log(cache)
    expected = explained(cache, f"layer 1 COMPRESSOR_VERSION: {group} page ")
    assert begun(cache, expected) == ("cold", 0, 0)
    ((event, payload),) = log.new(FAILED)
    assert (event["reason"], payload["layer"]) == (Reason.COMPRESSOR_VERSION, 1)
    assert GROUPS[event["group"]] == group
    assert cache.stats().validation_failures[counted(1, Reason.COMPRESSOR_VERSION, group)] == 1
    serve(cache, WANTED)
    begun(cache, ("checkpoint", 80, 80))
    assert not log.new(FAILED)
    check_sums(cache)


def test_group_limited() -> None:
    """History without any image in it, and too little of it to replay a window."""
    cache = filled()
    a_flipped_bit(cache, "c4", 2)
    log = Log(cache)
    expected = explained(cache, "GROUP_LIMITED")
    assert expected == ("cold", 0, 0)
    begun(cache, expected)
    ((event, payload),) = log.new(LIMITED)
    assert event["reason"] == Reason.GROUP_LIMITED
    assert (payload["found"], payload["agreed"]) == (32, 0)
    assert cache.stats().validation_failures[counted(3, Reason.GROUP_LIMITED, "")] == 1


# layer 4: a pool that moved is no question of a hit: the engine's captured addresses are wrong


@pytest.mark.parametrize("group", GROUPS)
def test_a_moved_pool(group: str) -> None:
    cache = filled()
    assert cache.pools is not None
    cache.seal_topology()
    sequence = cache.begin(cache.match(WANTED))
    _replaced(cache, group, cache.pools.storage(group).clone())
    log = Log(cache)
    before = cache.digest()
    with pytest.raises(InvariantViolation, match=f"pool {group}: .* as when the topology"):
        cache.reserve([sequence.id], [1])
    ((event, payload),) = log.new(FAILED)
    assert (event["reason"], payload["layer"]) == (Reason.TOPOLOGY_MOVED, 4)
    assert cache.stats().validation_failures == {counted(4, Reason.TOPOLOGY_MOVED, ""): 1}
    assert before != cache.digest(), "the event counts"
    with pytest.raises(InvariantViolation, match="mutates no more"):
        cache.begin(cache.match(WANTED))


def test_a_misaligned_pool_is_refused_at_the_door() -> None:
    cache = filled()
    assert cache.pools is not None
    _off_by_eight(cache, "c16")
    with pytest.raises(ConfigError, match="UNALIGNED_ADDRESS: c16"):
        CacheManager.open(LAYOUT, cache.config, None, cache.pools)


def test_every_reason_there_is_was_provoked() -> None:
    provoked: set[Any] = {this.reason for this in PAGES}
    provoked |= {reason for reason, *_ in READY}
    provoked |= {Reason.RANK_LIMITED, Reason.RANK_INTERSECTION_EMPTY, Reason.GROUP_LIMITED}
    provoked |= {Reason.TOPOLOGY_MOVED}
    assert provoked == {check.reason for check in CHECKS}
