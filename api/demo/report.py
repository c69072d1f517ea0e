"""What the demo found, as JSON, and whether all of it is as it must be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "FAULT_KINDS",
    "ControlFault",
    "CrashResult",
    "DiskResult",
    "FaultResult",
    "NegativeControl",
    "Report",
    "RequestResult",
]

FAULT_KINDS = ("COMPRESSED", "INDEXER", "SWA", "TAIL")
"""The kinds of pages that lie on the device."""


@dataclass(frozen=True)
class RequestResult:
    """One request.

    Attributes:
        conversation: its topic.
        turn: which turn of it, from 1.
        prompt_tokens: length of the prompt.
        resumed_at: prompt tokens reused.
        computed_tokens: prompt tokens computed.
        first_token_ms: time until the first new token was known.
        ms: time of the whole request.
        identical: logits and tokens are those of the uncached run, bit for bit.
    """

    conversation: str
    turn: int
    prompt_tokens: int
    resumed_at: int
    computed_tokens: int
    first_token_ms: float
    ms: float
    identical: bool


@dataclass(frozen=True)
class CrashResult:
    """The engine's death and its next life.

    Attributes:
        events_replayed: events that recovery applied.
        seconds: time recovery took.
        pages_kept: sealed pages whose bytes are still right.
        pages_lost: pages given up.
        pages_lost_by_fate: the same, by why.
        sequences_ended: sequences that were running.
        steps_in_flight: steps begun and not ended when the engine was killed.
        hit_tokens_after: prompt tokens that the requests after it reused.
        identical: all of ``requests`` are.
        requests: the requests after it.
    """

    events_replayed: int
    seconds: float
    pages_kept: int
    pages_lost: int
    pages_lost_by_fate: dict[str, int]
    sequences_ended: int
    steps_in_flight: int
    hit_tokens_after: int
    identical: bool
    requests: list[RequestResult]


@dataclass(frozen=True)
class FaultResult:
    """A byte flipped in a page that the next request would reuse.

    Attributes:
        kind: the page's kind.
        group: its group.
        page: its slot.
        layer: what refused the page: ``bytes`` for its checksum; empty if nothing did.
        reason: why, as the log says.
        caught: exactly this page was refused, for its checksum.
        would_resume_at: where the request would have resumed.
        resumed_at: where it resumed.
        identical: logits and tokens are those of the uncached run, bit for bit.
    """

    kind: str
    group: str
    page: int
    layer: str
    reason: str
    caught: bool
    would_resume_at: int
    resumed_at: int
    identical: bool


@dataclass(frozen=True)
class DiskResult:
    """The fifth kind, DISK: pages lost, a prefix resumed from a folder, a byte flipped there.

    Attributes:
        stored_objects: objects in the folder when the pages were lost.
        pages_lost: pages whose bytes were gone after the restart.
        read_objects: objects that ``resumed`` was loaded from.
        resumed: the request after the restart.
        object: name of the object in which a byte was flipped.
        reason: as which the log says it was found; empty if it was not.
        caught: exactly this object was found, for its checksum, and set aside.
        would_resume_at: where the next request would have resumed.
        recomputed: that request.
    """

    stored_objects: int
    pages_lost: int
    read_objects: int
    resumed: RequestResult
    object: str
    reason: str
    caught: bool
    would_resume_at: int
    recomputed: RequestResult


@dataclass(frozen=True)
class ControlFault:
    """A byte flipped where nobody checks; ``identical`` must be false."""

    kind: str
    group: str
    page: int
    identical: bool


@dataclass(frozen=True)
class NegativeControl:
    """The same with checks off: what shows that the comparison can fail.

    Attributes:
        verify_hits: the policy, ``never``.
        identical: whether any answer from a damaged page was as in the uncached run.
        unharmed_identical: whether the answers before and after the damage were.
        faults: one for each kind.
    """

    verify_hits: str
    identical: bool
    unharmed_identical: bool
    faults: list[ControlFault]


@dataclass(frozen=True)
class Report:
    """All that the demo found.

    Attributes:
        directory: the log directory, kept.
        shared_memory_root: where the ring and the pools lie.
        seed: seeds the model's weights.
        requests: requests before the crash.
        crash: the crash.
        faults: flipped bytes, checks on.
        disk: the pages lost, then a byte flipped on disk.
        negative_control: flipped bytes, checks off.
        next_commands: what to try next.
    """

    directory: Path
    shared_memory_root: Path
    seed: int
    requests: list[RequestResult]
    crash: CrashResult
    faults: list[FaultResult]
    disk: DiskResult
    negative_control: NegativeControl
    next_commands: list[str]

    def failures(self) -> list[str]:
        """What is not as it must be; empty if all is well."""
        return [
            *self._wrong_requests(),
            *self._wrong_faults(),
            *self._wrong_disk(),
            *self._wrong_control(),
        ]

    def _wrong_requests(self) -> list[str]:
        crash = self.crash
        found = [
            f"{request.conversation}, turn {request.turn}: not identical to the uncached run"
            for request in [*self.requests, *crash.requests]
            if not request.identical
        ]
        if not any(request.resumed_at for request in self.requests):
            found.append("requests: expected reuse, found none")
        if not crash.identical and not any(not request.identical for request in crash.requests):
            found.append("crash: not identical to the uncached run")
        if not crash.hit_tokens_after:
            found.append("crash: expected hits after recovery, found none")
        if crash.steps_in_flight < 1:
            found.append("crash: expected a step in flight when the engine died, found none")
        return found

    def _wrong_faults(self) -> list[str]:
        found = [
            f"{fault.kind}, {fault.group} page {fault.page}: expected {what}, found it was not so"
            for fault in self.faults
            for what, holds in (("caught", fault.caught), ("identical", fault.identical))
            if not holds
        ]
        kinds = tuple(fault.kind for fault in self.faults)
        if kinds != FAULT_KINDS:
            found.append(f"faults: expected one of each of {FAULT_KINDS}, found {kinds}")
        return found

    def _wrong_disk(self) -> list[str]:
        disk = self.disk
        lower = disk.recomputed.resumed_at < disk.would_resume_at
        expected = (
            ("pages lost", disk.pages_lost > 0),
            ("a prefix resumed from the folder", disk.resumed.resumed_at * disk.read_objects > 0),
            ("what was resumed identical", disk.resumed.identical),
            (f"{disk.object} caught", disk.caught),
            ("what it held recomputed", lower),
            ("what was recomputed identical", disk.recomputed.identical),
        )
        return [
            f"DISK: expected {what}, found it was not so" for what, holds in expected if not holds
        ]

    def _wrong_control(self) -> list[str]:
        control = self.negative_control
        found = []
        if control.identical or not control.faults:
            found.append("negative control: expected a damaged page to show, found identical")
        if not control.unharmed_identical:
            found.append("negative control: not identical without damage either")
        return found

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        failures = self.failures()
        return {"ok": not failures, "failures": failures, **asdict(self)}
