"""What a manager does with lower tiers, call by call: its tables and its core, without workers."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kvstrata import CacheManager, ConfigError, OutOfPages, StaleLease
from kvstrata.asking import ask_of
from kvstrata.core.events import NO_CHECKSUM, EventType, Reason
from kvstrata.core.finish import end_sequence
from kvstrata.core.keys import key_words
from kvstrata.core.loading import (
    LOAD_BLOCKS,
    LOAD_GOOD_BLOCKS,
    LOAD_GOOD_IMAGE,
    LOAD_POSITION,
    LOAD_REASON,
    LOAD_WORDS,
    begin_load,
    drain_load,
    end_load,
    take_load,
)
from kvstrata.core.room import MORE, NO_ROOM, STALE
from kvstrata.core.spilling import note_objects
from kvstrata.core.steps import WORK_KEY_0, WORK_KEY_1, WORK_SUMS
from kvstrata.core.words import HOLDER_ID, POOL_ABI, Arena
from kvstrata.requests import Plan

from .tier_verbs import Object


@dataclass(eq=False)
class LiveLoad:
    """A load as its owner keeps it."""

    row: int
    identity: int
    words: Arena
    keys: Arena
    """int64[n, 2], of its blocks."""
    checkpoint_key: Arena


class HasManager(Protocol):
    """Where these verbs belong."""

    manager: CacheManager
    readable: int


class LiveTiers:
    """A part of :class:`.live.Live`."""

    def _tell(self: HasManager, kind: str, objects: list[Object]) -> None:
        rows = np.zeros((len(objects), 6), dtype=np.int64)
        for row, (key, is_checkpoint, tiers, position) in zip(rows, objects, strict=True):
            row[:2] = key_words(key)
            row[3] = position | tiers << 32 | is_checkpoint << 48
        call = self.manager._call
        call.run(note_objects, call.arena, call.ring, int(EventType[kind]), rows)

    def _read_tiers(self: HasManager, tiers: int) -> None:
        self.readable = tiers

    def _load(self: HasManager, plan: Plan) -> LiveLoad:
        wanted, call = plan.load, self.manager._call
        if wanted is None:
            raise ConfigError("expected a plan that loads something")
        words = np.zeros(LOAD_WORDS, dtype=np.int64)
        words[[LOAD_BLOCKS, LOAD_POSITION]] = wanted.num_blocks, wanted.checkpoint_at
        ask = ask_of(self.manager.layout, plan, load=wanted)
        row = call.run(begin_load, call.arena, call.ring, *ask, words)
        if row == NO_ROOM:
            raise OutOfPages("no room for a load")
        if row == STALE:
            raise StaleLease("a load's plan is stale")
        code = MORE
        while code == MORE:
            code = call.run(take_load, call.arena, call.ring, row, len(ask[0]), words)
        at = wanted.checkpoint_at // self.manager.layout.block_tokens
        return LiveLoad(
            row,
            int(self.manager.tables.holders[row, HOLDER_ID]),
            words,
            plan.keys[wanted.first : wanted.first + wanted.num_blocks],
            plan.keys[at - 1] if at else np.zeros(2, dtype=np.int64),
        )

    def _drain_load(self: HasManager, load: LiveLoad, reason: str) -> None:
        call, code = self.manager._call, MORE
        load.words[LOAD_REASON] = Reason[reason]
        while code == MORE:
            code = call.run(drain_load, call.arena, call.ring, load.row, load.words)

    def _end_load(
        self: HasManager, load: LiveLoad, num_good: int, image_is_good: bool, reason: str
    ) -> None:
        call, layout, code = self.manager._call, self.manager.layout, MORE
        good = num_good, image_is_good, Reason[reason]
        load.words[[LOAD_GOOD_BLOCKS, LOAD_GOOD_IMAGE, LOAD_REASON]] = good
        history, states = len(layout.history_groups), len(layout.state_groups)
        work = np.zeros((len(load.keys), WORK_SUMS + history), dtype=np.int64)
        work[:, WORK_KEY_0 : WORK_KEY_1 + 1] = load.keys
        sums = np.zeros(2 + max(states, 1), dtype=np.int64)
        sums[:2] = load.checkpoint_key
        while code == MORE:
            arguments: tuple[Any, ...] = (load.row, work, sums, load.words, NO_CHECKSUM)
            code = call.run(end_load, call.arena, call.ring, *arguments)

    def _release_load(self: HasManager, load: LiveLoad) -> None:
        call, sums = self.manager._call, np.zeros(8, dtype=np.int64)
        how = np.array([int(Reason.FINISHED), 0, 0], dtype=np.int64)
        arguments = (call.arena, self.manager._steps, call.ring, load.identity, sums, how)
        call.drain_limbo(call.run(end_sequence, *arguments))

    def _register(self: HasManager, group: int) -> None:
        word = int(self.manager.tables.pools[group, POOL_ABI])
        payload = np.zeros(4, dtype=np.int64)
        for each in (word ^ 1, word):
            payload[2] = each
            self.manager._call.note(EventType.ABI_REGISTERED, payload, group=group)
