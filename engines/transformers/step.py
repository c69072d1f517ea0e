"""Where a step reads and writes in each group, derived from its position and size alone."""

from __future__ import annotations

from dataclasses import dataclass

from kvstrata import CacheManager, GroupSpec, Kind, Sequence, Step

from .pages import EntryRange, RingRange

__all__ = ["EntrySpan", "StepSpan", "TailSpan", "WindowSpan"]


@dataclass(frozen=True)
class WindowSpan:
    """The rows of a sliding window that a step still sees, and those it writes."""

    past: RingRange
    written: RingRange


@dataclass(frozen=True)
class EntrySpan:
    """The entries of the whole history after a step, those it computes, and those it writes.

    Where a window is replayed, what it computes is here already and is not written.
    """

    all: EntryRange
    computed: EntryRange
    written: EntryRange


@dataclass(frozen=True)
class TailSpan:
    """The rows of a compressor's open window, and of the windows that a step closes.

    Args:
        open: rows of the window that is open before the step.
        written: rows of the step.
        prior: the row of the window closed last before the step, or none.
        closed: the rows of the windows it closes; with `prior` only where windows overlap.
    """

    open: RingRange
    written: RingRange
    prior: RingRange | None
    closed: RingRange | None


class StepSpan:
    """The rows of one step of one sequence, by group.

    Args:
        manager: owns the pages.
        sequence: the sequence.
        step: its step, reserved and neither committed nor aborted.
        row: the sequence's row in the step.
    """

    def __init__(self, manager: CacheManager, sequence: Sequence, step: Step, row: int = 0) -> None:
        self.start = int(step.start[row])
        self.num_tokens = int(step.num_tokens[row])
        self.end = self.start + self.num_tokens
        self.sequence = sequence
        self.origin = sequence.origin
        self.read_slots, self.write_slots = step.image_slots(row)
        self.windows: dict[str, WindowSpan] = {}
        self.entries: dict[str, EntrySpan] = {}
        self.tails: dict[str, TailSpan] = {}
        for group in manager.layout.groups:
            if group.is_history:
                slots = manager.block_slots(sequence, group.name)
                before, after = self.start // group.ratio, self.end // group.ratio
                shared = min(sequence.protected // group.ratio, after)
                self.entries[group.name] = EntrySpan(
                    all=EntryRange(slots, group.rows, 0, after),
                    computed=EntryRange(slots, group.rows, before, after),
                    written=EntryRange(slots, group.rows, max(before, shared), after),
                )
            elif group.kind is Kind.SWA:
                first = max(self.origin, self.start - group.window + 1)
                self.windows[group.name] = WindowSpan(
                    past=RingRange(self.read_slots[group.name], first, self.start),
                    written=self._written(group, "kv", self.start, self.end),
                )
            else:
                self.tails[group.name] = self._tail_span(group)

    def _tail_span(self, group: GroupSpec) -> TailSpan:
        before, after = self.start // group.ratio, self.end // group.ratio
        read_slot = self.read_slots[group.name]
        prior, closed = None, None
        if group.overlap:
            first = min(max(self.origin // group.ratio, before - 1), before)
            prior = RingRange(read_slot, first, before)
            closed = self._written(group, "overlap_kv", before, after)
        return TailSpan(
            open=RingRange(read_slot, before * group.ratio, self.start),
            written=self._written(group, "kv", self.start, self.end),
            prior=prior,
            closed=closed,
        )

    def _written(self, group: GroupSpec, component: str, first: int, last: int) -> RingRange:
        """Address what the ring can hold of [first, last): the last of it."""
        oldest = last - group.component(component).rows
        return RingRange(self.write_slots[group.name], max(first, oldest), last)
