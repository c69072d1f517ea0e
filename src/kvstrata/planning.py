"""From a request to a plan. Pure: reads the tables, changes nothing."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kvstrata.core.events import Reason
from kvstrata.core.index import find_unit
from kvstrata.core.keys import hash_block, key_words, words_key
from kvstrata.core.layout import CacheLayout
from kvstrata.core.matching import (
    find_checkpoint,
    generation_of,
    list_checkpoints,
    walk_blocks,
)
from kvstrata.core.planner import (
    NEVER_NS,
    Candidate,
    Rates,
    Stored,
    candidates,
    cost_ns,
    rates_of,
    stored_candidates,
)
from kvstrata.core.ranks import LocalRank, RankGroup
from kvstrata.core.stored import find_stored_checkpoint, walk_stored
from kvstrata.core.words import META_IMAGE_BYTES, META_MAX_BLOCKS, Arena

from .requests import Load, Plan, Request

__all__ = ["Planner", "partial_key"]

_NOTHING = (0, 0)


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
        tokens = self._layout.block_tokens
        keys = request.keys(tokens)
        rows: Arena = np.zeros((len(keys), 2), dtype=np.int64)
        history = int(walk_blocks(self._arena, keys, rows))
        if at is not None:
            plan = self._suspended(request, at, keys, rows, history)
            if self.ranks.size > 1:
                agreed = self.ranks.least(np.array([plan is not None], dtype=np.int64))
                plan = plan if agreed[0] else None
            if plan is not None:
                return plan
        return self._cheapest(request, keys, rows, history, stored)

    def _wait_ns(self, request: Request, load_bytes: int) -> int:
        """How long admission would keep a load waiting; ranks would have to agree: 0."""
        if self._wait is None or self.ranks.size > 1:
            return 0
        return self._wait(request, load_bytes)

    def _cheapest(
        self,
        request: Request,
        keys: npt.NDArray[np.int64],
        rows: Arena,
        history: int,
        stored: bool,
    ) -> Plan:
        arena, tokens = self._arena, self._layout.block_tokens
        num_tokens = len(request.tokens)
        limit = min(history, (num_tokens - 1) // tokens)
        if request.max_resume is not None:
            limit = min(limit, request.max_resume // tokens)
        here = limit
        rates = rates_of(arena)
        image: Arena = np.zeros(2, dtype=np.int64)
        if self.ranks.size == 1:
            checkpoint = 0
            if self._layout.state_groups:
                checkpoint = int(find_checkpoint(arena, keys, limit, image))
        else:
            limit, checkpoint, rates = self._agree(keys, limit, rates, image)
        wait_ns = self._wait_ns(request, arena.item(META_IMAGE_BYTES)) if checkpoint else 0
        ways = candidates(arena, num_tokens, limit, checkpoint, rates, wait_ns)
        loads: dict[str, Load] = {}
        reach, tiers = 0, 0
        if stored and self.tiers is not None and self.ranks.size == 1:
            tiers = self.tiers()
        if tiers:
            loads, reach = self._stored(request, keys, limit, checkpoint, rates, ways, tiers)
        chosen = min(ways, key=lambda way: way.cost_ns)
        resume = chosen.resume_at
        return Plan(
            request=request,
            resume_at=resume,
            reused_tokens=chosen.num_blocks * tokens,
            history_tokens=history * tokens,
            source=chosen.source,
            captures=self._captures(keys, num_tokens, history, limit, resume),
            candidates=tuple(ways),
            limited=_limit_of(chosen, max(here, reach) * tokens, max(limit, reach) * tokens),
            keys=keys,
            history=rows[:history],
            blocks=rows[: min(chosen.num_blocks, history)],
            checkpoint=_unit(image) if chosen.source == "checkpoint" else _NOTHING,
            partial=_NOTHING,
            partial_key=_NOTHING,
            load=loads.get(chosen.source),
        )

    def _stored(
        self,
        request: Request,
        keys: npt.NDArray[np.int64],
        here: int,
        checkpoint: int,
        rates: Rates,
        ways: list[Candidate],
        tiers: int,
    ) -> tuple[dict[str, Load], int]:
        """The ways that load from a lower tier, put before the cold one.

        Returns:
            What each loads; and how many blocks are here or stored.

        Mutates:
            ways.
        """
        arena, tokens = self._arena, self._layout.block_tokens
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
        loads = {}
        for way, num_bytes in stored_candidates(arena, len(request.tokens), found, rates):
            at = stored * tokens if way.source == "stored" and not found.image_here else 0
            loads[way.source] = load = Load(here, max(way.num_blocks - here, 0), at, num_bytes)
            joins = self.is_loading is not None and self.is_loading(keys, load)
            wait_ns = 0 if joins else self._wait_ns(request, num_bytes)
            ways.insert(len(ways) - 1, way._replace(cost_ns=way.cost_ns + wait_ns))
        return loads, limit

    def again(self, plan: Plan) -> Plan:
        """The same request, planned anew after something was withdrawn."""
        return self.plan(plan.request)

    def cold(self, plan: Plan) -> Plan:
        """The same request with nothing reused: the last way out of any trouble."""
        request, num_tokens = plan.request, plan.prompt_tokens
        way = Candidate("cold", 0, 0, 0, cost_ns(rates_of(self._arena), num_tokens, 0))
        return Plan(
            request=request,
            resume_at=0,
            reused_tokens=0,
            history_tokens=plan.history_tokens,
            source="cold",
            captures=self._captures(plan.keys, num_tokens, 0, 0, 0),
            candidates=(way,),
            limited=None,
            keys=plan.keys,
            history=plan.history,
            blocks=plan.blocks[:0],
            checkpoint=_NOTHING,
            partial=_NOTHING,
            partial_key=_NOTHING,
        )

    def checkpoints(self, plan: Plan) -> npt.NDArray[np.int64]:
        """Blocks before each checkpoint within a plan's history, ascending: int64[n]."""
        limit = plan.history_tokens // self._layout.block_tokens
        places: Arena = np.zeros(limit, dtype=np.int64)
        if not self._layout.state_groups:
            return places[:0]
        return places[: int(list_checkpoints(self._arena, plan.keys, limit, places))]

    def _agree(
        self, keys: npt.NDArray[np.int64], limit: int, rates: Rates, image: Arena
    ) -> tuple[int, int, Rates]:
        """What all ranks hold: blocks of history, and the furthest common checkpoint.

        Mutates:
            image.
        """
        mine = np.array([limit, rates.tokens_per_s, rates.bytes_per_s], dtype=np.int64)
        least = self.ranks.least(mine).tolist()
        limit, rates = least[0], Rates(least[1], least[2])
        if not self._layout.state_groups:
            return limit, 0, rates
        places: Arena = np.zeros(limit, dtype=np.int64)
        count = int(list_checkpoints(self._arena, keys, limit, places))
        common = self.ranks.common(places[:count])
        checkpoint = int(common[-1]) if len(common) else 0
        if checkpoint:
            find_checkpoint(self._arena, keys, checkpoint, image)
        return limit, checkpoint, rates

    def _suspended(
        self, request: Request, at: int, keys: npt.NDArray[np.int64], rows: Arena, history: int
    ) -> Plan | None:
        """Exactly where the request was suspended, if all of it is still here."""
        arena, tokens = self._arena, self._layout.block_tokens
        whole, num_tokens = at // tokens, len(request.tokens)
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
            load_bytes += int(arena[META_IMAGE_BYTES])
            if not checkpoint[0]:
                return None
        cost = cost_ns(rates_of(arena), num_tokens - at, load_bytes)
        wait_ns = self._wait_ns(request, load_bytes)
        if wait_ns >= NEVER_NS:
            return None
        cost += wait_ns
        return Plan(
            request=request,
            resume_at=at,
            reused_tokens=at,
            history_tokens=history * tokens,
            source="suspended",
            captures=self._captures(keys, num_tokens, history, whole, at),
            candidates=(Candidate("suspended", at, whole, load_bytes, cost),),
            limited=None,
            keys=keys,
            history=rows[:history],
            blocks=rows[:whole],
            checkpoint=checkpoint,
            partial=partial,
            partial_key=key if partial[0] else _NOTHING,
        )

    def _find(self, is_block: bool, key: tuple[int, int]) -> tuple[int, int]:
        """Id and generation of the unit under a key, zeros for none."""
        unit = int(find_unit(self._arena, is_block, *key))
        if not unit:
            return _NOTHING
        return unit, int(generation_of(self._arena, is_block, unit))

    def _captures(
        self,
        keys: npt.NDArray[np.int64],
        num_tokens: int,
        history: int,
        agreed: int,
        resume_at: int,
    ) -> tuple[int, ...]:
        """Where a checkpoint is wanted.

        At the end of the prompt's last block; for an aligned prompt also one block before, since a
        resend must leave a token to compute; and where this prompt parts from those before it.
        Steps of several ranks end together, so there it depends on what all have agreed on alone.
        """
        if not self._layout.state_groups:
            return ()
        tokens = self._layout.block_tokens
        last = num_tokens // tokens
        wanted = {last}
        if num_tokens % tokens == 0:
            wanted.add(last - 1)
        alone = self.ranks.size == 1
        wanted.add(min(history if alone else agreed, (num_tokens - 1) // tokens))
        return tuple(
            blocks * tokens
            for blocks in sorted(wanted)
            if blocks * tokens > resume_at and not (alone and self._has_checkpoint(keys, blocks))
        )

    def _has_checkpoint(self, keys: npt.NDArray[np.int64], blocks: int) -> bool:
        key = keys[blocks - 1]
        return bool(find_unit(self._arena, False, int(key[0]), int(key[1])))


def _unit(found: Arena) -> tuple[int, int]:
    """Id and generation."""
    return found.item(0), found.item(1)


def _limit_of(chosen: Candidate, here: int, agreed: int) -> tuple[Reason, int, int] | None:
    """Why no more than this is reused although more is here, and how much is."""
    if agreed < here:
        reason = Reason.RANK_LIMITED if agreed else Reason.RANK_INTERSECTION_EMPTY
        return reason, here, agreed
    if chosen.source in ("checkpoint", "stored") and chosen.resume_at < here:
        return Reason.GROUP_LIMITED, here, chosen.resume_at
    if chosen.source == "cold" and here:
        return Reason.GROUP_LIMITED, here, 0
    return None


def partial_key(request: Request, before: bytes, at: int, block_tokens: int) -> tuple[int, int]:
    """Key at a position inside a block; ``before`` is the key of the block before, or the seed."""
    index = at // block_tokens
    extra = (request.extras or {}).get(index, b"")
    return key_words(hash_block(before, request.tokens[index * block_tokens : at], extra))
