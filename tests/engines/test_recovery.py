"""Resuming from pages that a killed process wrote."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from transformers import DeepseekV4ForCausalLM

from kvstrata.engines.transformers.calls import Call
from kvstrata.engines.transformers.stock import CallHistory, replay_stock

from .crashing_child import ANSWER, KILLED_AT, PROMPT
from .helpers import begin, open_engine, request, same, tokens

ROOT = Path(__file__).parents[2]


def test_pages_of_a_killed_process(model: DeepseekV4ForCausalLM, tmp_path: Path) -> None:
    """What was sealed is resumed from, bit for bit; what the killed step wrote is not."""
    dtype = str(model.dtype).removeprefix("torch.")
    child = subprocess.run(
        [sys.executable, "-m", "tests.engines.crashing_child", str(tmp_path), dtype],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    made = json.loads((tmp_path / "made.json").read_text())
    said = np.concatenate([PROMPT, np.array(made["tokens"], np.int32)])
    history = CallHistory()
    history.add(said, 0, [Call(*call) for call in made["calls"]])

    engine = open_engine(model, directory=tmp_path)
    recovery = engine.manager.recovery
    assert recovery is not None
    assert recovery.pages_kept > 0
    assert recovery.sequences_ended == 1
    conversation = np.concatenate([said, tokens(20, seed=8)])
    again = engine.generate(request(conversation), max_new_tokens=12)
    assert again.resumed_at == (len(PROMPT) + ANSWER - 1) // 16 * 16
    fed = np.concatenate([conversation, np.array(again.tokens, np.int32)])
    calls = history.add(fed, again.resumed_at, again.calls)
    logits = replay_stock(model, fed, calls)[-len(again.tokens) :]
    assert same(again.logits, logits)
    assert again.tokens == logits.argmax(dim=-1).tolist()

    killed = begin(engine, tokens(80, seed=7))
    assert killed.position <= KILLED_AT // 16 * 16
    engine.manager.check_integrity()
    engine.manager.close()
