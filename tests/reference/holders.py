"""Sequences and leases of the reference: begin, lease, release, quarantine."""

from typing import Any

from .matching import Matching
from .units import Units
from .values import Lease, Misuse, NoRoom, Plan, Sequence, Stale


class Holders(Matching):
    """The verbs that pin and release whole prefixes."""

    def check_plan(self, plan: Plan) -> None:
        """Refuse a plan of which anything is no longer what it was."""
        pinned = [(self.blocks, plan.keys[place], block) for place, block in enumerate(plan.blocks)]
        if plan.partial is not None:
            pinned.append((self.blocks, plan.key, plan.partial))
        if plan.checkpoint is not None:
            pinned.append((self.images, plan.key, plan.checkpoint))
        for units, key, (number, generation) in pinned:
            if units.index.get(key) != number or units[number].generation != generation:
                raise Stale

    def pin_plan(self, plan: Plan, number: int, row: int) -> None:
        if plan.partial is not None:
            self.blocks.pin(plan.partial[0])
        for block, _ in reversed(plan.blocks):
            self.blocks.pin(block)
        if plan.checkpoint is not None:
            self.images.pin(plan.checkpoint[0])
        self.note_grant(
            [block for block, _ in plan.blocks],
            plan.key,
            number,
            row,
            with_checkpoint=plan.checkpoint is not None,
            with_partial=plan.partial is not None,
        )

    def note_grant(
        self, blocks: list[int], key: bytes, number: int, row: int, **flags: bool
    ) -> None:
        self.tables.note(
            "LEASE_GRANTED",
            key=key,
            owner=number,
            row=row,
            num_blocks=len(blocks),
            references=self.blocks[blocks[-1]].references if blocks else 0,
            **flags,
        )

    def next_number(self, row: int) -> int:
        number = self.next_holder << 16 | row
        self.next_holder += 1
        return number

    def begin(self, plan: Plan, computed_before: int = 0) -> Sequence:
        if plan.load is not None:
            request = plan.tokens, plan.seed, plan.extras, plan.max_resume
            plan = self.match(*request, with_tiers=False)
        self.check_plan(plan)
        blocks, images = self.blocks.room, self.images.room
        pinned = [*plan.blocks, *([plan.partial] if plan.partial else [])]
        blocks -= sum(block in self.blocks.idle for block, _ in pinned)
        if plan.checkpoint is not None and plan.checkpoint[0] in self.images.idle:
            images -= 1
        if not self.free_sequences or images < self.num_images:
            raise NoRoom
        if plan.partial is not None and blocks < 1:
            raise NoRoom
        row = self.free_sequences.pop(0)
        sequence = Sequence(
            number=self.next_number(row),
            row=row,
            seed=plan.seed,
            extras=plan.extras,
            max_resume=plan.max_resume,
            prompt_tokens=len(plan.tokens),
            tokens=list(plan.tokens),
            captures=plan.captures,
            branch=plan.branch,
            position=plan.resume_at,
            exact=len(plan.blocks) * self.sizes.block_tokens if plan.source == "replay" else 0,
            blocks=[block for block, _ in plan.blocks],
            sealed=len(plan.blocks),
            origin=plan.checkpoint,
            partial_origin=plan.partial,
            written=plan.resume_at,
        )
        self.sequences[row] = sequence
        self.note_begun(sequence)
        if not plan.pins_nothing:
            self.pin_plan(plan, sequence.number, row)
        self.note_resumed(plan, sequence, computed_before)
        if plan.checkpoint is not None:
            self.images[plan.checkpoint[0]].resumes += 1
        self.take_images(sequence)
        if plan.partial is not None:
            self.tables.make_room(self.blocks, 1)
            self.reserve_block(sequence)
        if plan.checkpoint is not None:
            self.write_and_open(self.images, sequence.committed)
        if plan.partial is not None:
            self.write_and_open(self.blocks, sequence.blocks[-1])
        if plan.checkpoint is not None or plan.partial is not None:
            self.tables.note("CHECKPOINT_RELEASED", owner=sequence.number, row=row)
        if plan.checkpoint is not None:
            self.images.release(plan.checkpoint[0])
        if plan.partial is not None:
            self.blocks.release(plan.partial[0])
        self.tables.empty_limbo()
        if plan.limit > plan.resume_at and plan.source in ("checkpoint", "cold"):
            self.tables.note(
                "HIT_LIMITED", found=plan.limit, agreed=plan.resume_at, reason="GROUP_LIMITED"
            )
        return sequence

    def note_begun(self, sequence: Sequence) -> None:
        self.tables.note(
            "SEQUENCE_BEGUN",
            sequence=sequence.number,
            row=sequence.row,
            position=sequence.prompt_tokens,
            seed=sequence.seed,
            for_load=sequence.is_load,
        )

    def note_resumed(self, plan: Plan, sequence: Sequence, computed_before: int) -> None:
        sources = ["cold", "history", "checkpoint", "replay", "suspended"]
        is_there = plan.source == "suspended"
        self.tables.note(
            "REQUEST_RESUMED",
            sequence=sequence.number,
            resume_at=plan.resume_at,
            reused=plan.resume_at if is_there else len(plan.blocks) * self.sizes.block_tokens,
            loaded=0,
            prompt=len(plan.tokens),
            kept=min(computed_before, plan.resume_at),
            source=sources.index(plan.source),
        )

    def take_images(self, sequence: Sequence) -> None:
        """Reserve the private images of a sequence that begins."""
        self.tables.make_room(self.images, self.num_images)
        for _ in range(self.num_images):
            sequence.images.append(self.reserve_image(sequence, "PRIVATE"))
        if self.num_images:
            sequence.committed = sequence.front = sequence.images[0]

    def write_and_open(self, units: Units, number: int) -> None:
        """Something was copied into a unit: all its pages WRITING, then all OPEN."""
        self.tables.move_all(units, number, "PAGE_WRITING")
        self.tables.move_all(units, number, "PAGE_OPENED")

    def reserve_block(self, sequence: Sequence) -> int:
        block = self.tables.reserve(
            self.blocks,
            sequence.row,
            place=len(sequence.blocks),
            row=sequence.row,
            holder=sequence.number,
            role="HISTORY",
        )
        sequence.blocks.append(block)
        return block

    def reserve_image(self, sequence: Sequence, role: str, **fields: Any) -> int:
        return self.tables.reserve(
            self.images, sequence.row, row=sequence.row, holder=sequence.number, role=role, **fields
        )

    def lease(self, plan: Plan) -> Lease:
        if plan.pins_nothing or plan.load is not None:
            raise Misuse
        self.check_plan(plan)
        if not self.free_leases:
            raise NoRoom
        row = self.free_leases.pop(0)
        lease = Lease(self.next_number(row), row, [block for block, _ in plan.blocks])
        if plan.checkpoint is not None:
            lease.checkpoint = plan.checkpoint[0]
        if plan.partial is not None:
            lease.partial = plan.partial[0]
        self.leases[row] = lease
        self.pin_plan(plan, 0, row)
        return lease

    def release(self, lease: Lease) -> None:
        if self.leases.get(lease.row) is not lease:
            raise Misuse
        self.drop_lease(lease)
        self.tables.empty_limbo()

    def drop_lease(self, lease: Lease, reason: str = "NONE") -> None:
        self.release_blocks(lease.blocks)
        if lease.checkpoint:
            self.images.release(lease.checkpoint)
        if lease.partial:
            self.blocks.release(lease.partial)
        del self.leases[lease.row]
        self.free_leases.insert(0, lease.row)
        self.tables.note("LEASE_RELEASED", lease=lease.number, row=lease.row, reason=reason)

    def release_blocks(self, blocks: list[int]) -> None:
        """From the last to the first; after each duplicate also its canonical."""
        for block in reversed(blocks):
            unit = self.blocks[block]
            self.blocks.release(block)
            if unit.canonical:
                canonical, unit.canonical = unit.canonical, 0
                self.blocks.release(canonical)

    def quarantine(self, group: int, slot: int, reason: str = "CHECKSUM_MISMATCH") -> None:
        page = self.tables.pools[group].pages[slot]
        if page.state != "SEALED":
            raise Misuse
        units = self.side_of(group)
        self.tables.note("VALIDATION_FAILED", group=group, page=slot, unit=page.unit, reason=reason)
        number = page.unit
        units.withdraw(number)
        self.taint(units, number)
        self.tables.move(units, number, group, "PAGE_QUARANTINED", reason=reason)
        if units is self.blocks:
            twin = self.blocks.index.get(units[number].key)
            if twin is not None:
                self.blocks.withdraw(twin)
                self.taint(self.blocks, twin)
            self.withdraw_orphans()
        self.tables.empty_limbo()

    def withdraw_orphans(self) -> None:
        """Withdraw blocks that cannot be reached, and checkpoints under whose key no block is."""
        by_key = {self.blocks[number].key: number for number in self.blocks.index.values()}
        for number in sorted(by_key.values()):
            at: int | None = number
            while at is not None and self.blocks[at].parent_key:
                at = by_key.get(self.blocks[at].parent_key)
            if at is None:
                self.blocks.withdraw(number)
                self.tables.orphans += 1
        for key, image in sorted(self.images.index.items(), key=lambda found: found[1]):
            if key not in self.blocks.index:
                self.images.withdraw(image)

    def taint(self, units: Units, number: int) -> None:
        """Whoever holds a block that is bad, or began on a unit that is, is not to be trusted."""
        named = (number, units[number].generation)
        for sequence in self.sequences.values():
            if units is self.blocks:
                sequence.tainted |= number in sequence.blocks
                sequence.tainted |= sequence.partial_origin == named
            else:
                sequence.tainted |= sequence.origin == named

    def observe(self) -> dict[str, Any]:
        """What the logged tables hold."""
        return {
            **self.tables.observe(),
            "stored": self.stored.observe(),
            "sequences": {
                row: {
                    "id": s.number,
                    "draining": s.draining,
                    "tainted": s.tainted,
                    "origin": s.origin or (0, 0),
                    "partial origin": s.partial_origin or (0, 0),
                    "blocks": list(s.blocks),
                    "sealed": s.sealed,
                    "images": list(s.images),
                    "prompt": s.prompt_tokens,
                    "seed": s.seed.hex(),
                }
                for row, s in sorted(self.sequences.items())
            },
            "leases": {
                row: {
                    "id": held.number,
                    "blocks": list(held.blocks),
                    "checkpoint": held.checkpoint,
                    "partial": held.partial,
                }
                for row, held in sorted(self.leases.items())
            },
            "free sequence rows": list(self.free_sequences),
            "free lease rows": list(self.free_leases),
            "next holder": self.next_holder,
        }

    def observe_steps(self) -> dict[int, dict[str, Any]]:
        """What only the step table holds, of sequences that run."""
        return {
            row: {
                "position": s.position,
                "exact": s.exact,
                "written": s.written,
                "steps in flight": len(self.rows_in_flight(s)),
                "committed": s.committed,
                "front": s.front,
                "rolling": (s.rolling, s.rolling_position),
            }
            for row, s in sorted(self.sequences.items())
            if not s.draining
        }
