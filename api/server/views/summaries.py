"""Counts over all of a follower's tables and its tally."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvstrata.core.arena import Tables
from kvstrata.core.checks import layer_of
from kvstrata.core.events import EventType, Reason
from kvstrata.core.layout import CacheLayout
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    CHECKPOINT_TIERS,
    POOL_COUNTS,
    POOL_SLOTS,
    STORED_KEY_0,
    STORED_KEY_1,
    STORED_POSITION,
    STORED_TIERS,
)
from kvstrata.eventstore.history.histogram import Histogram
from kvstrata.eventstore.history.tally import Tally

from .pages import bit_names, reader_of, tier_bits
from .words import hex_key

__all__ = [
    "admission",
    "failures",
    "histogram",
    "numeric_drift",
    "pools",
    "stored_objects",
    "tiers",
]


def pools(tables: Tables, layout: CacheLayout) -> list[dict[str, Any]]:
    """Every pool with its pages by state."""
    found = []
    for number, group in enumerate(layout.groups):
        pool = tables.pools[number]
        slots = int(pool[POOL_SLOTS])
        counts = pool[POOL_COUNTS : POOL_COUNTS + len(PageState)].tolist()
        found.append(
            {
                "group": group.name,
                "kind": group.kind.name,
                "num_pages": slots - 1,
                "page_bytes": group.page_bytes,
                "pool_bytes": slots * group.page_bytes,
                "pages": {state.name: counts[state] for state in PageState},
                "reader": reader_of(pool),
            }
        )
    return found


def failures(tally: Tally, layout: CacheLayout) -> list[dict[str, Any]]:
    """Validation failures by layer, reason and group."""
    counts = tally.counts[EventType.VALIDATION_FAILED]
    found = []
    for group, reason in np.argwhere(counts).tolist():
        found.append(
            {
                "layer": _layer(reason),
                "reason": _reason_name(reason),
                "group": layout.groups[group].name if group < len(layout.groups) else None,
                "count": int(counts[group, reason]),
            }
        )
    return found


def _layer(reason: int) -> int:
    """The layer of validation that a reason belongs to; 0, the bytes, where an operator said so."""
    try:
        return layer_of(reason)
    except (KeyError, ValueError):
        return 0


def admission(tally: Tally) -> dict[str, Any]:
    """Decisions of the admission cap, and how long requests waited."""
    by_reason = {
        name: _by_reason(tally, kind)
        for name, kind in (
            ("deferred", EventType.ADMISSION_DEFERRED),
            ("denied", EventType.ADMISSION_DENIED),
        )
    }
    return {
        "num_requests": tally.totals["requests"],
        "num_granted_after_waiting": int(tally.counts[EventType.ADMISSION_GRANTED].sum()),
        "num_waiting": tally.in_flight.get("waiting", 0),
        **by_reason,
        "wait_s": histogram(tally.histograms["admission_wait"]),
    }


def _by_reason(tally: Tally, kind: EventType) -> list[dict[str, Any]]:
    counts = tally.counts[kind].sum(axis=0)
    return [
        {
            "reason": _reason_name(reason),
            "count": int(counts[reason]),
        }
        for reason in np.flatnonzero(counts).tolist()
    ]


def _reason_name(reason: int) -> str:
    """Its name; the number where a newer engine wrote one that has none here."""
    return Reason(reason).name if reason in tuple(Reason) else str(reason)


def histogram(found: Histogram) -> dict[str, Any]:
    """A histogram: observations up to each bound, and of all."""
    cumulative = np.cumsum(found.counts).tolist()
    return {
        "count": found.count,
        "sum": found.sum,
        "buckets": [
            {"up_to": bound, "count": count}
            for bound, count in zip(found.bounds, cumulative, strict=False)
        ],
    }


def numeric_drift(tally: Tally, layout: CacheLayout) -> list[dict[str, Any]]:
    """What comparisons with values computed again said, by group and layer."""
    return [
        {
            "group": layout.groups[group].name if group < len(layout.groups) else str(group),
            "kind": layout.groups[group].kind.name if group < len(layout.groups) else "",
            "layer": layer,
            "num_samples": sample.samples,
            "num_drifted": sample.drifted,
            "max_abs": sample.max_abs,
            "cosine": sample.cosine,
            "tolerance": sample.tolerance,
        }
        for (group, layer), sample in sorted(tally.numeric.items())
    ]


def tiers(tables: Tables, tally: Tally, tier_names: tuple[str, ...]) -> dict[str, Any]:
    """What is stored below the device, and how loads and spills went."""
    words = tables.stored[1:, STORED_TIERS]
    failed = tally.tier_failures
    return {
        "tiers": [
            {
                "name": name,
                "num_blocks": int(np.count_nonzero(words >> number & 1)),
                "num_checkpoints": int(np.count_nonzero(words >> number + CHECKPOINT_TIERS & 1)),
                "failures": [
                    {"reason": Reason(reason).name, "count": int(failed[number + 1, reason])}
                    for reason in np.flatnonzero(failed[number + 1]).tolist()
                    if reason in tuple(Reason)
                ],
            }
            for number, name in enumerate(tier_names)
        ],
        "num_keys": int(np.count_nonzero(words)),
        "max_keys": len(words),
        "in_flight": dict(tally.in_flight),
        "loads": {
            "count": tally.totals["loads"],
            "objects": tally.totals["load_objects"],
            "bytes": tally.totals["load_bytes"],
            "seconds": histogram(tally.histograms["load"]),
        },
        "spills": {
            "count": tally.totals["spills"],
            "objects": tally.totals["spill_objects"],
            "bytes": tally.totals["spill_bytes"],
            "seconds": histogram(tally.histograms["spill"]),
        },
    }


def stored_objects(
    tables: Tables, tier_names: tuple[str, ...], tier: int | None, start: int, limit: int
) -> list[tuple[int, dict[str, Any]]]:
    """Objects below the device, by row of their table.

    Args:
        tables: held still by the caller.
        tier_names: of the tiers.
        tier: number of a tier that has them, None for any.
        start: the first row to look at.
        limit: at most so many.
    """
    words = tables.stored[:, STORED_TIERS]
    wanted = words != 0
    if tier is not None:
        wanted = (words >> tier | words >> tier + CHECKPOINT_TIERS) & 1 != 0
    rows = np.flatnonzero(wanted)
    found = []
    for row in rows[rows >= max(start, 1)][:limit].tolist():
        stored = tables.stored[row]
        word = int(stored[STORED_TIERS])
        found.append(
            (
                row,
                {
                    "key": hex_key(int(stored[STORED_KEY_0]), int(stored[STORED_KEY_1])),
                    "position_tokens": int(stored[STORED_POSITION]),
                    "block_tiers": bit_names(tier_bits(word, False), tier_names),
                    "checkpoint_tiers": bit_names(tier_bits(word, True), tier_names),
                },
            )
        )
    return found
