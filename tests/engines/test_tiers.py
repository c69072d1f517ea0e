"""The real model above lower tiers: what comes back from them continues bit for bit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DeepseekV4ForCausalLM

from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.tiers.checking import check_object
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.remote import RemoteStore
from tests.eventstore.support import shared_corner
from tests.tiers.support import BUCKET, S3Server, s3_environment, s3_server

from .helpers import request, same, tiny_model, tokens
from .oracle import StockModel
from .tiered import (
    BLOCK,
    WAIT_S,
    Talk,
    identity_at,
    place_of_part,
    schema_of,
    tier_stats,
    tiered_engine,
    uncached,
)

PROMPT, ANSWER = 150, 8
FP32 = tiny_model(torch.float32)
GROUPS = [group.name for group in layout_for_model(FP32).groups]


@pytest.fixture
def corner() -> Iterator[Path]:
    """Memory, where syncs cost nothing; the first test is on a disk."""
    with shared_corner() as corner:
        yield corner


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.mark.parametrize("second_log", ["another", "log"], ids=["new log", "pools lost"])
def test_a_restart_resumes_from_disk(
    model: DeepseekV4ForCausalLM, tmp_path: Path, second_log: str
) -> None:
    talk = Talk(model, tokens(PROMPT, seed=6))
    with tiered_engine(model, tmp_path) as engine:
        assert talk.answer(engine, ANSWER).resumed_at == 0
        assert talk.answer(engine, ANSWER, tokens(20, seed=8)).resumed_at == 144
        written = tier_stats(engine)
    with tiered_engine(model, tmp_path, second_log) as engine:
        made = talk.answer(engine, ANSWER, tokens(30, seed=9))
        assert made.resumed_at == (PROMPT + ANSWER + 20 + ANSWER - 1) // BLOCK * BLOCK
        stats = tier_stats(engine)
        assert stats.loads == {"begun": 1, "whole": 1}
        assert stats.tiers["disk"]["reads"] == made.resumed_at // BLOCK + 1
        again = talk.answer(engine, 3)
        assert again.resumed_at > made.resumed_at
        assert tier_stats(engine).loads["begun"] == 1, "what was loaded stays"
    assert written.tiers["disk"]["reads"] == 0
    assert {group.kind.name for group in engine.manager.layout.groups} == {
        *("COMPRESSED", "INDEXER", "SWA", "TAIL")
    }


def test_every_position_of_a_prompt(model: DeepseekV4ForCausalLM, corner: Path) -> None:
    """Each checkpoint on disk is resumed from by a manager that has nothing else."""
    prompt = tokens(PROMPT, seed=5)
    stock = StockModel(model)
    with tiered_engine(model, corner, checkpoints="full") as engine:
        engine.generate(request(prompt), 1)
    stock.feed(prompt.tolist(), [BLOCK] * (PROMPT // BLOCK) + [PROMPT % BLOCK])
    for position in range(BLOCK, PROMPT, BLOCK):
        with tiered_engine(model, corner, f"at {position}") as engine:
            wanted = request(prompt, max_resume=position)
            sequence = engine.manager.begin_when_ready(wanted, WAIT_S)
            assert sequence.position == position
            assert tier_stats(engine).tiers["disk"]["reads"] == position // BLOCK + 1
            resumed = stock.fork(position)
            for call in (prompt[position:], np.array([72]), np.array([101])):
                assert same(engine.forward(sequence, call), resumed.forward(call.tolist()))
            sequence.finish()


@pytest.mark.parametrize("more", [1, 20])
def test_without_checkpoints_on_disk_a_window_is_replayed(corner: Path, more: int) -> None:
    prompt = tokens(PROMPT, seed=4)
    with tiered_engine(FP32, corner, checkpoints="none") as engine:
        engine.generate(request(prompt), ANSWER)
        replayed = engine.manager.layout.replay_tokens
    longer = np.concatenate([prompt, tokens(more, seed=3)])
    with tiered_engine(FP32, corner, "another", checkpoints="none") as engine:
        made = engine.generate(request(longer), ANSWER, wait_s=WAIT_S)
        stored = tier_stats(engine).stored["disk"]
        assert stored["checkpoints"] == 0
        whole = PROMPT // BLOCK * BLOCK
        assert made.resumed_at == (whole - replayed) // BLOCK * BLOCK > 0
        assert tier_stats(engine).tiers["disk"]["reads"] == whole // BLOCK
        expected = uncached(FP32, longer, made.tokens)
        assert torch.allclose(made.logits, expected, atol=1e-4)
        assert expected.argmax(dim=-1).tolist() == made.tokens


@pytest.mark.parametrize("has_catalogue", [True, False], ids=["catalogue", "prefetch"])
def test_from_a_bucket(
    corner: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch, has_catalogue: bool
) -> None:
    """On another node: what it knows of the bucket is in the catalogue, or found by prefetch."""
    for name, value in s3_environment(server.endpoint).items():
        monkeypatch.setenv(name, value)
    place = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    catalogue = f"sqlite:///{corner / 'catalogue'}" if has_catalogue else ""
    talk = Talk(FP32, tokens(PROMPT, seed=6))
    with tiered_engine(FP32, corner, "one", place, catalogue=catalogue) as engine:
        talk.answer(engine, ANSWER)
    assert len(list(RemoteStore(place).objects())) > PROMPT // BLOCK
    with tiered_engine(FP32, corner, "two", place, catalogue=catalogue) as engine:
        if not has_catalogue:
            assert engine.manager.prefetch(request(talk.said))
        made = talk.answer(engine, ANSWER, tokens(10, seed=9))
        assert made.resumed_at == (PROMPT + ANSWER - 1) // BLOCK * BLOCK
        assert tier_stats(engine).tiers["remote"]["reads"] == made.resumed_at // BLOCK + 1


@pytest.mark.parametrize("group", GROUPS)
def test_a_damaged_object_is_set_aside_and_computed_again(corner: Path, group: str) -> None:
    talk = Talk(FP32, tokens(PROMPT, seed=6))
    with tiered_engine(FP32, corner, checkpoints="full") as engine:
        talk.answer(engine, ANSWER)
        schema = schema_of(engine)
    is_checkpoint, offset = place_of_part(schema, group)
    would_be = (PROMPT + ANSWER - 1) // BLOCK * BLOCK
    position = would_be if is_checkpoint else 3 * BLOCK
    name = schema.object_name(identity_at(talk.said, position, is_checkpoint))
    path = corner / "disk" / "objects" / name
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    with tiered_engine(FP32, corner, "another", checkpoints="full") as engine:
        made = talk.answer(engine, ANSWER, tokens(30, seed=9))
        assert made.resumed_at == (would_be if is_checkpoint else position) - BLOCK
        stats = tier_stats(engine).tiers["disk"]
        assert stats["faults"] == {"CHECKSUM_MISMATCH": 1}
        assert stats["set_aside"] == 1
        assert engine.manager.stats().validation_failures["0/checksum_mismatch/disk"] == 1
    assert len(list((corner / "disk" / "quarantine").iterdir())) == 1
    store = LocalStore(corner / "disk")
    written_again = {one.name for one in store.objects()}
    assert name in written_again, "what was computed again is stored again"
    assert all(check_object(store, one) is None for one in store.objects())
