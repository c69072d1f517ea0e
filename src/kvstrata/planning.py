"""From a request to a plan. Pure: reads the tables, changes nothing."""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.index import find_unit
from kvstrata.core.keys import hash_block, key_words, words_key
from kvstrata.core.layout import CacheLayout
from kvstrata.core.matching import find_checkpoint, generation_of, list_checkpoints
from kvstrata.core.planner import (
    NEVER_NS,
    PLAN_CHECKPOINT,
    PLAN_HISTORY,
    PLAN_IMAGE,
    PLAN_IMAGE_GENERATION,
    PLAN_LIMIT,
    PLAN_PARTIAL,
    PLAN_PARTIAL_KEY_1,
    PLAN_REACH,
    PLAN_WORDS,
    Candidate,
    Stored,
    cost_ns,
    list_captures,
    plan_prefix,
    rates_of,
    stored_candidates,
    ways_of,
    weigh_ways,
    write_ways,
)
from kvstrata.core.ranks import LocalRank, RankGroup
from kvstrata.core.stored import find_stored_checkpoint, walk_stored
from kvstrata.core.words import META_IMAGE_BYTES, META_MAX_BLOCKS, Arena

from .requests import Load, Plan, Request

__all__ = ["Planner", "partial_key"]

_NOTHING = (0, 0)
_NO_LIMIT: Final = (1 << 62) - 1


