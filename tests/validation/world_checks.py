"""One cache over stamped pages, and everything that must hold of it after each call."""

import numpy as np

from kvstrata import CacheConfig, CacheManager, LogConfig, Plan, Request, Step
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_STATE, POOL_FIRST, POOL_SLOTS
from tests.face.support import check_sums

from .stamps import Stamps, hashes_of, layout_of
from .world_parts import Held, Paused, Run, Setting


class Checked:
    """A manager, what the engine holds of it, and the laws."""

    def __init__(self, setting: Setting) -> None:
        layout = layout_of(setting.groups, setting.block_tokens, setting.rollback_tokens)
        num_history = len(layout.history_groups)
        slots = {
            name: 1 + (setting.blocks + i if i < num_history else setting.images + i % 3)
            for i, name in enumerate(setting.groups)
        }
        self.setting = setting
        self.cache = CacheManager.open(
            layout,
            CacheConfig(
                slots=slots,
                max_sequences=setting.max_sequences,
                max_leases=2,
                max_tokens_per_sequence=10 * setting.block_tokens,
                images_per_sequence=setting.images_per_sequence,
                checkpoint_every=setting.checkpoint_every,
                admission=setting.admission,
                log=LogConfig(ring_events=1 << 12),
            ),
            None,
            "private",
        )
        self.stamps = Stamps(self.cache)
        for pool in self.stamps.words.values():
            pool[:] = 0xEEEE_EEEE_EEEE_EEEE
        self.history = [group.name for group in layout.history_groups]
        self.states = [group.name for group in layout.state_groups]
        self.runs: list[Run] = []
        self.steps: list[Step] = []
        self.leases: list[Held] = []
        self.paused: list[Paused] = []
        self.waiting: list[Request] = []
        self.plans: list[tuple[Plan, Request]] = []
        self.texts: list[tuple[str, list[int]]] = [("m", [0, 1, 2, 0, 1, 2, 2, 1])]
        self.draining: list[tuple[Run, list[tuple[str, int, int]]]] = []
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def everybody(self) -> list[Run]:
        return [*self.runs, *(run for run, _ in self.draining)]

    def in_state(self, group: str, state: PageState) -> list[int]:
        """Slots of a group's pages in a state."""
        pool = self.cache.tables.pools[self.cache.layout.group_id(group)]
        first = int(pool[POOL_FIRST])
        states = self.cache.tables.pages[first : first + int(pool[POOL_SLOTS]), PAGE_STATE]
        return (np.flatnonzero(states[1:] == state) + 1).tolist()

    def check(self) -> None:
        """Laws of the tables, and every byte that anybody may read."""
        check_sums(self.cache)
        for run in self.runs:
            self._check_run(run)
        for held in self.leases:
            self._check_lease(held)
        self._check_draining()

    def _check_run(self, run: Run) -> None:
        position = run.sequence.position
        assert position == len(run.tokens)
        hashes = run.hashes
        for group in self.history:
            slots = self.cache.block_slots(run.sequence, group).tolist()
            reach = max(position, min(run.sequence.protected, len(run.request.tokens)))
            full = hashes
            if reach > position:
                full = hashes_of(run.request.model, run.request.tokens.tolist())
            assert not self.stamps.wrong_history(group, slots, full, reach), group
        origin = run.sequence.origin
        for group, slot in self.cache.image_slots(run.sequence).items():
            assert not self.stamps.wrong_state(group, slot, hashes, position, origin), group

    def _check_lease(self, held: Held) -> None:
        plan = held.lease.plan
        row = held.lease.id & 0xFFFF
        count = len(plan.blocks)
        blocks = self.cache.tables.holder_blocks[row, :count]
        assert blocks.tolist() == plan.blocks[:, 0].tolist()
        for part, group in enumerate(self.history):
            slots = self.cache.tables.blocks.pages[blocks, part].tolist()
            assert not self.stamps.wrong_history(
                group, slots, held.hashes, count * self.setting.block_tokens
            )
        if plan.checkpoint[0]:
            slots = self.cache.slots_of_image(plan.checkpoint[0])
            for group, slot in slots.items():
                assert not self.stamps.wrong_state(group, slot, held.hashes, plan.resume_at, 0)

    def _check_draining(self) -> None:
        still = []
        for run, pages in self.draining:
            if run.is_idle:
                continue
            still.append((run, pages))
            for group, slot, generation in pages:
                assert self.stamps.generation(group, slot) == generation
                assert slot not in self.in_state(group, PageState.FREE), (
                    "a page that may be written was freed"
                )
        self.draining = still

    def check_hit(self, run: Run, plan: Plan, hashes: list[int]) -> None:
        """Everything adopted is of exactly this prefix, and none of it is damaged."""
        assert plan.resume_at < plan.prompt_tokens
        assert plan.resume_at <= plan.reused_tokens or plan.source == "cold"
        blocks = plan.blocks[:, 0]
        for part, group in enumerate(self.history):
            slots = self.cache.tables.blocks.pages[blocks, part].tolist()
            assert not [slot for slot in slots if self.stamps.is_flipped(group, slot)]
            whole = len(blocks) * self.setting.block_tokens
            assert not self.stamps.wrong_history(group, slots, hashes, whole)
            own = self.cache.block_slots(run.sequence, group)
            assert own[: len(blocks)].tolist() == slots
            if plan.source == "suspended":
                assert not self.stamps.wrong_history(group, own.tolist(), hashes, plan.resume_at)
        if plan.source in ("checkpoint", "suspended"):
            for group, slot in self.cache.image_slots(run.sequence).items():
                assert not self.stamps.wrong_state(group, slot, hashes, plan.resume_at, 0)
