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
    GroupSpec,
    Kind,
    KvstrataError,
    LogConfig,
    Request,
)
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model
from kvstrata.tiers.config import TierConfig, TiersConfig

from . import messages as m

__all__ = ["run"]

_BLOCKS = 640
_IMAGES = 128
_MAX_SEQUENCES = 4
_MAX_TOKENS = 3072
_RING_EVENTS = 1 << 14
_SEGMENT_BYTES = 4 << 20
_WAIT_S = 60.0
"""For loads and for spills; a slow disk is no error."""

# The bits of the byte that are flipped: those of its high half.
_FLIPPED_BITS = 0xF0


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


def find_place(manager: CacheManager, request: Request, kind: Kind) -> m.Place:
    """Find a byte that a request would reuse: in its last block, or in its checkpoint.

    Args:
        manager: has pools.
        request: a request that resumes above 0.
        kind: COMPRESSED, INDEXER, SWA or TAIL.

    Returns:
        A byte of a row that the first step after the resume point reads.

    Raises:
        KvstrataError: the request would reuse nothing.
    """
    plan = manager.match(request)
    if not plan.resume_at:
        raise KvstrataError("expected a request that reuses pages, found one that reuses nothing")
    group = _group_of(manager.layout, kind)
    if group.is_history:
        block = int(plan.blocks[-1, 0])
        page = int(manager.tables.blocks.pages[block, manager.layout.group_id(group.name)])
    else:
        page = manager.slots_of_image(plan.checkpoint[0])[group.name]
    component, rows_before = {
        Kind.COMPRESSED: ("entry", group.rows),
        Kind.INDEXER: ("key", group.rows),
        Kind.SWA: ("kv", plan.resume_at),
        Kind.TAIL: ("overlap_kv", plan.resume_at // group.ratio),
    }[kind]
    pools = _pools(manager)
    view = pools.view(group.name, component)
    # In the first layer, since what changes in the last one alone is soon out of the window.
    row = view[page, 0, (rows_before - 1) % view.shape[2]].flatten()
    first = row.data_ptr() - pools.storage(group.name)[page].data_ptr()
    # The byte of a number that holds sign and exponent is its last, numbers being little-endian.
    offset = first + row.element_size() - 1
    return m.Place(kind, group.name, page, offset, plan.resume_at)


def flip(manager: CacheManager, place: m.Place) -> None:
    """Flip bits of one byte of a page, as a stray write would.

    Mutates: the pool.
    """
    _pools(manager).storage(place.group)[place.page, place.offset] ^= _FLIPPED_BITS


def _group_of(layout: CacheLayout, kind: Kind) -> GroupSpec:
    """The group of a kind whose every page is read: no index selects among its entries."""
    indexed = {group.ratio for group in layout.groups if group.kind is Kind.INDEXER}
    groups = [group for group in layout.groups if group.kind is kind]
    if kind is Kind.COMPRESSED:
        groups.sort(key=lambda group: group.ratio in indexed)
    if kind is Kind.TAIL:
        groups.sort(key=lambda group: not group.overlap)
    return groups[0]


def _pools(manager: CacheManager) -> Any:
    return manager.pools


if __name__ == "__main__":
    run(Connection(int(sys.argv[1])))
