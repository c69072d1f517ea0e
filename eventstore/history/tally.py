"""The tally: exact counts of all events, a fold over the log, a batch at a time."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import ArenaParams
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import (
    EVENT_WORDS,
    PAGE_EVENTS_END,
    EventType,
    Reason,
)
from kvstrata.core.layout import CacheLayout

from .counting import BLOCK_UNITS, IMAGE_UNITS, OTHERS, count_events
from .histogram import (
    AGE_BOUNDS_SECONDS,
    LENGTH_BOUNDS_TOKENS,
    RECOVERY_BOUNDS_SECONDS,
    WAIT_BOUNDS_SECONDS,
    Histogram,
)
from .totals import TOTALS, NumericSample
from .transfers import Transfers
from .uses import Uses

__all__ = ["TOTALS", "NumericSample", "Tally"]

Words = npt.NDArray[np.int64]

NUM_TYPES: Final = 64
NUM_REASONS: Final = 256
MOST_TIERS: Final = 9
"""The device and eight below it."""
_LOW: Final = 0xFFFF_FFFF
_OF_GROUPS: Final = (
    *range(PAGE_EVENTS_END),
    int(EventType.VALIDATION_FAILED),
    int(EventType.ABI_REGISTERED),
    int(EventType.KERNEL_REGISTERED),
    int(EventType.MAPPING_REGISTERED),
    int(EventType.NUMERIC_DRIFT),
)
_TIER_FAULTS: Final = range(int(Reason.OBJECT_MISSING), int(Reason.TIER_DOWN) + 1)


class Tally:
    """Counts events; exact, and the same however they are cut into batches.

    Args:
        layout: the layout.
        params: sizes of the tables.

    Attributes:
        seqno: of the last event counted.
        since_seqno: of the first event counted, 0 before any.
        counts: int64[64, groups + 1, 256], events by type, group and reason; the last group is of
            events about none.
        totals: named sums, see :data:`TOTALS`.
        histograms: ``resume_length`` and ``hit_length`` in tokens; ``eviction_age`` (blocks),
            ``checkpoint_eviction_age``, ``reuse_gap``, ``admission_wait``, ``load``, ``spill`` and
            ``recovery`` in seconds.
        tier_failures: int64[9, 256], failures by tier (0 where none is named) and reason.
        numeric: by group and layer.
        in_flight: as of the last event: ``loads``, ``load_bytes``, ``spills``,
            ``waiting`` (requests that admission holds up).
    """

    def __init__(self, layout: CacheLayout, params: ArenaParams) -> None:
        num_groups = len(layout.groups)
        self.seqno = 0
        self.since_seqno = 0
        shape = NUM_TYPES, num_groups + 1, NUM_REASONS
        self.counts: Words = np.zeros(shape, dtype=np.int64)
        self.totals: dict[str, int] = dict.fromkeys(TOTALS, 0)
        self.histograms: dict[str, Histogram] = {
            "resume_length": Histogram(LENGTH_BOUNDS_TOKENS),
            "hit_length": Histogram(LENGTH_BOUNDS_TOKENS),
            "eviction_age": Histogram(AGE_BOUNDS_SECONDS, 1e-9),
            "checkpoint_eviction_age": Histogram(AGE_BOUNDS_SECONDS, 1e-9),
            "reuse_gap": Histogram(AGE_BOUNDS_SECONDS, 1e-9),
            "admission_wait": Histogram(WAIT_BOUNDS_SECONDS, 1e-6),
            "load": Histogram(WAIT_BOUNDS_SECONDS, 1e-6),
            "spill": Histogram(WAIT_BOUNDS_SECONDS, 1e-6),
            "recovery": Histogram(RECOVERY_BOUNDS_SECONDS, 1e-9),
        }
        self.tier_failures: Words = np.zeros((MOST_TIERS, NUM_REASONS), dtype=np.int64)
        self.numeric: dict[tuple[int, int], NumericSample] = {}
        self._transfers = Transfers()
        self._recovery_began_ns = -1
        self._is_running = False
        self._uses = Uses(params.num_blocks(layout)), Uses(params.num_images(layout))
        first_image = len(layout.history_groups) if layout.state_groups else -1
        self._first_groups: Words = np.array([0, first_image], dtype=np.int64)
        self._has_group = _flags_of(_OF_GROUPS)

    @property
    def in_flight(self) -> dict[str, int]:
        """See the class."""
        return self._transfers.in_flight()

    def begin_at(self, seqno: int) -> None:
        """The first event that can be counted next; nothing before it will come any more."""
        if not self.since_seqno:
            self.since_seqno = seqno
        self.seqno = max(self.seqno, seqno - 1)

    def add(self, events: npt.NDArray[np.void]) -> None:
        """Count the next events.

        Args:
            events: EVENT_DTYPE[n], those that follow :attr:`seqno`.

        Raises:
            ConfigError: they do not follow.
        """
        if not len(events):
            return
        words: Words = events.view(np.int64).reshape(-1, EVENT_WORDS)
        if int(words[0, 0]) != self.seqno + 1 and self.since_seqno:
            raise ConfigError(
                f"expected events from {self.seqno + 1} on, found event {int(words[0, 0])}; "
                "count every event once, in order"
            )
        found: Words = np.empty((3, len(words)), dtype=np.int64)
        sizes: Words = np.zeros(3, dtype=np.int64)
        tables = self.counts, self._has_group, _IS_OTHER, self._first_groups
        count_events(words, *tables, found, sizes)
        others = words[found[OTHERS, : sizes[OTHERS]]]
        kinds = others[:, 2] & 0xFF
        for kind in np.unique(kinds).tolist():
            fold = _FOLDS.get(kind)
            if fold is not None:
                fold(self, others[kinds == kind])
        self._in_order(others[np.isin(kinds, _IN_ORDER)])
        ages, gaps, evicted = self._uses[0].add(words, found[BLOCK_UNITS, : sizes[BLOCK_UNITS]])
        self.totals["evicted_blocks"] += evicted
        self.histograms["eviction_age"].observe(ages)
        self.histograms["reuse_gap"].observe(gaps)
        ages, _, evicted = self._uses[1].add(words, found[IMAGE_UNITS, : sizes[IMAGE_UNITS]])
        self.totals["evicted_checkpoints"] += evicted
        self.histograms["checkpoint_eviction_age"].observe(ages)
        self.since_seqno = self.since_seqno or int(words[0, 0])
        self.seqno = int(words[-1, 0])

    def _add(self, **sums: Any) -> None:
        for name, value in sums.items():
            self.totals[name] += int(value)

    def _resumed(self, rows: Words) -> None:
        resume, reused = rows[:, 5] & _LOW, rows[:, 5] >> 32
        loaded, prompt = rows[:, 6] & _LOW, rows[:, 6] >> 32
        kept = rows[:, 7] & _LOW
        found = resume - kept
        device = found - loaded
        self._add(
            requests=len(rows),
            hits=np.count_nonzero(found),
            prompt_tokens=prompt.sum(),
            device_tokens=device.sum(),
            tier_tokens=loaded.sum(),
            suspended_tokens=kept.sum(),
            computed_tokens=(prompt - resume).sum(),
            device_query_tokens=(prompt - kept).sum(),
            tier_query_tokens=(prompt - kept - device).sum(),
            recomputed_tokens=np.maximum(reused - resume, 0).sum(),
        )
        self.histograms["resume_length"].observe(resume)
        self.histograms["hit_length"].observe(found)

    def _limited(self, rows: Words) -> None:
        self._add(limited_tokens=np.maximum(rows[:, 4] - rows[:, 5], 0).sum())

    def _loaded(self, rows: Words) -> None:
        objects, num_bytes, micros = rows[:, 5].sum(), rows[:, 6].sum(), rows[:, 7]
        self._add(
            loads=len(rows), load_objects=objects, load_bytes=num_bytes, load_micros=micros.sum()
        )
        self.histograms["load"].observe(micros)
        self._tier_failed(rows)

    def _spilled(self, rows: Words) -> None:
        objects, num_bytes, micros = rows[:, 5].sum(), rows[:, 6].sum(), rows[:, 7]
        self._add(
            spills=len(rows), spill_objects=objects, spill_bytes=num_bytes,
            spill_micros=micros.sum(),
        )  # fmt: skip
        self.histograms["spill"].observe(micros)
        self._tier_failed(rows)

    def _tier_failed(self, rows: Words) -> None:
        tiers, reasons = (rows[:, 2] >> 24) & 0xFF, (rows[:, 2] >> 32) & 0xFF
        failed = (reasons >= _TIER_FAULTS.start) & (reasons < _TIER_FAULTS.stop)
        np.add.at(
            self.tier_failures,
            (np.minimum(tiers[failed], MOST_TIERS - 1), reasons[failed]),
            1,
        )

    def _object_failed(self, rows: Words) -> None:
        tiers, reasons = (rows[:, 2] >> 24) & 0xFF, (rows[:, 2] >> 32) & 0xFF
        np.add.at(self.tier_failures, (np.minimum(tiers, MOST_TIERS - 1), reasons), 1)

    def _granted(self, rows: Words) -> None:
        self.histograms["admission_wait"].observe(rows[:, 7])

    def _scrubbed(self, rows: Words) -> None:
        pages, num_bytes, bad = rows[:, 4:7].sum(axis=0).tolist()
        self._add(scrubbed_pages=pages, scrubbed_bytes=num_bytes, scrub_bad_pages=bad)

    def _recovered(self, rows: Words) -> None:
        kept, lost, replayed, micros = rows[:, 4:8].sum(axis=0).tolist()
        self._add(kept_pages=kept, lost_pages=lost, replayed_events=replayed, replay_micros=micros)

    def _compared(self, rows: Words) -> None:
        for row in rows:
            drifted = (int(row[2]) >> 32) & 0xFF == int(Reason.DRIFTED)
            place = (int(row[2]) >> 8) & 0xFF, int(row[6]) & _LOW
            sample = self.numeric.setdefault(place, NumericSample())
            sample.samples += 1
            sample.drifted += drifted
            sample.max_abs, sample.cosine = row[4:6].view(np.float64).tolist()
            sample.tolerance = float(row[7:8].view(np.float64)[0])
            self._add(numeric_samples=1, numeric_drifts=drifted)

    def _in_order(self, rows: Words) -> None:
        """What depends on the events before it: lives of engines, transfers in flight."""
        for row in rows.tolist():
            kind = row[2] & 0xFF
            if kind == _MANAGER_OPENED:
                self._add(starts=1, crashes=self._is_running)
                self._is_running = True
                self._transfers.reset()
            elif kind == _MANAGER_CLOSED:
                self._is_running = False
            elif kind == _RECOVERY_BEGUN:
                self._recovery_began_ns = row[1]
            elif kind == _RECOVERY_ENDED:
                took_ns = row[1] - self._recovery_began_ns
                if self._recovery_began_ns >= 0 and took_ns >= 0:
                    self.histograms["recovery"].observe(np.array([took_ns], dtype=np.int64))
                self._recovery_began_ns = -1
            else:
                self._transfers.add(kind, row)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """All of it, as JSON values and arrays."""
        fields = {
            "seqno": self.seqno,
            "since_seqno": self.since_seqno,
            "totals": self.totals,
            "histograms": {name: one.to_json() for name, one in self.histograms.items()},
            "numeric": [[*place, vars(one)] for place, one in self.numeric.items()],
            "transfers": self._transfers.to_json(),
            "recovery_began_ns": self._recovery_began_ns,
            "is_running": self._is_running,
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "counts": self.counts, "tier_failures": self.tier_failures,
        }  # fmt: skip
        for side, uses in enumerate(self._uses):
            arrays |= {f"uses_{side}_{name}": one for name, one in uses.arrays().items()}
        return fields, arrays

    def restore(self, fields: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take up what :meth:`state` gave.

        Raises:
            ValueError, KeyError, TypeError: it is of another layout or version.
        """
        counts, failures = arrays["counts"], arrays["tier_failures"]
        if counts.shape != self.counts.shape or failures.shape != self.tier_failures.shape:
            raise ValueError(f"expected counts of {self.counts.shape}, found {counts.shape}")
        for side, uses in enumerate(self._uses):
            names = ("key_of", "used_ns", "places")
            uses.restore({name: arrays[f"uses_{side}_{name}"] for name in names})
        for name, histogram in self.histograms.items():
            histogram.restore(fields["histograms"][name])
        self.counts[:], self.tier_failures[:] = counts, failures
        self.totals.update({name: int(fields["totals"][name]) for name in TOTALS})
        self.numeric = {
            (int(group), int(layer)): NumericSample(**one)
            for group, layer, one in fields["numeric"]
        }
        self._transfers.restore(fields["transfers"])
        self._recovery_began_ns = int(fields["recovery_began_ns"])
        self._is_running = bool(fields["is_running"])
        self.seqno, self.since_seqno = int(fields["seqno"]), int(fields["since_seqno"])


