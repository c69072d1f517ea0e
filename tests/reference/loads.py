"""Loads of the reference: pages that lower tiers fill, and what is told of these."""

from collections.abc import Iterable

from .forking import Forking
from .units import Units
from .values import Load, Misuse, NoRoom, Plan, Sequence


class Loads(Forking):
    """The verbs that know of lower tiers."""

    def tell(self, kind: str, objects: Iterable[tuple[bytes, bool, int, int]]) -> None:
        """So many objects, each a key, whether a checkpoint, its tiers now and its position."""
        for key, is_checkpoint, tiers, position in objects:
            self.stored.tell(key, is_checkpoint, tiers, position)
            self.tables.note(
                kind, key=key, checkpoint=int(is_checkpoint), tiers=tiers, position=position
            )

    def read_tiers(self, tiers: int) -> None:
        """These tiers can be read from now on, and no others."""
        self.readable = tiers

    def load(self, plan: Plan) -> Load:
        if plan.load is None:
            raise Misuse
        self.check_plan(plan)
        wanted, image = plan.load, plan.load.checkpoint_at > 0
        pinned = sum(block in self.blocks.idle for block, _ in plan.blocks)
        if not self.free_sequences or self.blocks.room - pinned < wanted.num_blocks:
            raise NoRoom
        if image and self.images.room < 1:
            raise NoRoom
        row = self.free_sequences.pop(0)
        sequence = Sequence(
            number=self.next_number(row),
            row=row,
            seed=plan.seed,
            extras=plan.extras,
            max_resume=plan.max_resume,
            prompt_tokens=wanted.checkpoint_at,
            tokens=[],
            captures=(),
            branch=0,
            position=0,
            exact=0,
            blocks=[block for block, _ in plan.blocks],
            sealed=len(plan.blocks),
            is_load=True,
        )
        self.sequences[row] = sequence
        self.note_begun(sequence)
        if plan.blocks:
            self.pin_plan(plan, sequence.number, row)
        if image:
            self.tables.make_room(self.images, 1)
            sequence.image = self.reserve_image(sequence, "CHECKPOINT", place=wanted.checkpoint_at)
            self.tables.move_all(self.images, sequence.image, "PAGE_LOADING")
        for _ in range(wanted.num_blocks):
            self.tables.make_room(self.blocks, 1)
            self.tables.move_all(self.blocks, self.reserve_block(sequence), "PAGE_LOADING")
        first, size = wanted.first, self.sizes.block_tokens
        return Load(
            sequence,
            plan.keys[first : first + wanted.num_blocks],
            plan.keys[wanted.checkpoint_at // size - 1] if image else b"",
        )

    def drain_load(self, load: Load, reason: str) -> None:
        """Give a load up whose I/O has not ended."""
        self.check_load(load)
        sequence = load.sequence
        load.is_drained = True
        if sequence.image:
            self.tables.give_up(self.images, sequence.image, in_flight=True, reason=reason)
        for block in self.unsealed_blocks(sequence):
            self.tables.give_up(self.blocks, block, in_flight=True, reason=reason)

    def end_load(self, load: Load, num_good: int, image_is_good: bool, reason: str) -> None:
        """Its I/O has ended: seal what came whole, give up the rest."""
        self.check_load(load)
        sequence = load.sequence
        if load.is_drained and (num_good or image_is_good):
            raise Misuse
        if sequence.tainted:
            num_good, image_is_good = 0, False
        load.is_ended = True
        for key in load.keys[:num_good]:
            self.seal_next_block(sequence, key)
        image, sequence.image = sequence.image, 0
        if image and image_is_good:
            self.tables.seal_image(
                image, load.checkpoint_key, sequence.prompt_tokens, sequence, may_be_known=True
            )
        elif image:
            self.drop(load, self.images, image, reason)
        for block in self.unsealed_blocks(sequence):
            self.drop(load, self.blocks, block, reason)
            sequence.blocks.pop()
        self.tables.empty_limbo()

    def drop(self, load: Load, units: Units, number: int, reason: str) -> None:
        """Give up a unit that I/O touches no more."""
        if load.is_drained:
            self.tables.move_all(units, number, "PAGE_FREED", reason=reason)
            self.tables.forget(units, number)
        else:
            self.tables.give_up(units, number, in_flight=False, reason=reason)

    def release_load(self, load: Load) -> None:
        if not load.is_ended:
            raise Misuse
        self.finish_row(load.sequence, "FINISHED")
        self.tables.empty_limbo()

    def check_load(self, load: Load) -> None:
        if load.is_ended or self.sequences.get(load.sequence.row) is not load.sequence:
            raise Misuse

    def register(self, group: int) -> None:
        """A group is read in another form, and then again as before: nothing running is good."""
        for word in (1, 0):
            self.tables.note("ABI_REGISTERED", group=group, word=word)
            for sequence in self.sequences.values():
                sequence.tainted = True
