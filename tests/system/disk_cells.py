"""One cell of the fault matrix, of an object on disk: serve, restart, plant a fault, serve."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import DeepseekV4ForCausalLM

from kvstrata import CacheConfig, CacheManager, LogConfig, Request
from kvstrata.core.checks import LAYERS
from kvstrata.core.events import EVENT_DTYPE, EventType, Reason, decode_payload
from kvstrata.engines.transformers.calls import Call
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.stock import CallHistory
from kvstrata.eventstore.log import read_events
from kvstrata.tiers.config import TierConfig, TiersConfig
from kvstrata.tiers.format import ObjectId, Schema
from tests.engines.helpers import same
from tests.eventstore.support import shared_corner

from .disk_faults import DISK_FAULTS, DiskDonors, File
from .fault_cells import (
    FIRST,
    NEW_TOKENS,
    OTHER_TEXT,
    OTHER_WEIGHTS,
    SECOND,
    SLOTS,
    TEXT,
    WEIGHTS,
    layout,
    model_of,
    one_thread,
    stock_logits,
)

__all__ = ["DISK_CELLS", "UNITS", "DiskOutcome", "run_disk_cell"]

UNITS = {"block": 48, "checkpoint": FIRST}
"""What is damaged: the third block, below both checkpoints; the checkpoint of the hit."""
DISK_CELLS = [f"{unit}_{fault}" for unit in UNITS for fault in DISK_FAULTS]
WAIT_S = 30.0


@dataclass(frozen=True)
class DiskOutcome:
    """What became of a hit on an object with a fault.

    Args:
        damaged: the object with the fault.
        found: key, reason and layer of every object that failed.
        num_set_aside: files under quarantine.
        is_whole_again: whether the object lies there again, as it was.
        resume_at: where the hit would have resumed.
        resumed_at: where it did.
        tokens_equal: whether the tokens are those of the stock cache fed the same calls.
        logits_equal: whether their logits are, in every bit.
    """

    damaged: str
    found: list[tuple[str, str, str]]
    num_set_aside: int
    is_whole_again: bool
    resume_at: int
    resumed_at: int
    tokens_equal: bool
    logits_equal: bool


@dataclass(frozen=True)
class _Stored:
    """What serving the first prompt left on disk, and the calls that made it."""

    tier: Path
    schema: Schema
    fed: NDArray[np.int32]
    calls: tuple[Call, ...]

    def file(self, tier: Path, unit: str, text: NDArray[np.int32]) -> File:
        """The file of a text's block or checkpoint in a copy of the tier."""
        key = _request(text, FIRST).keys(self.schema.block_tokens)
        identity = ObjectId(
            key[UNITS[unit] // self.schema.block_tokens - 1].astype("<i8").tobytes(),
            unit == "checkpoint",
        )
        path = tier / "objects" / self.schema.object_name(identity)
        return File.of(path, self.schema, identity.is_checkpoint)


@cache
def run_disk_cell(cell: str) -> DiskOutcome:
    """Plant a fault in an object that the next hit loads, and serve that hit.

    Args:
        cell: one of DISK_CELLS, or "none" for no fault.
    """
    stored = _stored(WEIGHTS, TEXT.tobytes())
    with one_thread(), shared_corner() as corner:
        shutil.copytree(stored.tier, corner / "disk")
        key, path, before = "", corner, b""
        if cell != "none":
            unit, fault = cell.split("_", 1)
            file = stored.file(corner / "disk", unit, TEXT)
            path, before, key = file.path, file.path.read_bytes(), file.path.stem
            DISK_FAULTS[fault].plant(file, _donors(unit))
        history = CallHistory()
        history.add(stored.fed, 0, stored.calls)
        with _engine(model_of(WEIGHTS), corner, corner / "disk") as engine:
            made = engine.generate(_request(TEXT, SECOND), NEW_TOKENS, wait_s=WAIT_S)
            assert engine.manager.settle_tiers(WAIT_S)
            engine.manager.check_integrity()
            labels = engine.manager.stats().validation_failures
        fed = np.concatenate([TEXT[:SECOND], np.array(made.tokens, np.int32)])
        calls = tuple(history.add(fed, made.resumed_at, made.calls))
        stock = stock_logits(fed.tobytes(), calls)[-NEW_TOKENS:]
        return DiskOutcome(
            damaged=key,
            found=_found(corner / "log", labels),
            num_set_aside=len(list((corner / "disk" / "quarantine").iterdir())),
            is_whole_again=path.is_file() and path.read_bytes() == before,
            resume_at=FIRST,
            resumed_at=made.resumed_at,
            tokens_equal=made.tokens == stock.argmax(dim=-1).tolist(),
            logits_equal=same(made.logits, stock),
        )


def _found(log: Path, labels: Iterable[str]) -> list[tuple[str, str, str]]:
    """What the log says of objects, and the layer under which the reason is counted."""
    counted = [label.split("/") for label in labels]
    layers = {reason: LAYERS[int(layer)] for layer, reason, group in counted if group == "disk"}
    events = np.concatenate([np.zeros(0, EVENT_DTYPE), *read_events(log)])
    found = []
    for event in events[events["type"] == EventType.OBJECT_FAILED]:
        reason = Reason(int(event["reason"])).name
        key = str(decode_payload(event)["key"])
        found.append((key, reason, layers.get(reason.lower(), "not counted")))
    return found


def _request(text: NDArray[np.int32], length: int) -> Request:
    return Request(text[:length], model="tiny", weights="tested")


@contextmanager
def _engine(model: DeepseekV4ForCausalLM, corner: Path, tier: Path) -> Iterator[Engine]:
    config = CacheConfig(
        slots={group.name: SLOTS for group in layout().groups},
        max_sequences=2,
        max_tokens_per_sequence=256,
        log=LogConfig(ring_events=8192, segment_bytes=1 << 20, shared_memory_root=corner),
        tiers=TiersConfig((TierConfig(str(tier), "disk"),)),
    )
    with CacheManager.open(layout(), config, corner / "log", pools="private") as manager:
        yield Engine(model, manager)


@cache
def _stored(weights: int, text: bytes) -> _Stored:
    """Serve the first prompt; what is stored lies in a folder until the process ends."""
    tier = Path(tempfile.mkdtemp(prefix="kvstrata-disk-cells-"))
    atexit.register(shutil.rmtree, tier, ignore_errors=True)
    prompt = np.frombuffer(text, np.int32)
    with (
        one_thread(),
        shared_corner() as corner,
        _engine(model_of(weights), corner, tier) as engine,
    ):
        made = engine.generate(_request(prompt, FIRST), 1)
        assert engine.manager.settle_tiers(WAIT_S)
        assert engine.manager._tiering is not None
        schema = engine.manager._tiering.objects.schema()
    fed = np.concatenate([prompt[:FIRST], np.array(made.tokens, np.int32)])
    return _Stored(tier, schema, fed, tuple(made.calls))


@cache
def _donors(unit: str) -> DiskDonors:
    found = []
    for weights, text in ((WEIGHTS, OTHER_TEXT), (OTHER_WEIGHTS, TEXT)):
        stored = _stored(weights, text.tobytes())
        found.append(stored.file(stored.tier, unit, text).path.read_bytes())
    return DiskDonors(*found)