_MANAGER_OPENED: Final = int(EventType.MANAGER_OPENED)
_MANAGER_CLOSED: Final = int(EventType.MANAGER_CLOSED)
_RECOVERY_BEGUN: Final = int(EventType.RECOVERY_BEGUN)
_RECOVERY_ENDED: Final = int(EventType.RECOVERY_ENDED)
_IN_ORDER: Final = (
    _MANAGER_OPENED,
    _MANAGER_CLOSED,
    _RECOVERY_BEGUN,
    _RECOVERY_ENDED,
    *Transfers.KINDS,
)


_FOLDS: Final = {
    int(EventType.REQUEST_RESUMED): Tally._resumed,
    int(EventType.HIT_LIMITED): Tally._limited,
    int(EventType.LOAD_ENDED): Tally._loaded,
    int(EventType.SPILL_ENDED): Tally._spilled,
    int(EventType.OBJECT_FAILED): Tally._object_failed,
    int(EventType.ADMISSION_GRANTED): Tally._granted,
    int(EventType.SCRUBBED): Tally._scrubbed,
    int(EventType.RECOVERY_ENDED): Tally._recovered,
    int(EventType.NUMERIC_DRIFT): Tally._compared,
}


def _flags_of(kinds: Iterable[int]) -> Words:
    """int64[256], 1 for these types."""
    flags: Words = np.zeros(256, dtype=np.int64)
    flags[list(kinds)] = 1
    return flags


_IS_OTHER: Final = _flags_of([*_FOLDS, *_IN_ORDER])
