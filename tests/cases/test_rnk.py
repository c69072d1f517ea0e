"""Cases RNK: ranks that hold different things, and sides that hold different layers."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kvstrata import CacheConfig, CacheLayout, CacheManager, Kind, LogConfig, PoolSet
from kvstrata.core.abi import Abi, abi_of
from kvstrata.core.abi_compare import pair_components
from kvstrata.core.events import EventType, Reason
from kvstrata.core.presets import Row, sized_group
from kvstrata.core.ranks import RankGroup
from kvstrata.eventstore.log import read_events
from tests.eventstore.support import shared_corner
from tests.face.support import check_sums, pages_in
from tests.rules.test_ranks import on_ranks

from .support import (
    MARK_BYTES,
    asked,
    begin,
    layout_of,
    marks_of,
    opened,
    serve,
    text,
    view_of,
)

PLAIN, WINDOWED = layout_of(128), layout_of(128, {"swa": 64})


@dataclass
class Outcome:
    """What one rank found and did."""

    here: int
    plan: tuple[str, int, int]
    limited: tuple[Reason, int, int] | None
    events: int
    position: int
    pinned: int
    idle: int


def begin_on(group: RankGroup, layout: CacheLayout, hits: list[int]) -> Outcome:
    """One rank: it serves a prompt of six blocks, evicts on its own, and begins with the others.

    Its pool has one block more: what it gives to another request, it takes from the prompt's end.
    All ranks make the same calls, for each match and begin is a meeting.
    """
    prompt, mine = text(("p", 800)), hits[group.rank]
    with opened(layout, 7, 12, with_bytes=True, ranks=group, admission=None) as cache:
        serve(cache, prompt[:520])
        serve(cache, prompt)
        other = begin(cache, text((f"other of {group.rank}", 896)))
        cache.reserve([other.id], [128 + 768 - mine]).abort()
        other.cancel()
        plan = cache.match(asked(prompt))
        sequence = begin(cache, prompt)
        pages = pages_in(cache, "full")
        outcome = Outcome(
            plan.history_tokens,
            (plan.source, plan.resume_at, plan.reused_tokens),
            plan.limited,
            cache.stats().events.get("hit_limited", 0),
            sequence.position,
            pages.get("sealed_pinned", 0),
            pages.get("sealed_idle", 0),
        )
        sequence.cancel()
        assert "sealed_pinned" not in pages_in(cache, "full")
        return outcome


@pytest.mark.parametrize("layout", [PLAIN, WINDOWED], ids=["history", "with state"])
def test_rnk_01_ranks_disagree(layout: CacheLayout) -> None:
    """Four ranks hold 768, 512, 768 and 640 tokens: all of them resume at 512, and none pins what
    lies beyond."""
    hits = [768, 512, 768, 640]
    outcomes = on_ranks(4, lambda group: begin_on(group, layout, hits))
    source = "history" if layout is PLAIN else "checkpoint"
    for outcome, here in zip(outcomes, hits, strict=True):
        limited = (Reason.RANK_LIMITED, here, 512) if here > 512 else None
        assert outcome == Outcome(
            here=here,
            plan=(source, 512, 512),
            limited=limited,
            events=int(here > 512),
            position=512,
            pinned=4,
            idle=here // 128 - 4,
        )


@pytest.mark.parametrize("layout", [PLAIN, WINDOWED], ids=["history", "with state"])
def test_rnk_01_one_rank_holds_nothing(layout: CacheLayout) -> None:
    hits = [768, 0, 768, 640]
    outcomes = on_ranks(4, lambda group: begin_on(group, layout, hits))
    for outcome, here in zip(outcomes, hits, strict=True):
        limited = (Reason.RANK_INTERSECTION_EMPTY, here, 0) if here else None
        assert outcome == Outcome(
            here=here,
            plan=("cold", 0, 0),
            limited=limited,
            events=int(here > 0),
            position=0,
            pinned=0,
            idle=here // 128,
        )


@pytest.mark.parametrize("layout", [PLAIN, WINDOWED], ids=["history", "with state"])
def test_rnk_01_a_page_that_is_bad_on_one_rank(layout: CacheLayout) -> None:
    """One rank finds block 5 damaged as all begin: none hangs, and all resume before it."""

    def work(group: RankGroup) -> tuple[int, int, int]:
        prompt = text(("p", 800))
        with opened(layout, 10, 12, with_bytes=True, ranks=group) as cache:
            serve(cache, prompt[:520])
            serve(cache, prompt)
            plan = cache.match(asked(prompt))
            if group.rank == 2:
                view_of(cache, "full")[int(cache.tables.blocks.pages[plan.blocks[4, 0], 0])] ^= 1
            sequence = cache.begin(plan)
            pinned = pages_in(cache, "full")["sealed_pinned"]
            sequence.cancel()
            return plan.resume_at, sequence.resumed_at, pinned

    assert on_ranks(4, work) == [(768, 512, 4)] * 4


def stage(swa: tuple[int, ...], c128: bool = False) -> CacheLayout:
    """What a stage holds: a layer of ratio 4, some that slide, maybe one of ratio 128."""
    rows, sizes = [Row("kv", "u8", (MARK_BYTES,))], (128, 4)
    groups = [sized_group("c4", Kind.COMPRESSED, [2], rows, *sizes, ratio=4)]
    if c128:
        groups.append(sized_group("c128", Kind.COMPRESSED, [3], rows, *sizes, ratio=128))
    groups.append(sized_group("swa", Kind.SWA, swa, rows, *sizes, window=64))
    return CacheLayout("stage", tuple(groups), *sizes, 4)


TARGET = stage((0, 1), c128=True)


def test_rnk_03_positional_layout_pairing() -> None:
    """Stages send L0/swa, L1/swa and L2/c4; the receiver has L2/c4, L0/swa, L1/swa and L3/c128.
    Block 3 arrives by name; what does not arrive whole is no hit."""
    stages = [stage((0,)), stage((1,)), stage((0,))]
    source = [abi_of(one, name) for one, name in zip(stages, ("swa", "swa", "c4"), strict=True)]
    wanted = [abi_of(TARGET, name) for name in ("c4", "swa", "c128")]
    pairing = pair_components(source, wanted)
    assert pairing.missing == ("L3/c128",)
    assert pairing.usable == ("c4", "swa")
    assert [(pair.layer, pair.group, pair.source) for pair in pairing.pairs] == [
        (2, "c4", 2),
        (0, "swa", 0),
        (1, "swa", 1),
    ]

    prompt = text(("p", 520))
    sent = [PoolSet.allocate(one, {group.name: 4 for group in one.groups}) for one in stages]
    rows = {
        "c4": marks_of("c4", prompt)[np.arange(96, 128) * 4 + 3],
        "swa": marks_of("swa", prompt)[512 - 67 : 512],
    }
    for pools, abi in zip(sent, source, strict=True):
        for layer in abi.layers:
            pools.view(abi.group, "kv").numpy()[3, 0] = rows[abi.group] ^ layer

    with opened(TARGET, 20, 8, with_bytes=True) as cache:
        assert cache.pools is not None
        sequence = begin(cache, prompt)
        step = cache.reserve([sequence.id], [512])
        pages = {
            group: int(cache.block_slots(sequence, group)[3]) for group in ("c4", "c128")
        } | step.image_slots(0)[1]
        transfer = cache.begin_transfer(sequence)
        for pair in pairing.pairs:
            of, to = source[pair.source], wanted[pair.target]
            assert of.group == to.group == pair.group
            page = sent[pair.source].storage(of.group)[3]
            moved = page[pair.source_offset : pair.source_offset + pair.num_bytes]
            at = slice(pair.target_offset, pair.target_offset + pair.num_bytes)
            cache.pools.storage(to.group)[pages[to.group], at] = moved
        for abi in wanted:
            for place, layer in enumerate(abi.layers):
                found = cache.pools.view(abi.group, "kv").numpy()[pages[abi.group], place]
                expected = rows[abi.group] ^ layer if abi.group in pairing.usable else 0
                assert (found == expected).all(), (abi.group, layer)
        # not whole: the step does not commit, and nothing is there under the block's key
        transfer.complete()
        step.abort()
        again = cache.begin(cache.match(asked(prompt)))
        assert (again.plan.source, again.position) == ("cold", 0)
        for one in (sequence, again):
            one.cancel()


def other_version(name: str) -> Abi:
    """The same tensors, read by another version of the kernel."""
    return abi_of(TARGET, name, kernel_version="2")


@pytest.mark.parametrize("name", ["c4", "swa", "c128"])
def test_rnk_03_an_abi_that_differs_is_an_event_and_no_hit(name: str) -> None:
    """Where it is the state's, the history that is present is reused and the window computed."""
    pairing = pair_components(
        [abi_of(TARGET, group.name) for group in TARGET.groups],
        [
            other_version(name) if group.name == name else abi_of(TARGET, group.name)
            for group in TARGET.groups
        ],
    )
    assert pairing.differing == (f"{name}: kernel_version: expected 2, found 1",)
    assert name not in pairing.usable
    assert len(pairing.usable) == 2
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        check_abi(corner, name)
        events = np.concatenate(list(read_events(corner / "log")))
    failed = events[events["type"] == EventType.VALIDATION_FAILED]
    assert {int(reason) for reason in failed["reason"]} == {int(Reason.ABI_MISMATCH)}
    assert {int(group) for group in failed["group"]} == {TARGET.group_id(name)}
    assert np.count_nonzero(events["type"] == EventType.ABI_REGISTERED) == 4


