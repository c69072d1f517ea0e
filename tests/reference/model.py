"""The reference cache: sequences that run, on top of what pins and releases prefixes."""

from collections.abc import Sequence as Values
from dataclasses import dataclass, field

from .loads import Loads
from .values import Misuse, Row, Sequence, Step


@dataclass
class Ended:
    """What one sequence's row of a committed step did."""

    sequence: Sequence
    before: int
    """Its position before."""
    reach: int
    """How far its written image is, tokens not accepted and steps in flight included."""
    captured: list[tuple[int, int]] = field(default_factory=list)
    """Images reserved for checkpoints, and their positions."""


class ReferenceCache(Loads):
    """Every verb of the rules. ``observe`` gives all that must be equal elsewhere."""

    # reserve

    def reserve(self, wanted: Values[tuple[Sequence, int]]) -> Step:
        if len({id(sequence) for sequence, _ in wanted}) < len(wanted):
            raise Misuse
        if any(tokens < 1 for _, tokens in wanted):
            raise Misuse
        for sequence, _ in wanted:
            self.check_running(sequence)
        room = self.blocks.room
        step = Step([], [])
        new_blocks: list[int] = []
        for sequence, tokens in wanted:
            start = self.reserved_position(sequence)
            needed = max(0, -(-(start + tokens) // self.sizes.block_tokens) - len(sequence.blocks))
            refused = self.refusal(sequence, start, tokens, needed, room)
            step.refused.append(refused)
            if refused:
                step.rows.append(None)
                continue
            room -= needed
            new_blocks.append(needed)
            switches = self.has_state and not self.fits_in_place(sequence, tokens)
            step.rows.append(Row(sequence, start, tokens, switches))
        rows = [row for row in step.rows if row]
        self.tables.make_room(self.blocks, sum(new_blocks))
        for row, needed in zip(rows, new_blocks, strict=True):
            self.start_writing(row, needed)
        self.steps.append(step)
        return step

    def reserved_position(self, sequence: Sequence) -> int:
        rows = self.rows_in_flight(sequence)
        return sequence.position + sum(row.num_tokens for row in rows if not row.is_void)

    def refusal(self, sequence: Sequence, start: int, tokens: int, needed: int, room: int) -> str:
        if start + tokens > self.sizes.max_blocks_per_sequence * self.sizes.block_tokens:
            return "LONG"
        if self.has_state and not self.fits_in_place(sequence, tokens):
            if self.rows_in_flight(sequence):
                return "BUSY"
            if self.image_to_switch_to(sequence) == 0:
                return "BUSY"
        return "PAGES" if needed > room else ""

    def in_place_tokens(self, sequence: Sequence) -> int:
        """Tokens in flight that were written in place."""
        rows = self.rows_in_flight(sequence)
        return sum(row.num_tokens for row in rows if not row.switched and not row.is_void)

    def fits_in_place(self, sequence: Sequence, tokens: int) -> bool:
        return self.in_place_tokens(sequence) + tokens <= self.sizes.rollback_tokens

    def image_to_switch_to(self, sequence: Sequence) -> int:
        for image in sequence.images:
            if image not in (sequence.committed, sequence.rolling):
                return image
        return sequence.rolling

    def start_writing(self, row: Row, needed: int) -> None:
        sequence = row.sequence
        for _ in range(needed):
            self.tables.move_all(self.blocks, self.reserve_block(sequence), "PAGE_WRITING")
        if row.switched:
            sequence.written_before = sequence.written
            sequence.written = row.start + row.num_tokens
            sequence.front = self.image_to_switch_to(sequence)
            if sequence.front == sequence.rolling:
                sequence.rolling = sequence.rolling_position = 0
        else:
            sequence.written = max(sequence.written, row.start + row.num_tokens)
        if self.has_state and self.tables.state_of(self.images, sequence.front) == "RESERVED":
            self.tables.move_all(self.images, sequence.front, "PAGE_WRITING")

    # commit

    def commit(
        self, step: Step, accepted: Values[int] | None, tokens: Values[Values[int]] | None
    ) -> None:
        """Commit the oldest step; for each sequence asked for, how many tokens and which.

        No ``accepted`` means all, no ``tokens`` that all of them are the prompts'.
        """
        if not self.steps or self.steps[0] is not step:
            raise Misuse
        counts = accepted or [row.num_tokens if row else 0 for row in step.rows]
        for row, count in zip(step.rows, counts, strict=True):
            if row and not self.is_nothing(row):
                least = self.least_accepted(row) if row.switched else 0
                if count != 0 and not max(0, least) <= count <= row.num_tokens:
                    raise Misuse
                if tokens is None and row.start + count > row.sequence.prompt_tokens:
                    raise Misuse
        self.steps.pop(0)
        ended = []
        for number, (row, count) in enumerate(zip(step.rows, counts, strict=True)):
            if row and not row.sequence.draining:
                written = row.sequence.written
                ended.append(Ended(row.sequence, row.sequence.position, written))
                if not row.is_void:
                    self.accept(row, count, tokens[number] if tokens else [])
        taken: set[bytes] = set()
        for one in ended:
            self.capture(one, taken)
        for one in ended:
            self.seal_blocks(one.sequence)
            for image, position in one.captured:
                key = self.key_at(one.sequence, position)
                self.tables.seal_image(image, key, position, one.sequence)
            self.keep_rolling(one)
            self.open_pages(one.sequence)
        self.end_drained()

    def is_nothing(self, row: Row) -> bool:
        """Whether a row commits as nothing, whatever is accepted of it."""
        return row.is_void or row.sequence.draining

    def accept(self, row: Row, count: int, written: Values[int]) -> None:
        """Move the position, and the committed image where the step switched."""
        sequence = row.sequence
        if count < row.num_tokens:
            for later in self.rows_in_flight(sequence):
                later.is_void = True
        output = max(0, sequence.position + count - len(sequence.tokens))
        sequence.tokens += written[count - output : count]
        sequence.position += count
        if row.switched:
            if count:
                sequence.committed = sequence.front
            else:
                self.fall_back(sequence)

    def fall_back(self, sequence: Sequence) -> None:
        """The committed image is the front again."""
        sequence.front = sequence.committed
        sequence.written = sequence.written_before

    def least_accepted(self, row: Row) -> int:
        """A switched image can be rolled back to R tokens below what was ever written of it."""
        return row.sequence.written - self.sizes.rollback_tokens - row.start

    def can_copy(self, ended: Ended, position: int) -> bool:
        """Whether the written image holds the state at a position behind its end, and is good."""
        return (
            self.has_state
            and ended.reach - position <= self.sizes.rollback_tokens
            and position >= ended.sequence.exact
            and not ended.sequence.tainted
        )

    def why_wanted(self, sequence: Sequence, position: int) -> str:
        """What asks for a checkpoint at a block boundary; nothing may."""
        if position in sequence.captures:
            return "branch" if position == sequence.branch else "prompt"
        return "every" if self.is_one_of_every(position) else ""

    def is_one_of_every(self, position: int) -> bool:
        every = self.sizes.checkpoint_every
        return every > 0 and position % every == 0

    def capture(self, ended: Ended, taken: set[bytes]) -> None:
        """Reserve an image for each checkpoint that is wanted and that the step passed."""
        sequence, size = ended.sequence, self.sizes.block_tokens
        first = ended.before // size * size + size
        for position in range(first, sequence.position + 1, size):
            why = self.why_wanted(sequence, position)
            if not why or not self.can_copy(ended, position):
                continue
            key = self.key_at(sequence, position)
            if key in self.images.index or key in taken or self.images.room == 0:
                continue
            self.tables.make_room(self.images, 1)
            image = self.reserve_image(sequence, "CHECKPOINT", why=why)
            self.tables.move_all(self.images, image, "PAGE_WRITING")
            ended.captured.append((image, position))
            taken.add(key)

    def seal_blocks(self, sequence: Sequence) -> None:
        size = self.sizes.block_tokens
        while (sequence.sealed + 1) * size <= sequence.position:
            self.seal_next_block(sequence, self.key_at(sequence, (sequence.sealed + 1) * size))

    def keep_rolling(self, ended: Ended) -> None:
        """Keep the state at the last whole block of the output in a spare private image."""
        sequence, size = ended.sequence, self.sizes.block_tokens
        position = sequence.position // size * size
        prompt_end = sequence.prompt_tokens // size * size
        if position <= max(ended.before, prompt_end) or self.is_one_of_every(position):
            return
        if not self.can_copy(ended, position):
            return
        spare = [i for i in sequence.images if i not in (sequence.committed, sequence.front)]
        if not spare:
            return
        sequence.rolling, sequence.rolling_position = spare[0], position
        if self.tables.state_of(self.images, spare[0]) == "RESERVED":
            self.write_and_open(self.images, spare[0])

    def open_pages(self, sequence: Sequence) -> None:
        """With nothing in flight, pages that are still WRITING become OPEN."""
        if self.rows_in_flight(sequence):
            return
        for block in sequence.blocks[sequence.sealed :]:
            if self.tables.state_of(self.blocks, block) == "WRITING":
                self.tables.move_all(self.blocks, block, "PAGE_OPENED")
        for image in sequence.images:
            if self.tables.state_of(self.images, image) == "WRITING":
                self.tables.move_all(self.images, image, "PAGE_OPENED")

    # abort

    def abort(self, step: Step) -> None:
        """Abort a step and all later ones, latest first."""
        if step not in self.steps:
            raise Misuse
        while step in self.steps:
            for row in self.steps.pop().rows:
                if row is None:
                    continue
                sequence = row.sequence
                if row.switched:
                    self.fall_back(sequence)
                if not sequence.draining:
                    self.open_pages(sequence)
        self.end_drained()
