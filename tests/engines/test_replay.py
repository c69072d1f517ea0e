"""Replaying a window, suspending and forking on the real model."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kvstrata import Kind
from kvstrata.core.words import META_REPLAY_TOKENS
from kvstrata.engines.transformers import Call, Engine, replay_stock

from .helpers import begin, open_engine, request, tiny_model, tokens

NUM_NEW = 6


def stock_logits(prompt: NDArray[np.int32], new: list[int]) -> torch.Tensor:
    """What the stock cache gives for a prompt in one call, then token by token."""
    ids = np.concatenate([prompt, np.array(new[:-1], dtype=np.int32)])
    calls = [Call(0, len(prompt), len(prompt))]
    calls += [Call(len(prompt) + i, 1, 1) for i in range(len(new) - 1)]
    return replay_stock(tiny_model(torch.float32), ids, calls)[len(prompt) - 1 :]


def parted(at: int, length: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Two prompts that part at a token."""
    first = tokens(length, 1)
    second = np.concatenate([first[:at], tokens(length - at, 2)])
    second[at] = (first[at] + 1) % 256
    return first, second


@pytest.fixture
def engine() -> Engine:
    return open_engine(tiny_model(torch.float32))


def sealed_bytes(engine: Engine, slots: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    pools = engine.manager.pools
    assert pools is not None
    return {group: pools.storage(group)[wanted].clone() for group, wanted in slots.items()}


@pytest.mark.parametrize("at", [100, 160, 250])
def test_a_replayed_window_is_exact(engine: Engine, at: int) -> None:
    first, second = parted(at, 280)
    engine.generate(request(first), NUM_NEW)
    plan = engine.manager.match(request(second))
    whole = at // 16 * 16
    restart = (whole - engine.manager.layout.replay_tokens) // 16 * 16
    assert (plan.source, plan.resume_at, plan.reused_tokens) == ("replay", restart, whole)
    served = engine.generate(request(second), NUM_NEW)
    assert served.resumed_at == restart
    expected = stock_logits(second, served.tokens)
    assert torch.allclose(served.logits, expected, atol=1e-4)
    assert expected.argmax(-1).tolist() == served.tokens


@pytest.mark.parametrize("short_of", [48, 64])
def test_too_short_a_replay_is_not(engine: Engine, short_of: int) -> None:
    """The reach that the layout names is needed: with less, what comes out differs."""
    first, second = parted(250, 280)
    engine.generate(request(first), NUM_NEW)
    engine.manager.arena[META_REPLAY_TOKENS] -= short_of
    served = engine.generate(request(second), NUM_NEW)
    expected = stock_logits(second, served.tokens)
    assert (served.logits - expected).abs().max() > 1e-4


def test_stored_pages_are_not_written_again(engine: Engine) -> None:
    first, second = parted(250, 280)
    engine.generate(request(first), NUM_NEW)
    sequence = begin(engine, second)
    assert sequence.plan.source == "replay"
    slots = {
        group.name: engine.manager.block_slots(sequence, group.name).tolist()
        for group in engine.manager.layout.history_groups
    }
    before = sealed_bytes(engine, slots)
    engine.prefill(sequence, second)
    after = sealed_bytes(engine, slots)
    for group, kept in before.items():
        assert torch.equal(kept, after[group]), group
    sequence.finish()


def test_where_prompts_part_a_checkpoint_is_kept(engine: Engine) -> None:
    first, second = parted(250, 280)
    engine.generate(request(first), NUM_NEW)
    sequence = begin(engine, second)
    assert sequence.captures[0] == 240
    engine.prefill(sequence, second)
    sequence.finish()
    third = np.concatenate([first[:245], tokens(30, 9)])
    plan = engine.manager.match(request(third))
    assert (plan.source, plan.resume_at) == ("checkpoint", 240)


@pytest.mark.parametrize("computed", [3, 40, 48, 77])
@pytest.mark.parametrize("chunk", [None, 7])
def test_suspended_and_resumed_it_goes_on_bit_by_bit(
    engine: Engine, computed: int, chunk: int | None
) -> None:
    """With other work between, what comes out is that of the same calls without a break."""
    prompt = tokens(90, 4)
    sequence = begin(engine, prompt)
    logits = []
    done = 0
    while done < computed:
        size = computed - done if chunk is None else min(chunk, computed - done)
        logits.append(engine.forward(sequence, prompt[done : done + size]))
        done += size
    calls = engine.take_calls(sequence)
    suspended = sequence.suspend()
    assert (suspended.position, suspended.kept) == (computed, True)
    engine.generate(request(tokens(60, 5)), 3)
    sequence = engine.manager.resume(suspended)
    assert (sequence.plan.source, sequence.position) == ("suspended", computed)
    logits.append(engine.forward(sequence, prompt[computed:]))
    for token in (5, 6, 7):
        logits.append(engine.forward(sequence, [token]))
    calls += engine.take_calls(sequence)
    sequence.finish()
    ids = np.concatenate([prompt, np.array([5, 6, 7], np.int32)])
    expected = replay_stock(tiny_model(torch.float32), ids, calls)
    assert torch.equal(torch.cat(logits), expected)
    engine.manager.check_integrity()


def test_suspended_in_its_output(engine: Engine) -> None:
    prompt = tokens(50, 6)
    sequence = begin(engine, prompt)
    engine.prefill(sequence, prompt)
    output = [int(token) for token in tokens(21, 7)]
    for token in output:
        engine.forward(sequence, [token])
    calls = engine.take_calls(sequence)
    suspended = sequence.suspend()
    ids = np.concatenate([prompt, np.array([*output, 1, 2], np.int32)])
    sequence = engine.manager.resume(suspended, ids)
    assert sequence.position == 71
    logits = torch.cat([engine.forward(sequence, [1]), engine.forward(sequence, [2])])
    calls += engine.take_calls(sequence)
    sequence.finish()
    assert torch.equal(logits, replay_stock(tiny_model(torch.float32), ids, calls)[-2:])


def test_its_state_gone_a_suspended_sequence_resumes_lower(engine: Engine) -> None:
    """The checkpoint kept for it is found bad: it is not adopted, what comes out is right."""
    prompt = tokens(90, 8)
    sequence = begin(engine, prompt)
    engine.forward(sequence, prompt[:77])
    suspended = sequence.suspend()
    plan = engine.manager.match(suspended.with_tokens(None), suspended.position)
    slot = engine.manager.slots_of_image(plan.checkpoint[0])["swa"]
    pools = engine.manager.pools
    assert pools is not None
    pools.storage("swa")[slot, 3] ^= 1
    sequence = engine.manager.resume(suspended)
    assert sequence.position < 77
    engine.take_calls(sequence)
    logits = engine.forward(sequence, prompt[sequence.position :])
    expected = replay_stock(tiny_model(torch.float32), prompt, [Call(0, 90, 90)])
    assert torch.allclose(logits[-1], expected[-1], atol=1e-4)


@pytest.mark.parametrize("at", [45, 48])
def test_a_fork_shares_what_is_sealed_and_parts_from_there(engine: Engine, at: int) -> None:
    prompt = tokens(90, 4)
    parent = begin(engine, prompt)
    engine.forward(parent, prompt[:at])
    calls = engine.take_calls(parent)
    child = parent.fork()
    assert child.position == at
    shared = at // 16
    for group in engine.manager.layout.history_groups:
        mine = engine.manager.block_slots(child, group.name)
        theirs = engine.manager.block_slots(parent, group.name)
        assert mine[:shared].tolist() == theirs[:shared].tolist()
        assert not set(mine[shared:]) & set(theirs[shared:])
    for sequence in (parent, child, parent, child):
        engine.forward(sequence, prompt[sequence.position : sequence.position + 11])
    expected = replay_stock(
        tiny_model(torch.float32),
        prompt[: at + 33],
        [*calls, *(Call(at + i, 11, 11) for i in (0, 11, 22))],
    )
    for sequence in (parent, child):
        logits = engine.forward(sequence, prompt[at + 22 : at + 33])
        assert torch.equal(logits, expected[-11:])
        sequence.finish()
    engine.manager.check_integrity()
    assert {group.kind for group in engine.manager.layout.state_groups} == {Kind.SWA, Kind.TAIL}