def check_abi(corner: Path, name: str) -> None:
    prompt = text(("p", 800))
    config = CacheConfig(
        slots={group.name: 20 for group in TARGET.groups},
        max_sequences=2,
        max_leases=2,
        max_tokens_per_sequence=1_024,
        log=LogConfig(ring_events=1 << 12, shared_memory_root=corner / "shared"),
    )
    with CacheManager.open(TARGET, config, corner / "log") as cache:
        for group in TARGET.groups:
            cache.register_abi(group.name, abi_of(TARGET, group.name))
        serve(cache, prompt)
        assert begin_and_cancel(cache) == ("checkpoint", 768, 768)
        assert not cache.stats().validation_failures

        cache.register_abi(name, other_version(name))
        (way, *_) = cache.explain(asked(prompt)).ways
        assert f"layer 2 ABI_MISMATCH: {name}" in way.verdict
        hit = ("replay", 512, 768) if name == "swa" else ("cold", 0, 0)
        assert begin_and_cancel(cache) == hit
        failures = cache.stats().validation_failures
        assert list(failures) == [f"2/abi_mismatch/{name}"]

        serve(cache, prompt)  # computed again, as the new kernel writes it
        assert begin_and_cancel(cache) == ("checkpoint", 768, 768)
        assert cache.stats().validation_failures == failures
        check_sums(cache)


def begin_and_cancel(cache: CacheManager) -> tuple[str, int, int]:
    """How a prompt of six blocks is really served."""
    sequence = begin(cache, text(("p", 800)))
    plan = sequence.plan
    sequence.cancel()
    return plan.source, plan.resume_at, plan.reused_tokens