class Planner:
    """Plans requests against one arena.

    Args:
        layout: the layout.
        arena: the arena; read only.
        ranks: the ranks that must agree on every plan.
        wait: gives how long admission would keep a request's load of so many bytes waiting, in ns.
        tiers: gives a bit for each lower tier that can be read now; None where there are none.
    """

    def __init__(
        self,
        layout: CacheLayout,
        arena: Arena,
        ranks: RankGroup | None = None,
        wait: Callable[[Request, int], int] | None = None,
        tiers: Callable[[], int] | None = None,
    ) -> None:
        self._layout = layout
        self._arena = arena
        self._image_bytes = arena.item(META_IMAGE_BYTES)
        self.ranks: RankGroup = LocalRank() if ranks is None else ranks
        self._wait = wait
        self.tiers = tiers
        self.is_loading: Callable[[npt.NDArray[np.int64], Load], bool] | None = None
        """Whether any of a load is on its way: who needs it too joins, and is not to be admitted.

        Given the keys of the prompt's blocks and the load.
        """

    def plan(self, request: Request, at: int | None = None, stored: bool = True) -> Plan:
        """Match a request's prefix against the index and choose the cheapest way.

        Args:
            request: the request.
            at: position at which it was suspended, to resume exactly there if that is still here.
            stored: whether ways count that load from a lower tier.

        Returns:
            The plan; one token is always left to compute.
        """
        keys = request.keys(self._layout.block_tokens)
        rows: Arena = np.empty((len(keys), 2), dtype=np.int64)
        found: Arena = np.empty(PLAN_WORDS, dtype=np.int64)
        most = _NO_LIMIT if request.max_resume is None else min(int(request.max_resume), _NO_LIMIT)
        wait_ns = self._wait_ns(request, self._image_bytes)
        plan_prefix(self._arena, keys, len(request.tokens), most, wait_ns, rows, found)
        if at is not None:
            plan = self._suspended(request, at, keys, rows, found)
            if self.ranks.size > 1:
                agreed = self.ranks.least(np.array([plan is not None], dtype=np.int64))
                plan = plan if agreed[0] else None
            if plan is not None:
                return plan
        load = None
        if self.ranks.size > 1:
            self._agree(request, keys, found)
        elif stored and self.tiers is not None:
            tiers = self.tiers()
            if tiers:
                load = self._stored(request, keys, found, tiers)
        return Plan(request, keys, rows, found, self._layout.block_tokens, load)

    def _wait_ns(self, request: Request, load_bytes: int) -> int:
        """How long admission would keep a load waiting; ranks would have to agree: 0."""
        if self._wait is None or self.ranks.size > 1:
            return 0
        return self._wait(request, load_bytes)

    def _stored(
        self, request: Request, keys: npt.NDArray[np.int64], words: Arena, tiers: int
    ) -> Load | None:
        """The ways that load from a lower tier, put before the cold one.

        Returns:
            What the cheapest way loads, if it does.

        Mutates:
            words.
        """
        arena, tokens = self._arena, self._layout.block_tokens
        here, checkpoint = int(words[PLAN_LIMIT]), int(words[PLAN_CHECKPOINT])
        most = min((len(request.tokens) - 1) // tokens, arena.item(META_MAX_BLOCKS))
        if request.max_resume is not None:
            most = min(most, request.max_resume // tokens)
        limit = int(walk_stored(arena, keys, here, most, tiers))
        stored = 0
        if self._layout.state_groups:
            if limit > here:
                image: Arena = np.zeros(2, dtype=np.int64)
                checkpoint = int(find_checkpoint(arena, keys, limit, image))
            stored = int(find_stored_checkpoint(arena, keys, limit, checkpoint, tiers))
        found = Stored(here, limit, max(stored, checkpoint), stored <= checkpoint)
        loads: dict[str, Load] = {}
        ways, rates = ways_of(words.tolist()), rates_of(arena)
        for way, num_bytes in stored_candidates(arena, len(request.tokens), found, rates):
            at = stored * tokens if way.source == "stored" and not found.image_here else 0
            loads[way.source] = load = Load(here, max(way.num_blocks - here, 0), at, num_bytes)
            joins = self.is_loading is not None and self.is_loading(keys, load)
            wait_ns = 0 if joins else self._wait_ns(request, num_bytes)
            ways.insert(len(ways) - 1, way._replace(cost_ns=way.cost_ns + wait_ns))
        words[PLAN_REACH] = limit
        if not loads:
            return None
        chosen = write_ways(words, ways)
        shared = int(words[PLAN_HISTORY])
        list_captures(arena, keys, len(request.tokens), shared, True, words)
        return loads.get(chosen.source)

    def again(self, plan: Plan) -> Plan:
        """The same request, planned anew after something was withdrawn."""
        return self.plan(plan.request)

    def cold(self, plan: Plan) -> Plan:
        """The same request with nothing reused: the last way out of any trouble."""
        num_tokens = plan.prompt_tokens
        cost = cost_ns(rates_of(self._arena), num_tokens, 0)
        words: Arena = np.zeros(PLAN_WORDS, dtype=np.int64)
        words[PLAN_HISTORY] = len(plan.history)
        write_ways(words, [Candidate("cold", 0, 0, 0, cost)])
        list_captures(self._arena, plan.keys, num_tokens, 0, self.ranks.size == 1, words)
        return Plan(plan.request, plan.keys, plan.history, words, self._layout.block_tokens)

    def checkpoints(self, plan: Plan) -> npt.NDArray[np.int64]:
        """Blocks before each checkpoint within a plan's history, ascending: int64[n]."""
        limit = plan.history_tokens // self._layout.block_tokens
        places: Arena = np.zeros(limit, dtype=np.int64)
        if not self._layout.state_groups:
            return places[:0]
        return places[: int(list_checkpoints(self._arena, plan.keys, limit, places))]

    def _agree(self, request: Request, keys: npt.NDArray[np.int64], found: Arena) -> None:
        """What all ranks hold: blocks of history, and the furthest common checkpoint.

        Args:
            request: the request.
            keys: int64[n, 2], of its blocks.
            found: what this rank has found.

        Mutates:
            found.
        """
        arena, num_tokens = self._arena, len(request.tokens)
        rates = rates_of(arena)
        mine = [int(found[PLAN_LIMIT]), rates.tokens_per_s, rates.bytes_per_s]
        limit, tokens_per_s, bytes_per_s = self.ranks.least(np.array(mine, dtype=np.int64)).tolist()
        checkpoint = 0
        if self._layout.state_groups:
            places: Arena = np.zeros(limit, dtype=np.int64)
            count = int(list_checkpoints(arena, keys, limit, places))
            common = self.ranks.common(places[:count])
            if len(common):
                checkpoint = int(common[-1])
                find_checkpoint(arena, keys, checkpoint, found[PLAN_IMAGE:])
        found[PLAN_LIMIT], found[PLAN_REACH], found[PLAN_CHECKPOINT] = limit, limit, checkpoint
        weigh_ways(arena, num_tokens, tokens_per_s, bytes_per_s, 0, found)
        list_captures(arena, keys, num_tokens, limit, False, found)

    def _suspended(
        self,
        request: Request,
        at: int,
        keys: npt.NDArray[np.int64],
        rows: Arena,
        found: Arena,
    ) -> Plan | None:
        """Exactly where the request was suspended, if all of it is still here."""
        arena, tokens = self._arena, self._layout.block_tokens
        whole, num_tokens, history = at // tokens, len(request.tokens), int(found[PLAN_HISTORY])
        if not 0 < at < num_tokens or history < whole:
            return None
        if request.max_resume is not None and at > request.max_resume:
            return None
        key = _NOTHING if at % tokens else (int(keys[whole - 1, 0]), int(keys[whole - 1, 1]))
        partial, checkpoint = _NOTHING, _NOTHING
        if at % tokens:
            before = request.seed(tokens)
            if whole:
                before = words_key(int(keys[whole - 1, 0]), int(keys[whole - 1, 1]))
            key = partial_key(request, before, at, tokens)
            partial = self._find(True, key)
            if not partial[0]:
                return None
        load_bytes = self._layout.block_bytes if partial[0] else 0
        if self._layout.state_groups:
            checkpoint = self._find(False, key)
            load_bytes += self._image_bytes
            if not checkpoint[0]:
                return None
        cost = cost_ns(rates_of(arena), num_tokens - at, load_bytes)
        wait_ns = self._wait_ns(request, load_bytes)
        if wait_ns >= NEVER_NS:
            return None
        words = found.copy()
        write_ways(words, [Candidate("suspended", at, whole, load_bytes, cost + wait_ns)])
        words[PLAN_IMAGE], words[PLAN_IMAGE_GENERATION] = checkpoint
        if partial[0]:
            words[PLAN_PARTIAL : PLAN_PARTIAL_KEY_1 + 1] = *partial, *key
        alone = self.ranks.size == 1
        list_captures(arena, keys, num_tokens, history if alone else whole, alone, words)
        return Plan(request, keys, rows, words, tokens)

    def _find(self, is_block: bool, key: tuple[int, int]) -> tuple[int, int]:
        """Id and generation of the unit under a key, zeros for none."""
        unit = int(find_unit(self._arena, is_block, *key))
        if not unit:
            return _NOTHING
        return unit, int(generation_of(self._arena, is_block, unit))


def partial_key(request: Request, before: bytes, at: int, block_tokens: int) -> tuple[int, int]:
    """Key at a position inside a block; ``before`` is the key of the block before, or the seed."""
    index = at // block_tokens
    extra = (request.extras or {}).get(index, b"")
    return key_words(hash_block(before, request.tokens[index * block_tokens : at], extra))
