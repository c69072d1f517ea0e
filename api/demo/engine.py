"""The engine process of the demo: a tiny model whose cache is a manager's pools."""

from __future__ import annotations

import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from kvstrata import (
    CacheConfig,
    CacheLayout,
    CacheManager,
    KvstrataError,
    LogConfig,
    Request,
)
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model
from kvstrata.tiers.config import TierConfig, TiersConfig

from . import messages as m
from .places import find_place, flip

__all__ = ["run"]

_BLOCKS = 640
_IMAGES = 128
_MAX_SEQUENCES = 4
_MAX_TOKENS = 3072
_RING_EVENTS = 1 << 14
_SEGMENT_BYTES = 4 << 20
_WAIT_S = 60.0
"""For loads and for spills; a slow disk is no error."""


def run(connection: Connection) -> None:
    """Serve a demo until it closes the connection or ends.

    Args:
        connection: messages of :mod:`.messages` in both directions.
    """
    # Products split over threads by load would differ in the last bits from run to run.
    torch.set_num_threads(1)
    server = _Server(connection)
    try:
        with suppress(EOFError, ConnectionError):  # the demo is gone
            while not server.closed:
                connection.send(server.answer(connection.recv()))
    finally:
        server.close()


class _Server:
    """Carries out one command at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._engine: Engine | None = None
        self._seed = 0
        self._steps: list[m.StepBegun] = []
        self._stop_in_step: int | None = None
        self.closed = False

    def answer(self, command: object) -> object:
        """Carry a command out and answer it."""
        try:
            match command:
                case m.Open():
                    return self._open(command)
                case m.Serve():
                    return self._serve(command)
                case m.Find():
                    request = self._request(command.prompt, command.max_resume)
                    return find_place(self._manager, request, command.kind)
                case m.Flip():
                    flip(self._manager, command.place)
                case m.Match():
                    plan = self._manager.match(self._request(command.prompt, None))
                    return m.Matched(plan.resume_at, plan.source)
                case m.Settle():
                    return _settle(self._manager)
                case m.Flush():
                    self._manager.flush()
                case m.Close():
                    self.close()
                    self.closed = True
        except KvstrataError as error:
            return m.Failed(error)
        return m.Done()

    def close(self) -> None:
        """Close the manager, if one is open."""
        if self._engine is not None:
            self._engine.manager.close()
            self._engine = None

    @property
    def _running(self) -> Engine:
        if self._engine is None:
            raise KvstrataError("engine: expected an open manager, found none; send Open first")
        return self._engine

    @property
    def _manager(self) -> CacheManager:
        return self._running.manager

    def _request(self, prompt: m.Tokens, max_resume: int | None) -> Request:
        return Request(prompt, model="demo", weights=f"seed-{self._seed}", max_resume=max_resume)

    def _open(self, command: m.Open) -> m.Opened:
        self.close()
        self._seed = command.seed
        model = build_tiny_model(command.seed)
        layout = layout_for_model(model)
        manager = CacheManager.open(
            layout,
            _config(layout, command),
            command.directory,
            pools="private" if command.directory is None else "shared",
        )
        self._engine = Engine(model, manager)
        model.register_forward_pre_hook(self._step_begins, with_kwargs=True)
        middle = model.model.layers[len(model.model.layers) // 2]
        middle.register_forward_hook(self._inside_step)
        return m.Opened(manager.recovery)

    def _serve(self, command: m.Serve) -> m.Served:
        self._steps = []
        self._stop_in_step = command.stop_in_step
        request = self._request(command.prompt, command.max_resume)
        made = self._running.generate(request, command.num_new_tokens, wait_s=_WAIT_S)
        first_token_ms = made.begin_ms + made.prefill_ms
        return m.Served(
            tokens=np.array(made.tokens, dtype=np.int32),
            logits=made.logits.numpy(),
            resumed_at=made.resumed_at,
            steps=[m.StepBegun(call.start, call.num_tokens) for call in made.calls],
            first_token_ms=first_token_ms,
            ms=first_token_ms + made.decode_ms,
        )

    def _step_begins(self, _: torch.nn.Module, __: Any, call: dict[str, Any]) -> None:
        step = m.StepBegun(call["cache"].get_seq_length(), call["input_ids"].shape[1])
        self._steps.append(step)
        self._connection.send(step)

    def _inside_step(self, *_: Any) -> None:
        if self._stop_in_step == len(self._steps) - 1:
            self._connection.send(m.InsideStep())
            self._connection.recv()


def _config(layout: CacheLayout, command: m.Open) -> CacheConfig:
    history = {group.name: _BLOCKS + 1 for group in layout.history_groups}
    states = {group.name: _IMAGES + 1 for group in layout.state_groups}
    return CacheConfig(
        slots=history | states,
        max_sequences=_MAX_SEQUENCES,
        max_tokens_per_sequence=_MAX_TOKENS,
        verify_hits=command.verify_hits,
        log=LogConfig(
            ring_events=_RING_EVENTS,
            segment_bytes=_SEGMENT_BYTES,
            shared_memory_root=command.shared_memory_root,
        ),
        tiers=_tiers(command),
    )


def _tiers(command: m.Open) -> TiersConfig | None:
    if command.tier is None:
        return None
    return TiersConfig((TierConfig(str(command.tier), "disk"),), spill=command.spill)


def _settle(manager: CacheManager) -> m.Tiered:
    manager.settle_tiers(_WAIT_S)
    stats = manager.tier_stats()
    if stats is None:
        raise KvstrataError("engine: expected a manager with tiers, found one without")
    stored = sum(sum(kinds.values()) for kinds in stats.stored.values())
    return m.Tiered(stored, sum(tier["reads"] for tier in stats.tiers.values()))


if __name__ == "__main__":
    run(Connection(int(sys.argv[1])))
