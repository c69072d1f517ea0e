"""The decision tables of recovery: conditions → decision, one row each, first match decides.

docs/recovery.md shows these tables; a test compares the two, and another holds that exactly one
row matches each possible set of facts. *Proven durable* is the highest seqno that any witness
says was synced: the watermark, a later batch's ``synced_seqno``, a snapshot, or the ring.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from .scan import TailKind

__all__ = [
    "RING_TABLE",
    "TAIL_TABLE",
    "Decision",
    "RingDecision",
    "RingFacts",
    "Row",
    "TailFacts",
    "decide_ring",
    "decide_tail",
]

Facts = TypeVar("Facts")
Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True)
class Row(Generic[Facts, Choice]):
    """One row of a table."""

    name: str
    condition: str
    holds: Callable[[Facts], bool]
    decision: Choice
    meaning: str


class Decision(StrEnum):
    """What to do with the end of a segment."""

    ACCEPT = "accept"
    TRUNCATE = "truncate"
    REFUSE = "refuse"


@dataclass(frozen=True)
class TailFacts:
    """What is known at the end of a segment's good batches.

    Attributes:
        tail: what stands there.
        is_last: no later segment exists.
        reaches_proven: the last good seqno is not below what is proven durable.
    """

    tail: TailKind
    is_last: bool
    reaches_proven: bool


TAIL_TABLE: Final[tuple[Row[TailFacts, Decision], ...]] = (
    Row(
        "SEALED",
        "footer; a later segment exists",
        lambda f: f.tail is TailKind.FOOTER and not f.is_last,
        Decision.ACCEPT,
        "A finished segment; whether the next one continues it is checked there.",
    ),
    Row(
        "SEALED_LAST",
        "footer; last segment; all proven durable is there",
        lambda f: f.tail is TailKind.FOOTER and f.is_last and f.reaches_proven,
        Decision.ACCEPT,
        "The log was closed, or the process died between two segments.",
    ),
    Row(
        "END_OF_LOG",
        "zeros; last segment; all proven durable is there",
        lambda f: f.tail is TailKind.ZERO and f.is_last and f.reaches_proven,
        Decision.ACCEPT,
        "The usual end after a crash: nothing was cut off.",
    ),
    Row(
        "TORN_TAIL",
        "damage; last segment; all proven durable stands before it",
        lambda f: f.tail is TailKind.DAMAGED and f.is_last and f.reaches_proven,
        Decision.TRUNCATE,
        "A write that no sync had covered was torn or lost: never acknowledged, cut off, a "
        "copy kept.",
    ),
    Row(
        "DURABLE_DAMAGED",
        "damage; last segment; something proven durable is behind it",
        lambda f: f.tail is TailKind.DAMAGED and f.is_last and not f.reaches_proven,
        Decision.REFUSE,
        "Acknowledged events are damaged: the device or somebody changed them.",
    ),
    Row(
        "DURABLE_MISSING",
        "footer or zeros; last segment; something proven durable is not there",
        lambda f: f.tail is not TailKind.DAMAGED and f.is_last and not f.reaches_proven,
        Decision.REFUSE,
        "Acknowledged events are gone: a file was removed, cut or restored from an old copy.",
    ),
    Row(
        "DAMAGED_BEFORE_ANOTHER",
        "damage; a later segment exists",
        lambda f: f.tail is TailKind.DAMAGED and not f.is_last,
        Decision.REFUSE,
        "A segment is synced whole before the next one begins, so all of it was durable.",
    ),
    Row(
        "UNSEALED_BEFORE_ANOTHER",
        "zeros; a later segment exists",
        lambda f: f.tail is TailKind.ZERO and not f.is_last,
        Decision.REFUSE,
        "A segment is sealed before the next one begins, so its end is missing.",
    ),
)


class RingDecision(StrEnum):
    """What to do with the ring that survived, and so with the bytes in the pools."""

    KEEP = "keep"
    """Nothing to append; the pools' bytes are as the log says."""
    APPEND = "append"
    """Append its events; the pools' bytes are as the log then says."""
    APPEND_COLD = "append, bytes not trusted"
    IGNORE = "ignore, bytes not trusted"


@dataclass(frozen=True)
class RingFacts:
    """What is known of the ring.

    Attributes:
        exists: there is a ring of this log.
        same_boot: made since the machine was booted.
        same_incarnation: made by the incarnation that wrote the log's end.
        unlogged: it, or a marker in the directory, says that changes went past the log.
        poisoned: a write or sync failed.
        readable: all events after the log's end are in it, whole calls, in order.
        ahead: there is at least one such event.
    """

    exists: bool
    same_boot: bool
    same_incarnation: bool
    unlogged: bool
    poisoned: bool
    readable: bool
    ahead: bool


def _is_usable(f: RingFacts) -> bool:
    return f.exists and f.same_boot and f.same_incarnation and not f.unlogged


RING_TABLE: Final[tuple[Row[RingFacts, RingDecision], ...]] = (
    Row(
        "NO_RING",
        "no ring of this log",
        lambda f: not f.exists,
        RingDecision.IGNORE,
        "Shared memory was cleaned, or the directory was moved or copied here.",
    ),
    Row(
        "OTHER_BOOT",
        "made before the machine was booted",
        lambda f: f.exists and not f.same_boot,
        RingDecision.IGNORE,
        "Power loss or reboot: what was not synced is gone, and so are the pools' bytes.",
    ),
    Row(
        "OTHER_INCARNATION",
        "not of the incarnation that wrote the log's end",
        lambda f: f.exists and f.same_boot and not f.same_incarnation,
        RingDecision.IGNORE,
        "The directory was restored from a copy, or another one stood here.",
    ),
    Row(
        "UNLOGGED",
        "an unlogged epoch is marked",
        lambda f: f.exists and f.same_boot and f.same_incarnation and f.unlogged,
        RingDecision.IGNORE,
        "Changes went past the log: ring and pools hold what the log does not know.",
    ),
    Row(
        "UNREADABLE",
        "does not hold the events after the log's end, whole and in order",
        lambda f: _is_usable(f) and not f.readable,
        RingDecision.IGNORE,
        "Events were drained from it that the segments no longer have.",
    ),
    Row(
        "POISONED",
        "a write or sync failed",
        lambda f: _is_usable(f) and f.readable and f.poisoned,
        RingDecision.APPEND_COLD,
        "The events are whole; the last segment is copied anew, since a failed sync may have "
        "left it in memory only.",
    ),
    Row(
        "AHEAD",
        "holds events after the log's end",
        lambda f: _is_usable(f) and f.readable and not f.poisoned and f.ahead,
        RingDecision.APPEND,
        "The process was killed: what it had published is appended, nothing is lost.",
    ),
    Row(
        "EVEN",
        "holds none",
        lambda f: _is_usable(f) and f.readable and not f.poisoned and not f.ahead,
        RingDecision.KEEP,
        "Everything published was written.",
    ),
)


def decide_tail(facts: TailFacts) -> Row[TailFacts, Decision]:
    """The row for the end of a segment."""
    return next(row for row in TAIL_TABLE if row.holds(facts))


def decide_ring(facts: RingFacts) -> Row[RingFacts, RingDecision]:
    """The row for the ring."""
    return next(row for row in RING_TABLE if row.holds(facts))
