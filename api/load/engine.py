"""The engine process of a load: a tiny model on a manager's pools, with tiers and commands."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
import torch

from kvstrata import (
    AdmissionConfig,
    CacheConfig,
    CacheLayout,
    CacheManager,
    KvstrataError,
    LogConfig,
)
from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import META_LAST_SEQNO
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model
from kvstrata.eventstore.history.catalogue import CatalogueCommands, default_url
from kvstrata.tiers.config import TierConfig, TiersConfig

from ..replay.newest import newest_events
from . import messages as m
from .config import LoadConfig
from .damage import damage_object, flip_page
from .requests import MAX_RUNNING, Requests
from .traffic import MAX_TOKENS, Schedule, Traffic

__all__ = ["cache_config", "run"]

_BLOCKS: Final = 160
"""Of 16 conversations of up to 80 blocks each most have to be evicted, and loaded again; six that
run at once do not always fit, and then some wait."""
_IMAGES: Final = 48
_SEGMENT_BYTES: Final = 4 << 20
_RETENTION_BYTES: Final = 64 << 20
_TIER_BYTES: Final = 256 << 20
_SCRUB_BYTES_PER_S: Final = 512 << 10
"""So the pools are gone through in some seconds."""
_BEAT_S: Final = 0.5
_IDLE_S: Final = 0.02


def run(connection: Connection) -> None:
    """Serve a load until it says so, or is gone.

    Args:
        connection: messages of :mod:`.messages` in both directions.
    """
    torch.set_num_threads(1)
    with suppress(EOFError, ConnectionError):
        try:
            command = connection.recv()
            if isinstance(command, m.Open):
                with _opened(command, connection) as worker:
                    worker.serve()
        except KvstrataError as error:
            connection.send(m.Failed(error))


def cache_config(layout: CacheLayout, config: LoadConfig) -> CacheConfig:
    """Pools so small that prefixes are evicted, loaded again, and waited for."""
    history = {group.name: _BLOCKS + 1 for group in layout.history_groups}
    states = {group.name: _IMAGES + 1 for group in layout.state_groups}
    tiers = tuple(TierConfig(url, cap_bytes=_TIER_BYTES) for url in config.tier_urls)
    return CacheConfig(
        slots=history | states,
        max_sequences=MAX_RUNNING,
        max_tokens_per_sequence=MAX_TOKENS + layout.block_tokens,
        admission=AdmissionConfig(max_recoveries=2, deadline_s=30.0),
        log=LogConfig(
            ring_events=1 << 15,
            segment_bytes=_SEGMENT_BYTES,
            retention_bytes=_RETENTION_BYTES,
            shared_memory_root=config.shared_memory_root,
        ),
        tiers=TiersConfig(tiers, spill="seal"),
        scrub_bytes_per_s=_SCRUB_BYTES_PER_S,
    )


def _opened(command: m.Open, connection: Connection) -> _Worker:
    config = command.config
    model = build_tiny_model(config.seed)
    layout = layout_for_model(model)
    manager = CacheManager.open(layout, cache_config(layout, config), config.place, pools="shared")
    try:
        catalogue = config.serve.catalogue if config.serve else None
        url = catalogue or default_url(config.place)
        manager.follow_commands(CatalogueCommands(url, config.place))
        return _Worker(connection, Engine(model, manager), command)
    except BaseException:
        manager.close()
        raise


class _Worker:
    """Serves until it is told to end; closes its manager when its ``with`` ends."""

    def __init__(self, connection: Connection, engine: Engine, command: m.Open) -> None:
        self._connection = connection
        self._engine = engine
        self._manager = engine.manager
        self._config = command.config
        self._counts = m.Counts()
        self._traffic = Traffic(command.talks)
        self._seqno = int(self._manager.arena[META_LAST_SEQNO])
        model = {"model": "demo", "weights": f"seed-{self._config.seed}"}
        self._requests = Requests(engine, self._traffic, model, self._counts)
        self._is_over = False

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self._manager.close()

    def serve(self) -> None:
        """Answer requests, heed commands, and tell of both."""
        self._connection.send(m.Opened(self._manager.recovery))
        rate, seed = self._config.requests_per_s, self._config.seed + self._seqno
        schedule = Schedule(len(self._traffic.talks), rate, seed)
        began_s = time.monotonic()
        beat_s = 0.0
        while not self._is_over:
            now_s = time.monotonic() - began_s
            for number in schedule.due(now_s):
                self._requests.add(number)
            for heard in self._requests.work():
                schedule.answered(heard.number, now_s)
                self._connection.send(heard)
            # Commands, scrubs and digests go on while all are silent.
            self._manager.apply_completions()
            self._count()
            if now_s >= beat_s:
                self._beat()
                beat_s = now_s + _BEAT_S
            self._heed_all()

    def _heed_all(self) -> None:
        """Carry out what was said meanwhile; wait for it a moment where there is nothing to do."""
        while self._connection.poll(self._idle_s()):
            command = self._connection.recv()
            if isinstance(command, m.End):
                self._is_over = True
                return
            self._heed(command)

    def _idle_s(self) -> float:
        return 0.0 if self._requests.num_running else _IDLE_S

    def _beat(self) -> None:
        counts = self._counts.plus(m.Counts())
        seqno = int(self._manager.arena[META_LAST_SEQNO])
        requests = self._requests
        self._connection.send(m.Beat(counts, requests.num_running, requests.num_waiting, seqno))

    def _heed(self, command: object) -> None:
        told = None
        if isinstance(command, m.Flip):
            told = flip_page(self._manager, command.kind, self._requests.next_requests())
        elif isinstance(command, m.Damage):
            folder = Path(self._config.tier_urls[0])
            told = damage_object(self._manager, folder, self._requests.next_requests())
        self._connection.send(m.Told(told))

    def _count(self) -> None:
        """Count what was logged since the last look."""
        counts = self._counts
        for events in newest_events(self._manager, self._seqno):
            kinds = events["type"]
            self._seqno = int(events["seqno"][-1])
            counts.loads += _num(kinds, EventType.LOAD_ENDED)
            counts.stored += _num(kinds, EventType.OBJECT_STORED)
            counts.failures += _num(kinds, EventType.VALIDATION_FAILED, EventType.OBJECT_FAILED)
            counts.quarantined += _num(kinds, EventType.PAGE_QUARANTINED)
            counts.commands += _num(kinds, EventType.COMMAND_ENDED)
            evicted = (kinds == EventType.PAGE_FREED) & (events["reason"] == Reason.EVICTED)
            counts.evicted += int(np.count_nonzero(evicted))
            drifted = (kinds == EventType.NUMERIC_DRIFT) & (events["reason"] == Reason.DRIFTED)
            counts.drifted += int(np.count_nonzero(drifted))


def _num(kinds: np.ndarray[tuple[int], np.dtype[np.uint8]], *wanted: EventType) -> int:
    return int(np.count_nonzero(np.isin(kinds, wanted)))


if __name__ == "__main__":
    run(Connection(int(sys.argv[1])))
