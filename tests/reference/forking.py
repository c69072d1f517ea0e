"""Sequences of the reference that begin where another was: resume and fork."""

from .endings import Endings
from .values import Misuse, NoRoom, Sequence, Stale, Suspended


class Forking(Endings):
    """The verbs that go on from a sequence suspended or running."""

    def resume(self, suspended: Suspended, tokens: tuple[int, ...]) -> Sequence:
        prompt = suspended.prompt
        if len(tokens) <= suspended.position or tokens[: len(prompt)] != prompt:
            raise Misuse
        plan = self.match(
            tokens, suspended.seed, suspended.extras, suspended.max_resume, suspended.position
        )
        return self.begin(plan, suspended.position)

    def fork(self, parent: Sequence) -> Sequence:
        self.check_settled(parent)
        size = self.sizes.block_tokens
        keys = [self.key_at(parent, (place + 1) * size) for place in range(parent.sealed)]
        if parent.tainted or any(key not in self.blocks.index for key in keys):
            raise Stale
        shared = [self.blocks.index[key] for key in keys]
        copies_block = parent.position % size > 0 and parent.sealed * size < parent.position
        room = self.blocks.room - sum(block in self.blocks.idle for block in shared)
        if not self.free_sequences or self.images.room < self.num_images:
            raise NoRoom
        if copies_block and room < 1:
            raise NoRoom
        row = self.free_sequences.pop(0)
        child = Sequence(
            number=self.next_number(row),
            row=row,
            seed=parent.seed,
            extras=parent.extras,
            max_resume=parent.max_resume,
            prompt_tokens=parent.prompt_tokens,
            tokens=list(parent.tokens),
            captures=(),
            branch=0,
            position=parent.position,
            exact=parent.exact,
            blocks=shared,
            sealed=len(shared),
            written=parent.written,
            origin=parent.origin,
            partial_origin=parent.partial_origin,
        )
        self.sequences[row] = child
        self.note_begun(child)
        if shared:
            for block in reversed(shared):
                self.blocks.pin(block)
            self.note_grant(shared, keys[-1], child.number, row)
        self.take_images(child)
        if copies_block:
            self.tables.make_room(self.blocks, 1)
            self.reserve_block(child)
        self.tables.note(
            "SEQUENCE_FORKED",
            sequence=child.number,
            row=row,
            position=child.position,
            parent_sequence=parent.number,
        )
        if parent.images and self.tables.state_of(self.images, parent.committed) == "OPEN":
            self.write_and_open(self.images, child.committed)
        if copies_block:
            self.write_and_open(self.blocks, child.blocks[-1])
        return child
