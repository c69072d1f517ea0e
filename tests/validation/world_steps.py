"""Steps of a batch: reserved, computed at once, committed in part or aborted."""

from collections.abc import Sequence as Items

import numpy as np

from kvstrata import ConfigError, Step

from .world_checks import Checked
from .world_parts import Draft, Run


class Stepping(Checked):
    """The engine's steps; up to three are in flight."""

    def reserve(self, chosen: Items[tuple[int, int, int]]) -> None:
        """A step of some sequences: (which, tokens, seed of what it would say)."""
        if not self.runs or len(self.steps) >= 3:
            return
        batch: dict[int, tuple[Run, list[int]]] = {}
        for number, size, seed in chosen:
            run = self.runs[number % len(self.runs)]
            batch[run.sequence.id] = run, self._draft(run, size, seed)
        ids = list(batch)
        sizes = [len(draft) for _, draft in batch.values()]
        step = self.cache.reserve(np.array(ids), np.array(sizes, dtype=np.int32))
        for number, (run, draft) in enumerate(batch.values()):
            if step.refused[number]:
                self.count(f"refused {step.refused[number]}")
                continue
            assert step.start[number] == len(run.reserved)
            run.drafts.append(Draft(step, draft))
            self._compute(run, step, number, draft)
        self.steps.append(step)

    def _draft(self, run: Run, size: int, seed: int) -> list[int]:
        start = len(run.reserved)
        ends = [end for end in run.sequence.captures if end > start]
        size = 1 + size % (3 * self.setting.block_tokens)
        if ends and seed % 4:
            size = min(size, ends[0] - start)
        known: list[int] = run.request.tokens[start : start + size].tolist()
        dice = np.random.default_rng(seed)
        return [*known, *map(int, dice.integers(0, 3, size - len(known)))]

    def _compute(self, run: Run, step: Step, number: int, draft: list[int]) -> None:
        """Write the step's rows at once, as an engine that runs ahead of its commits does."""
        hashes, start = run.hashes, int(step.start[number])
        positions = range(start, start + len(draft))
        for group in self.history:
            slots = self.cache.block_slots(run.sequence, group).tolist()
            for position in positions:
                if position >= run.sequence.protected:
                    slot = self.stamps.write_history(group, slots, hashes, position)
                    assert not slot or self.cache.writable(group, [slot], run.sequence)
        if not self.states:
            return
        read, write = step.image_slots(number)
        for group in self.states:
            assert self.cache.writable(group, [write[group]], run.sequence)
            if read[group] != write[group]:
                self.stamps.copy(group, read[group], write[group])
            for position in positions:
                self.stamps.write_state(group, write[group], hashes, position)

    def commit(self, accepted: Items[int]) -> None:
        """Commit the oldest step, each sequence's tokens kept in part."""
        if not self.steps:
            return
        step = self.steps[0]
        drafts = self._drafts_of(step)
        tokens = [token for found in drafts if found is not None for token in found[1].tokens]
        sizes = [0 if found is None else len(found[1].tokens) for found in drafts]
        given = [accepted[i % len(accepted)] % (size + 1) for i, size in enumerate(sizes)]
        if not any(accepted):
            given = sizes
        try:
            step.commit(np.array(given), np.array(tokens, dtype=np.int32))
        except ConfigError as error:
            if "rolled back" not in str(error):
                raise
            self.count("too much to roll back")
            step.commit(None, np.array(tokens, dtype=np.int32))
        self.steps.pop(0)
        for number, found in enumerate(drafts):
            if found is not None:
                self._committed(*found, int(step.accepted[number]))

    def _drafts_of(self, step: Step) -> list[tuple[Run, Draft] | None]:
        mine = {
            run.sequence.id: (run, draft)
            for run in self.everybody()
            for draft in run.drafts
            if draft.step is step
        }
        return [mine.get(identity) for identity in step.ids.tolist()]

    def _committed(self, run: Run, draft: Draft, kept: int) -> None:
        run.drafts.remove(draft)
        if run not in self.runs:
            assert kept == 0, "a cancelled sequence accepts nothing"
            return
        if draft.is_void:
            assert kept == 0, "a void step keeps nothing"
            return
        run.tokens += draft.tokens[:kept]
        if kept < len(draft.tokens):
            self.count("rolled back")
            for later in run.drafts:
                later.is_void = True

    def abort(self, number: int) -> None:
        if not self.steps:
            return
        number %= len(self.steps)
        self.steps[number].abort()
        gone = self.steps[number:]
        del self.steps[number:]
        for run in self.everybody():
            run.drafts = [draft for draft in run.drafts if draft.step not in gone]
