"""A process that serves one request, begins another and dies inside a step of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import astuple
from pathlib import Path
from typing import NoReturn

import torch

from .helpers import begin, open_engine, request, tiny_model, tokens

PROMPT = tokens(90, seed=6)
ANSWER = 30
KILLED_AT = 40


def main(directory: Path, dtype: str) -> NoReturn:
    """Leave what was made in `made.json`, then die by SIGKILL."""
    torch.set_num_threads(1)
    model = tiny_model(getattr(torch, dtype))
    engine = open_engine(model, directory=directory)
    made = engine.generate(request(PROMPT), max_new_tokens=ANSWER)
    engine.manager.flush()
    record = {"tokens": made.tokens, "calls": [astuple(call) for call in made.calls]}
    (directory / "made.json").write_text(json.dumps(record))
    other = tokens(80, seed=7)
    sequence = begin(engine, other)
    engine.forward(sequence, other[:KILLED_AT])
    model.model.layers[2].register_forward_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    engine.forward(sequence, other[KILLED_AT:])
    raise AssertionError("the step went on after SIGKILL")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
