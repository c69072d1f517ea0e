"""Writes the tables of docs/events.md from the event format and the transition table.

``python -m tools.events_page`` brings the page up to date; a test fails where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from kvstrata.core.events import (
    EVENT_DTYPE,
    FOR_LOAD,
    LAST_OF_CALL,
    NO_CHECKSUM,
    PARTIAL,
    PAYLOADS,
    WITH_CHECKPOINT,
    WITH_PARTIAL,
    EventType,
    Reason,
)
from kvstrata.core.states import TRANSITIONS, PageState

from .markdown import table

Code = TypeVar("Code", bound=IntEnum)

__all__ = ["PAGE", "render", "tables"]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "events.md"

HEAD: Final = {
    "seqno": "the event's place in the log; the first is 1, none is left out",
    "time_ns": "CLOCK_MONOTONIC of the call; the segment header anchors it to wall time",
    "type": "what happened, see *Types*",
    "group": "of the page, by its place in the layout; 0 where the event is about no page",
    "state": "of the page after the transition, see *States*; 0 otherwise",
    "tier": "where the bytes are; 0 is the device",
    "reason": "why, see *Reasons*",
    "flags": "see *Flags*",
    "references": "after the event, of the page's block or image, or of a lease's last block",
    "page": "slot in the group's pool; 0 where the event is about no page",
    "generation": "of the page",
}
FLAGS: Final = {
    "LAST_OF_CALL": (LAST_OF_CALL, "the last event of one manager call"),
    "NO_CHECKSUM": (NO_CHECKSUM, "of PAGE_SEALED: the manager holds no bytes, checksum is void"),
    "WITH_CHECKPOINT": (WITH_CHECKPOINT, "of LEASE_GRANTED: the checkpoint of that key is pinned"),
    "WITH_PARTIAL": (WITH_PARTIAL, "of LEASE_GRANTED: the key is a partial block's, pinned too"),
    "PARTIAL": (PARTIAL, "of PAGE_SEALED: not full; PAGE_OPENED before it says what is valid"),
    "FOR_LOAD": (FOR_LOAD, "of SEQUENCE_BEGUN: no request, it owns the pages of a load"),
}
TYPES: Final = {
    EventType.PAGE_RESERVED: "a sequence took the page from its pool",
    EventType.PAGE_WRITING: "a step that writes it is in flight",
    EventType.PAGE_OPENED: "the step ended, part of the page is valid",
    EventType.PAGE_SEALED: "complete; with the last page of its unit the key becomes findable",
    EventType.PAGE_LOADING: "a lower tier fills it",
    EventType.PAGE_DRAINING: "given up while something may still touch it",
    EventType.PAGE_FREED: "back in its pool",
    EventType.PAGE_QUARANTINED: "failed validation; its unit is unfindable from here on",
    EventType.PAGE_LOST: "a new incarnation found it without trustworthy bytes",
    EventType.PAGE_DIRTIED: "written behind its seal, never adopted again",
    EventType.SEQUENCE_BEGUN: "a request runs",
    EventType.SEQUENCE_FINISHED: "it ended and released what it held",
    EventType.SEQUENCE_CANCELLED: "it was cancelled with steps in flight",
    EventType.SEQUENCE_SUSPENDED: "it ended for now; its state was kept under its key",
    EventType.SEQUENCE_FORKED: "the sequence begun before goes on from another's position",
    EventType.LEASE_GRANTED: "a prefix was pinned, by a sequence or outside one",
    EventType.LEASE_RELEASED: "a lease outside a sequence ended",
    EventType.CHECKPOINT_RELEASED: "a sequence has its own copy of the checkpoint it began on",
    EventType.VALIDATION_FAILED: "a page, or a group, is no hit; head names it, reason why",
    EventType.HIT_LIMITED: "less is reused than is here, since a group or a rank has less",
    EventType.OBJECT_STORED: "a block's or checkpoint's object lies whole in these tiers",
    EventType.OBJECT_REMOVED: "it lies in these tiers alone from now on; reason why",
    EventType.OBJECT_FAILED: "what a tier gave was no such object; reason why",
    EventType.LOAD_BEGUN: "objects are being read into pages",
    EventType.LOAD_ENDED: "they have come, or some have not; reason why",
    EventType.SPILL_BEGUN: "objects are being written under a lease",
    EventType.SPILL_ENDED: "they are written, or some are not; reason why",
    EventType.MANAGER_OPENED: "an incarnation began",
    EventType.MANAGER_CLOSED: "it was closed in order",
    EventType.RECOVERY_BEGUN: "a new incarnation clears up after the one before",
    EventType.RECOVERY_ENDED: "that is done",
    EventType.STATE_DIGEST: "what a reader's tables must hash to just before this event",
    EventType.ABI_REGISTERED: "how the engine's kernel reads the group from now on",
    EventType.KERNEL_REGISTERED: "whether that kernel is ready",
    EventType.MAPPING_REGISTERED: "the group's compression mapping, and whether it is resident",
    EventType.TOPOLOGY_SEALED: "every pool's address from now on",
    EventType.RATES_OBSERVED: "what the planner reckons with from now on",
    EventType.ADMISSION_GRANTED: "a request that had waited may begin",
    EventType.ADMISSION_DEFERRED: "a request has to wait",
    EventType.ADMISSION_DENIED: "a request will not be served",
    EventType.COMPLETION_ANOMALY: "something was said to have ended that nobody waits for",
    EventType.SCRUBBED: "sealed pages were checksummed in turn; page is 0 after a round",
    EventType.REQUEST_RESUMED: "where a request resumes, and what of its prompt came from where",
    EventType.SLICE_DIGEST: "what one slice of a reader's tables must hash to, likewise",
    EventType.NUMERIC_DRIFT: "a sealed page was computed again and compared; reason DRIFTED if bad",
    EventType.COMMAND_TAKEN: "an operator's command is being carried out",
    EventType.COMMAND_ENDED: "it is done, or was refused; reason why",
    EventType.DIVERGENCE_REPORTED: "a reader's tables went another way; an operator was told",
}
REASONS: Final = {
    Reason.NONE: "nothing to explain",
    Reason.FINISHED: "its sequence finished",
    Reason.CANCELLED: "its sequence was cancelled",
    Reason.CRASHED: "its incarnation died",
    Reason.EVICTED: "room was made, least recently released first",
    Reason.DUPLICATE: "another block had the same key already",
    Reason.UNREFERENCED: "withdrawn, and nobody reads it any more",
    Reason.BYTES_UNTRUSTED: "its memory did not survive",
    Reason.SUSPENDED: "its sequence was suspended",
    Reason.OPERATOR: "an operator asked for it",
    Reason.CHECKSUM_MISMATCH: "its bytes differ from the checksum of its sealing",
    Reason.PARTIAL_WRITE: "not sealed, or fewer entries than the prefix needs",
    Reason.MISALIGNED_BOUNDARY: "it ends elsewhere than its place in the prefix says",
    Reason.MISSING_PAGE: "the block or image and the page do not name each other",
    Reason.WINDOW_OUT_OF_BOUNDS: "the window has other rows than its position gives",
    Reason.WINDOW_OFFSET: "the ring's head is not where the layer reads on",
    Reason.STRIDE_MISMATCH: "the ring has other rows than the layer reads",
    Reason.TAIL_TOO_SHORT: "other rows of the open compression window than P mod ratio",
    Reason.OVERLAP_MISSING: "without the overlap of the window closed last",
    Reason.COMPRESSOR_VERSION: "compressed by another mapping than is registered now",
    Reason.INDEX_STALE: "the index was made for other compressed entries",
    Reason.INDEX_DIRTY: "the index was written since it was sealed",
    Reason.INDEX_COUNT: "the index has more or fewer keys than there are entries",
    Reason.ABI_MISMATCH: "written in another layout than the kernel reads",
    Reason.KERNEL_NOT_READY: "the kernel that reads the group is not there",
    Reason.MAPPING_NOT_READY: "the compression mapping is not resident",
    Reason.GROUP_LIMITED: "another group has less of the prefix",
    Reason.RANK_LIMITED: "another rank has less of the prefix",
    Reason.RANK_INTERSECTION_EMPTY: "the ranks have nothing in common",
    Reason.UNALIGNED_ADDRESS: "a pool begins where its device cannot read",
    Reason.UNALIGNED_STRIDE: "a pool's pages lie where its device cannot read",
    Reason.TOPOLOGY_MOVED: "a pool is no longer where it was sealed",
    Reason.BLOCKS: "too few blocks for the whole request",
    Reason.BANDWIDTH: "too many bytes to load for now",
    Reason.RECOVERIES: "too many recoveries, or bytes in recovery",
    Reason.QUEUE: "too many requests wait",
    Reason.DEADLINE: "it waited past its deadline",
    Reason.NEVER_FITS: "it would not fit into an empty cache",
    Reason.JOINING: "another sequence is computing its prefix",
    Reason.LATE_COMPLETION: "of a sequence that has ended",
    Reason.DUPLICATE_COMPLETION: "of a transfer that has ended",
    Reason.GHOST_COMPLETION: "of a transfer there never was",
    Reason.OBJECT_MISSING: "no such object in the tier",
    Reason.OBJECT_TRUNCATED: "shorter than such an object is",
    Reason.OBJECT_TOO_LONG: "longer than such an object is",
    Reason.OBJECT_HEADER: "its header is damaged",
    Reason.OBJECT_TRAILER: "its trailer is not what the header says",
    Reason.OBJECT_VERSION: "of another version of the format",
    Reason.OBJECT_KEY: "another key's object stands under this name",
    Reason.OBJECT_LAYOUT: "of another layout",
    Reason.OBJECT_NOT_A_FILE: "something that is no file stands under its name",
    Reason.OBJECT_FORBIDDEN: "the tier does not let it be read",
    Reason.OBJECT_UNREADABLE: "it could not be read",
    Reason.STORE_TIMEOUT: "the tier did not answer in time",
    Reason.STORE_FULL: "the tier has no room",
    Reason.STORE_FAILED: "the tier failed",
    Reason.TIER_DOWN: "the tier failed before and is left alone for a while",
    Reason.OVER_CAP: "the tier holds more than it may",
    Reason.EXPIRED: "not used for longer than its kind lives",
    Reason.LOAD_CANCELLED: "nobody waits for the load any more",
    Reason.LOAD_DEADLINE: "the load took longer than it may",
    Reason.DRIFTED: "differs by more than the tolerance from what was computed again",
}
STATES: Final = {
    PageState.FREE: "in its pool's free list",
    PageState.RESERVED: "owned by a sequence, nothing valid in it",
    PageState.WRITING: "a step that writes it is in flight",
    PageState.OPEN: "partly valid, no step in flight",
    PageState.SEALED: "complete and immutable",
    PageState.LOADING: "being filled from a lower tier",
    PageState.DRAINING: "freed while something may still touch it",
    PageState.QUARANTINED: "failed validation, waits for its last reader",
}
FIELDS: Final = {
    "agreed": "tokens that are reused",
    "changed": "pages, keys or leases it changed",
    "command": "id of the operator's command",
    "cosine": "between what is stored and what was computed, 1 where equal",
    "first": "seqno of the first event of the range",
    "first_word": "of the slice, in the arena",
    "kind": "of the command",
    "last": "seqno of the last event of the range",
    "loaded": "tokens that a lower tier gave for this request, not counting kept ones",
    "max_abs": "the largest difference of an element",
    "num_slices": "into which the tables are cut; equal sizes, rounded up",
    "outcome": "of the command",
    "prefix": "first half of the name of the blob that holds what does not fit, or 0",
    "prompt": "tokens of the prompt, with the output so far where it was suspended",
    "resume_at": "tokens that need not be computed",
    "reused": "tokens whose pages are reused; above resume_at in a replay",
    "slice": "number of the slice, from 0",
    "source": "0 cold, 1 history, 2 checkpoint, 3 replay, 4 suspended",
    "tolerance": "the largest difference that is no drift",
    "bad": "pages whose bytes differ",
    "blocks": "blocks the request needs until its end",
    "bytes": "bytes read",
    "bytes_per_s": "bytes of pages copied in a second",
    "checkpoint": "1 for a checkpoint's object, 0 for a block's",
    "load": "id of the sequence that owns the load's pages",
    "load_bytes_per_s": "bytes of objects loaded in a second",
    "micros": "since it began, in microseconds; of RECOVERY_ENDED, how long the replay took",
    "num_bytes": "of the object or objects",
    "objects": "blocks and checkpoints",
    "tiers": "a bit for each tier that holds it now",
    "identity": "id that was given",
    "load_bytes": "bytes to copy or load before it computes",
    "pages": "pages read",
    "parent_sequence": "id of the sequence it was forked from",
    "ready": "1 where it is there",
    "replayed": "events of the log that were replayed before",
    "ticket": "the request's number in the queue; of a JOINING, the sequence it waits for",
    "tokens_per_s": "prompt tokens computed in a second",
    "wait_us": "how long it waited (granted), or is to wait",
    "waiting": "requests that wait",
    "word": "bits of the digest that stand in a page's stamp",
    "blob": "name of the blob that holds what does not fit",
    "bytes_trusted": "1 where sealed pages kept their bytes",
    "checksum": "of the page's bytes",
    "digest": "of the tables, or their slice",
    "entries": "entries valid in the page, or compared",
    "expected": "what the check wanted: a checksum, a count, a position",
    "found": "what it found; of HIT_LIMITED, tokens that are here",
    "head": "ring head of a state page: the position modulo its rows",
    "incarnation": "number of this life of the engine",
    "index": "a block's place in its sequence; an image's position",
    "kept": "sealed pages still good; of a request, tokens it had computed before it was suspended",
    "key": "of the prefix that ends here",
    "layer": "of validation: 0 bytes, 1 block, 2 ABI, 3 intersection, 4 alignment; or of the model",
    "lease": "id of the lease",
    "lost": "pages that are not",
    "num_blocks": "blocks pinned, from the root",
    "owner": "id of the sequence or lease; 0 for none",
    "parent": "block before this one; of an image, its position in tokens",
    "position": "in tokens; of a sequence begun, its prompt's length",
    "role": "of a page reserved: 0 history, 1 private image, 2 checkpoint",
    "row": "of the sequence or lease in its table",
    "seed": "chain seed of the sequence's keys",
    "sequence": "id of the sequence",
    "unit": "block (history) or image (state)",
}


def _fields_of(dtype: np.dtype[np.void]) -> Mapping[str, Any]:
    return dtype.fields or {}


def _head() -> str:
    rows = []
    for name in EVENT_DTYPE.names or ():
        dtype, offset, *_ = _fields_of(EVENT_DTYPE)[name]
        if name in HEAD:
            rows.append((offset, dtype.itemsize, name, HEAD[name]))
    return table("byte | size | field | meaning", rows)


def _payloads() -> str:
    rows = []
    for kind, dtype in PAYLOADS.items():
        for name in dtype.names or ():
            part, offset, *_ = _fields_of(dtype)[name]
            if not name.startswith("_"):
                cells = (f"`{kind.name}`", 32 + offset, part.itemsize, name, FIELDS[name])
                rows.append(cells)
    return table("type | byte | size | field | meaning", rows)


def _numbered(head: str, kind: Iterable[Code], meanings: Mapping[Code, str]) -> str:
    rows = [(int(each), f"`{each.name}`", meanings[each]) for each in kind]
    return table(head, rows)


def _flags() -> str:
    rows = [(value, f"`{name}`", meaning) for name, (value, meaning) in FLAGS.items()]
    return table("bit | name | meaning", sorted(rows))


def _transitions() -> str:
    rows = [
        (f"`{state.name}`", f"`{event.name}`", f"`{after.name}`", meaning)
        for (state, event), (after, meaning) in TRANSITIONS.items()
    ]
    return table("state | event | state after | meaning", rows)


def tables() -> dict[str, Callable[[], str]]:
    """The generated tables of the page, by name."""
    return {
        "head": _head,
        "flags": _flags,
        "types": lambda: _numbered("code | type | what happened", EventType, TYPES),
        "payloads": _payloads,
        "reasons": lambda: _numbered("code | reason | why", Reason, REASONS),
        "states": lambda: _numbered("code | state | meaning", PageState, STATES),
        "transitions": _transitions,
    }


def render(page: str) -> str:
    """A page with its tables brought up to date.

    Raises:
        KeyError: it marks a table that does not exist, or something has no meaning written.
    """
    known = tables()

    def fill(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{known[found[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
