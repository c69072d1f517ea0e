"""The tables of the reference, and match: where a request may resume and what that costs."""

from collections.abc import Mapping
from dataclasses import replace

from . import keys
from .stored import Stored
from .tables import Tables
from .units import Units
from .values import Lease, Named, Plan, Row, Sequence, Sizes, Step, Wanted

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
        self.stored = Stored(sizes.stored_keys)
        self.readable = 255  # a bit for each tier that can be read now

    def match(
        self,
        tokens: tuple[int, ...],
        seed: bytes,
        extras: Mapping[int, bytes] | None = None,
        max_resume: int | None = None,
        at: int | None = None,
        *,
        with_tiers: bool = True,
    ) -> Plan:
        size, length = self.sizes.block_tokens, len(tokens)
        extras = extras or {}
        chain = keys.chain(seed, tokens, size, extras)
        found = 0
        while found < len(chain) and chain[found] in self.blocks.index:
            found += 1
        most = (length - 1) // size
        branch = min(found, most) * size
        if max_resume is not None:
            most = min(most, max_resume // size)
        limit = reach = min(found, most)
        tiers = self.readable if with_tiers else 0
        longest = self.sizes.max_blocks_per_sequence
        while reach < min(most, longest) and self.stored.tiers_of(chain[reach], False) & tiers:
            reach += 1
        cold = Plan(
            tokens=tokens,
            seed=seed,
            extras=extras,
            max_resume=max_resume,
            keys=tuple(chain),
            source="cold",
            resume_at=0,
            found=found,
            limit=reach * size,
            blocks=(),
            partial=None,
            checkpoint=None,
            key=bytes(16),
            branch=branch,
        )
        plan = None if at is None else self.plan_at(cold, at)
        if plan is None:
            ways = [*self.ways(cold, limit), *self.stored_ways(cold, limit, reach, tiers), cold]
            plan = min(ways, key=self.cost_ns)
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

    def ways(self, cold: Plan, limit: int) -> list[Plan]:
        """History, or checkpoint and replay: the ways that need nothing loaded."""
        size = self.sizes.block_tokens
        if not self.has_state:
            whole = replace(self.pin(cold, limit), source="history", resume_at=limit * size)
            return [whole] if limit else []
        ways = []
        for num_blocks in range(limit, 0, -1):
            key = cold.keys[num_blocks - 1]
            if key in self.images.index:
                ways.append(
                    replace(
                        self.pin(cold, num_blocks),
                        source="checkpoint",
                        resume_at=num_blocks * size,
                        checkpoint=named(self.images, self.images.index[key]),
                    )
                )
                break
        start = self.replay_from(limit)
        if start > 0:
            ways.append(replace(self.pin(cold, limit), source="replay", resume_at=start))
        return ways

    def replay_from(self, num_blocks: int) -> int:
        size = self.sizes.block_tokens
        return (num_blocks * size - self.sizes.replay_tokens) // size * size

    def stored_ways(self, cold: Plan, limit: int, reach: int, tiers: int) -> list[Plan]:
        """The ways that load what stands in these tiers; blocks before ``reach`` are there."""
        size = self.sizes.block_tokens
        ways = []
        if not self.has_state:
            if reach > limit:
                ways.append(self.load_behind(cold, "stored", limit, reach, reach * size))
            return ways
        here = stored = 0
        for num_blocks in range(1, reach + 1):
            key = cold.keys[num_blocks - 1]
            if key in self.images.index:
                here, stored = num_blocks, 0
            elif self.stored.tiers_of(key, True) & tiers:
                stored = num_blocks
        if stored or here > limit:
            end = stored or here
            at = stored * size
            ways.append(self.load_behind(cold, "stored", limit, end, end * size, at))
        start = self.replay_from(reach)
        if start > 0 and reach > limit:
            ways.append(self.load_behind(cold, "stored replay", limit, reach, start))
        return ways

    def load_behind(
        self, cold: Plan, source: str, limit: int, end: int, resume_at: int, checkpoint_at: int = 0
    ) -> Plan:
        """The plan that loads the blocks up to an end that are not here, and perhaps an image."""
        num_blocks = max(end - limit, 0)
        num_bytes = num_blocks * self.sizes.block_bytes
        if checkpoint_at:
            num_bytes += self.sizes.image_bytes
        return replace(
            self.pin(cold, min(end, limit)),
            source=source,
            resume_at=resume_at,
            load=Wanted(limit, num_blocks, checkpoint_at, num_bytes),
        )

    def cost_ns(self, plan: Plan) -> int:
        """Time to compute what is left, to copy the checkpoint, and to load what is not here."""
        sizes = self.sizes
        cost = (len(plan.tokens) - plan.resume_at) * SECOND_NS // sizes.tokens_per_s
        if plan.checkpoint is not None or (plan.source == "stored" and self.has_state):
            cost += sizes.image_bytes * SECOND_NS // sizes.bytes_per_s
        if plan.load is not None:
            cost += plan.load.num_bytes * SECOND_NS // sizes.load_bytes_per_s
        return cost

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
