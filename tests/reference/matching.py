"""The tables of the reference, and match: where a request may resume and what that costs."""

from collections.abc import Mapping
from dataclasses import replace

from . import keys
from .tables import Tables
from .units import Units
from .values import Lease, Named, Plan, Row, Sequence, Sizes, Step

SECOND_NS = 10**9


class Matching:
    """All tables, and what only reads them."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.tables = Tables(list(sizes.slots), sizes.num_history, sizes.block_tokens)
        self.blocks, self.images = self.tables.blocks, self.tables.images
        self.has_state = len(sizes.slots) > sizes.num_history
        self.num_images = sizes.images_per_sequence if self.has_state else 0
        last = sizes.max_sequences
        self.free_sequences = list(range(1, last + 1))
        self.free_leases = list(range(last + 1, last + sizes.max_leases + 1))
        self.next_holder = 1
        self.sequences: dict[int, Sequence] = {}  # by row
        self.leases: dict[int, Lease] = {}  # by row
        self.steps: list[Step] = []  # in flight, oldest first

    def match(
        self,
        tokens: tuple[int, ...],
        seed: bytes,
        extras: Mapping[int, bytes] | None = None,
        max_resume: int | None = None,
        at: int | None = None,
    ) -> Plan:
        size, length = self.sizes.block_tokens, len(tokens)
        extras = extras or {}
        chain = keys.chain(seed, tokens, size, extras)
        found = 0
        while found < len(chain) and chain[found] in self.blocks.index:
            found += 1
        limit = min(found, (length - 1) // size)
        branch = limit * size
        if max_resume is not None:
            limit = min(limit, max_resume // size)
        cold = Plan(
            tokens=tokens,
            seed=seed,
            extras=extras,
            max_resume=max_resume,
            keys=tuple(chain),
            source="cold",
            resume_at=0,
            found=found,
            limit=limit * size,
            blocks=(),
            partial=None,
            checkpoint=None,
            key=bytes(16),
            branch=branch,
        )
        plan = None if at is None else self.plan_at(cold, at)
        if plan is None and self.has_state:
            plan = self.cheapest(cold, limit)
        if plan is None:
            plan = self.pin(cold, limit)
            if limit:
                plan = replace(plan, source="history", resume_at=limit * size)
        return replace(plan, captures=self.wanted(plan))

    def pin(self, cold: Plan, num_blocks: int) -> Plan:
        """The plan that pins so many whole blocks."""
        blocks = [self.blocks.index[key] for key in cold.keys[:num_blocks]]
        return replace(
            cold,
            blocks=tuple(named(self.blocks, block) for block in blocks),
            key=cold.keys[num_blocks - 1] if blocks else bytes(16),
        )

    def plan_at(self, cold: Plan, at: int) -> Plan | None:
        """Resume what was suspended there, if all of it is still here."""
        whole, rest = divmod(at, self.sizes.block_tokens)
        if not 0 < at <= len(cold.tokens) - 1 or cold.found < whole:
            return None
        if cold.max_resume is not None and at > cold.max_resume:
            return None
        key = keys.key_at(cold.seed, cold.tokens, self.sizes.block_tokens, cold.extras, at)
        partial = checkpoint = None
        if rest:
            if key not in self.blocks.index:
                return None
            partial = named(self.blocks, self.blocks.index[key])
        if self.has_state:
            if key not in self.images.index:
                return None
            checkpoint = named(self.images, self.images.index[key])
        return replace(
            self.pin(cold, whole),
            source="suspended",
            resume_at=at,
            partial=partial,
            checkpoint=checkpoint,
            key=key,
        )

    def cheapest(self, cold: Plan, limit: int) -> Plan:
        """Checkpoint, replay or cold; the earlier of these where two cost the same."""
        size = self.sizes.block_tokens
        candidates = []
        for num_blocks in range(limit, 0, -1):
            key = cold.keys[num_blocks - 1]
            if key in self.images.index:
                candidates.append(
                    replace(
                        self.pin(cold, num_blocks),
                        source="checkpoint",
                        resume_at=num_blocks * size,
                        checkpoint=named(self.images, self.images.index[key]),
                    )
                )
                break
        start = (limit * size - self.sizes.replay_tokens) // size * size
        if start > 0:
            candidates.append(replace(self.pin(cold, limit), source="replay", resume_at=start))
        return min([*candidates, cold], key=self.cost_ns)

    def cost_ns(self, plan: Plan) -> int:
        """Time to compute what is left, and to load the checkpoint."""
        computed = (len(plan.tokens) - plan.resume_at) * SECOND_NS // self.sizes.tokens_per_s
        if plan.checkpoint is None:
            return computed
        return computed + self.sizes.image_bytes * SECOND_NS // self.sizes.bytes_per_s

    def wanted(self, plan: Plan) -> tuple[int, ...]:
        """Where checkpoints are wanted, multiples of ``checkpoint_every`` not counted."""
        if not self.has_state:
            return ()
        size, length = self.sizes.block_tokens, len(plan.tokens)
        end = length // size * size
        wanted = {end}
        if length == end:
            wanted.add(end - size)
        if plan.branch < end:
            wanted.add(plan.branch)
        return tuple(
            position
            for position in sorted(wanted)
            if position > plan.resume_at
            and plan.keys[position // size - 1] not in self.images.index
        )

    def key_at(self, sequence: Sequence, position: int) -> bytes:
        """Key of the block that ends at a position, or the partial key inside one."""
        size = self.sizes.block_tokens
        return keys.key_at(sequence.seed, sequence.tokens, size, sequence.extras, position)

    def rows_in_flight(self, sequence: Sequence) -> list[Row]:
        return [row for step in self.steps for row in step.rows if row and row.sequence is sequence]

    def side_of(self, group: int) -> Units:
        return self.blocks if group < self.sizes.num_history else self.images


def named(units: Units, number: int) -> Named:
    return number, units[number].generation
