"""Validation of a plan before it is adopted: the structural layers, then the bytes."""

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from kvstrata.core.alignment import AlignmentRule, misaligned, rule_for
from kvstrata.core.arena import open_tables
from kvstrata.core.checks import layer_of
from kvstrata.core.events import Reason
from kvstrata.core.layout import CacheLayout
from kvstrata.core.validation import (
    FOUND_EXPECTED,
    FOUND_FOUND,
    FOUND_GROUP,
    FOUND_INDEX,
    FOUND_SLOT,
    FOUND_WORDS,
    find_bad_block,
    find_bad_image,
    find_bad_page,
)
from kvstrata.core.words import (
    PAGE_GENERATION,
    PAGE_UNIT,
    POOL_FIRST,
    UNIT_POSITION,
    Arena,
)

from .requests import Plan
from .storage import BadPage, Storage

if TYPE_CHECKING:
    from kvstrata.kernels.pools import PoolSet

__all__ = ["Policy", "Validator", "Verdict"]

Policy = Literal["always", "sampled", "never"]


@dataclass(frozen=True)
class Verdict:
    """Why a candidate is no hit.

    Attributes:
        layer: 0 bytes, 1 block, 2 kernel ABI, 3 intersection, 4 byte alignment.
        reason: name of the reason.
        group: name of the group.
        slot: of the page in the group's pool; 0 where the group as a whole is bad.
        generation: of the page.
        position: of the page's end in the prefix, in tokens.
        expected: what the check wanted.
        found: what it found.
    """

    layer: int
    reason: str
    group: str
    slot: int
    generation: int
    position: int
    expected: int
    found: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        where = f"{self.group} page {self.slot}" if self.slot else self.group
        return (
            f"layer {self.layer} {self.reason}: {where} at {self.position}: expected "
            f"{self.expected:#x}, found {self.found:#x}"
        )


