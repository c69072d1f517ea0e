"""How sequences of the reference end: finish, suspend, cancel, the crash of their incarnation."""

from .holders import Holders
from .units import Units
from .values import Misuse, Sequence, Suspended


class Endings(Holders):
    """The verbs after which a sequence is no more."""

    def finish(self, sequence: Sequence) -> None:
        self.check_settled(sequence)
        self.seal_rolling(sequence)
        self.give_up_unsealed(sequence, "FINISHED")
        self.finish_row(sequence, "FINISHED")
        self.tables.empty_limbo()

    def suspend(self, sequence: Sequence) -> Suspended:
        self.check_settled(sequence)
        if self.can_be_resumed(sequence):
            self.seal_what_is_open(sequence)
        self.give_up_unsealed(sequence, "SUSPENDED")
        self.finish_row(sequence, "SUSPENDED", "SEQUENCE_SUSPENDED")
        self.tables.empty_limbo()
        return Suspended(
            position=sequence.position,
            seed=sequence.seed,
            extras=sequence.extras,
            max_resume=sequence.max_resume,
            prompt=tuple(sequence.tokens[: sequence.prompt_tokens]),
        )

    def can_be_resumed(self, sequence: Sequence) -> bool:
        """Whether what the sequence holds is its state at its position, and good."""
        position = sequence.position
        return (
            position > 0
            and position >= sequence.exact
            and sequence.written - position <= self.sizes.rollback_tokens
            and not sequence.tainted
        )

    def seal_what_is_open(self, sequence: Sequence) -> None:
        """Seal the open block under its partial key, and the committed image as checkpoint."""
        key = self.key_at(sequence, sequence.position)
        if sequence.position % self.sizes.block_tokens:
            block = sequence.blocks[sequence.sealed]
            self.write_and_open(self.blocks, block)
            self.seal_next_block(sequence, key, partial=True)
        if self.has_state and key not in self.images.index:
            sequence.images.remove(sequence.committed)
            self.tables.seal_image(sequence.committed, key, sequence.position, sequence)

    def seal_next_block(self, sequence: Sequence, key: bytes, *, partial: bool = False) -> None:
        """Seal the first block not sealed, below the one before it or that one's canonical."""
        parent = 0
        if sequence.sealed > 0:
            before = sequence.blocks[sequence.sealed - 1]
            parent = self.blocks[before].canonical or before
        block = sequence.blocks[sequence.sealed]
        self.tables.seal_block(block, key, parent, tainted=sequence.tainted, partial=partial)
        sequence.sealed += 1

    def cancel(self, sequence: Sequence) -> None:
        self.check_running(sequence)
        if not self.rows_in_flight(sequence):
            self.give_up_unsealed(sequence, "CANCELLED")
            self.finish_row(sequence, "CANCELLED")
            self.tables.empty_limbo()
            return
        self.tables.note(
            "SEQUENCE_CANCELLED",
            sequence=sequence.number,
            row=sequence.row,
            position=sequence.sealed * self.sizes.block_tokens,
            reason="CANCELLED",
        )
        sequence.draining = True
        for units, number in self.unsealed_units(sequence):
            self.tables.give_up(units, number, in_flight=True, reason="CANCELLED")

    def check_running(self, sequence: Sequence) -> None:
        if self.sequences.get(sequence.row) is not sequence or sequence.draining:
            raise Misuse

    def check_settled(self, sequence: Sequence) -> None:
        self.check_running(sequence)
        if self.rows_in_flight(sequence):
            raise Misuse

    def seal_rolling(self, sequence: Sequence) -> None:
        if not sequence.rolling or sequence.tainted:
            return
        key = self.key_at(sequence, sequence.rolling_position)
        if key not in self.images.index:
            sequence.images.remove(sequence.rolling)
            self.tables.seal_image(sequence.rolling, key, sequence.rolling_position, sequence)

    def unsealed_blocks(self, sequence: Sequence) -> list[int]:
        """Blocks not complete, last first."""
        return list(reversed(sequence.blocks[sequence.sealed :]))

    def unsealed_units(self, sequence: Sequence) -> list[tuple[Units, int]]:
        """Blocks not complete, last first, then private images in order."""
        blocks = [(self.blocks, block) for block in self.unsealed_blocks(sequence)]
        return blocks + [(self.images, image) for image in sequence.images]

    def give_up_unsealed(self, sequence: Sequence, reason: str) -> None:
        for units, number in self.unsealed_units(sequence):
            self.tables.give_up(units, number, in_flight=False, reason=reason)

    def finish_row(self, sequence: Sequence, reason: str, kind: str = "SEQUENCE_FINISHED") -> None:
        """Its blocks are released and its row is given back."""
        self.release_blocks(sequence.blocks[: sequence.sealed])
        del self.sequences[sequence.row]
        self.free_sequences.insert(0, sequence.row)
        self.tables.note(
            kind,
            sequence=sequence.number,
            row=sequence.row,
            position=sequence.sealed * self.sizes.block_tokens,
            reason=reason,
        )

    def end_drained(self) -> None:
        """Cancelled sequences whose last step has ended, the oldest first, leave nothing."""
        for sequence in sorted(self.sequences.values(), key=lambda one: one.number):
            if not sequence.draining or self.rows_in_flight(sequence):
                continue
            for units, number in self.unsealed_units(sequence):
                self.tables.move_all(units, number, "PAGE_FREED", reason="CANCELLED")
                self.tables.forget(units, number)
            self.finish_row(sequence, "CANCELLED")
            self.tables.empty_limbo()

    def crash(self, bytes_trusted: bool) -> None:
        """What the next incarnation does before it serves."""
        self.steps.clear()
        self.tables.note("RECOVERY_BEGUN", bytes_trusted=bytes_trusted)
        for _, sequence in sorted(self.sequences.items()):
            for block in self.unsealed_blocks(sequence):
                self.lose(self.blocks, block, "CRASHED")
            for image in [sequence.image] if sequence.image else sorted(sequence.images):
                self.lose(self.images, image, "CRASHED")
            self.finish_row(sequence, "CRASHED")
        for _, lease in sorted(self.leases.items()):
            self.drop_lease(lease, "CRASHED")
        self.tables.empty_limbo()
        if not bytes_trusted:
            for units in (self.blocks, self.images):
                for number in sorted(units.index.values()):
                    self.lose_indexed(units, number)
        self.tables.note("RECOVERY_ENDED")

    def lose(self, units: Units, number: int, reason: str) -> None:
        self.tables.move_all(units, number, "PAGE_LOST", reason=reason)
        self.tables.forget(units, number)

    def lose_indexed(self, units: Units, number: int) -> None:
        units.idle.remove(number)
        del units.index[units[number].key]
        self.lose(units, number, "BYTES_UNTRUSTED")