class Validator:
    """Validates plans against one arena and its pools.

    Args:
        layout: the layout.
        arena: the arena; read only.
        storage: the bytes, if there are any.
        policy: which hits' bytes are checksummed.
        sample_share: of a hit's blocks, under ``sampled``.
        turn: of the blocks, under ``sampled``: how many hits were sampled before.
    """

    def __init__(
        self,
        layout: CacheLayout,
        arena: Arena,
        storage: Storage | None,
        policy: Policy,
        sample_share: float,
        turn: int = 0,
    ) -> None:
        self._layout = layout
        self._arena = arena
        self._tables = open_tables(arena)
        self._storage = storage
        self._policy: Policy = policy
        self._sample_share = sample_share
        self.turn = turn
        self._rule = None if storage is None else rule_of(storage.pools)
        self.failures: Counter[tuple[int, str, str]] = Counter()
        """How often validation failed, by layer, reason and group: the labels of the metric."""

    def verdicts(self, plan: Plan) -> list[Verdict]:
        """What is wrong with a plan; empty where it may be adopted.

        The first structural failure stands alone; bytes are looked at only where there is none, and
        every bad page is named.
        """
        if plan.is_cold:
            return []
        wrong = self.structure(plan)
        if wrong is not None:
            return [wrong]
        unaligned = self.alignment()
        return unaligned if unaligned else self.bytes(plan)

    def structure(self, plan: Plan) -> Verdict | None:
        """Layers 1 and 2 of everything a plan reuses."""
        tokens = self._layout.block_tokens
        blocks, counted = plan.blocks, tokens
        if plan.partial[0]:
            blocks = np.concatenate([blocks, np.array([plan.partial], dtype=np.int64)])
            counted = plan.resume_at % tokens
        found: Arena = np.zeros(FOUND_WORDS, dtype=np.int64)
        reason = int(find_bad_block(self._arena, blocks, len(blocks), counted, found))
        position = min((int(found[FOUND_INDEX]) + 1) * tokens, plan.reused_tokens)
        if not reason:
            position = plan.resume_at
            reason = int(find_bad_image(self._arena, plan.checkpoint[0], position, found))
        if not reason:
            return None
        group, slot = int(found[FOUND_GROUP]), int(found[FOUND_SLOT])
        return self._verdict(
            reason, group, slot, position, int(found[FOUND_EXPECTED]), int(found[FOUND_FOUND])
        )

    def structure_of_history(self, plan: Plan) -> dict[str, Verdict]:
        """Layers 1 and 2 of each history group by itself, over all the history there is."""
        found: Arena = np.zeros(FOUND_WORDS, dtype=np.int64)
        tokens, wrong = self._layout.block_tokens, {}
        for group in range(len(self._layout.history_groups)):
            reason = int(find_bad_page(self._arena, group, plan.history, len(plan.history), found))
            if reason:
                position = (int(found[FOUND_INDEX]) + 1) * tokens
                words = found[[FOUND_EXPECTED, FOUND_FOUND]].tolist()
                slot = int(found[FOUND_SLOT])
                wrong[self._layout.groups[group].name] = self._verdict(
                    reason, group, slot, position, *words
                )
        return wrong

    def _verdict(
        self, reason: int, group: int, slot: int, position: int, expected: int, found: int
    ) -> Verdict:
        generation = 0
        if slot > 0:
            page = int(self._tables.pools[group, POOL_FIRST]) + slot
            if page < len(self._tables.pages):
                generation = int(self._tables.pages[page, PAGE_GENERATION])
        return Verdict(
            layer_of(reason),
            Reason(reason).name,
            self._layout.groups[group].name,
            slot,
            generation,
            position,
            expected,
            found,
        )

    def alignment(self) -> list[Verdict]:
        """Layer 4: every pool's address and stride against the rule of its device."""
        if self._storage is None or self._rule is None:
            return []
        addresses, strides = addresses_of(self._storage.pools)
        return [
            self._verdict(int(Reason[reason]), group, 0, 0, expected, found)
            for group, reason, expected, found in misaligned(self._rule, addresses, strides)
        ]

    def bytes(self, plan: Plan) -> list[Verdict]:
        """Layer 0: checksums of the pages that a plan reuses, by policy."""
        if self._storage is None or self._policy == "never":
            return []
        blocks = plan.blocks[:, 0]
        if self._policy == "sampled":
            blocks = self._sample(blocks)
        if plan.partial[0]:
            blocks = np.append(blocks, plan.partial[0])
        images = np.array([plan.checkpoint[0]] if plan.checkpoint[0] else [], dtype=np.int64)
        return self._bad(blocks, images)

    def blocks(self, blocks: npt.NDArray[np.int64]) -> list[Verdict]:
        """Layer 0 of whole blocks: all of them, unless bytes are never looked at."""
        if self._policy == "never":
            return []
        return self._bad(blocks, blocks[:0])

    def _bad(self, blocks: npt.NDArray[np.int64], images: npt.NDArray[np.int64]) -> list[Verdict]:
        """Every bad page; what hangs from another first, or it would be gone before it is named."""
        if self._storage is None:
            return []
        found = [self.verdict_on(bad) for bad in self._storage.bad_pages(blocks, images)]
        history = {group.name for group in self._layout.history_groups}
        return sorted(found, key=lambda one: (one.group in history, -one.position))

    def verdict_on(self, bad: BadPage) -> Verdict:
        """A page whose bytes are not what was sealed."""
        reason = int(Reason.CHECKSUM_MISMATCH)
        is_block = bad.group < len(self._layout.history_groups)
        page = int(self._tables.pools[bad.group, POOL_FIRST]) + bad.slot
        units = self._tables.blocks if is_block else self._tables.images
        position = int(units.rows[int(self._tables.pages[page, PAGE_UNIT]), UNIT_POSITION])
        verdict = self._verdict(reason, bad.group, bad.slot, position, bad.expected, bad.found)
        return replace(verdict, generation=bad.generation)

    def _sample(self, blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The next share of a hit's blocks, so that every block's turn comes."""
        step = max(int(1 / self._sample_share), 1)
        self.turn += 1
        return blocks[self.turn % step :: step]


def addresses_of(pools: "PoolSet") -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Base addresses and page strides of all pools, in bytes, in group order."""
    names = [group.name for group in pools.layout.groups]
    addresses = [pools.data_ptr(name) for name in names]
    strides = [pools.storage(name).stride(0) for name in names]
    return np.array(addresses, dtype=np.int64), np.array(strides, dtype=np.int64)


def rule_of(pools: "PoolSet") -> AlignmentRule:
    """The alignment rule of the device the pools are on."""
    import torch

    storage = pools.storage(pools.layout.groups[0].name)
    if storage.device.type != "cuda":
        return rule_for(storage.device.type, None)
    return rule_for("cuda", torch.cuda.get_device_capability(storage.device))
