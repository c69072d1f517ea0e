"""The event: 64 little-endian bytes, a 32-byte head and a 32-byte payload by type.

An event tells the absolute state after a transition, never a difference. Type codes, reasons
and field offsets are stable: they stand in every stored log.
"""

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "EVENT_BYTES",
    "EVENT_DTYPE",
    "EVENT_SCHEMA_VERSION",
    "EVENT_WORDS",
    "FOR_LOAD",
    "LAST_OF_CALL",
    "NO_CHECKSUM",
    "PAGE_EVENTS_END",
    "PARTIAL",
    "PAYLOADS",
    "WITH_CHECKPOINT",
    "WITH_PARTIAL",
    "EventType",
    "Reason",
    "ResumeSource",
    "decode_payload",
]

EVENT_SCHEMA_VERSION: Final = 1
EVENT_BYTES: Final = 64
EVENT_WORDS: Final = 8

LAST_OF_CALL: Final = 1
"""Flag: the last event of one manager call. A call is in the log whole or not at all."""
NO_CHECKSUM: Final = 2
"""Flag of PAGE_SEALED: the manager holds no bytes (no pools), the checksum is void."""
WITH_CHECKPOINT: Final = 4
"""Flag of LEASE_GRANTED: the checkpoint under the same key is pinned too."""
WITH_PARTIAL: Final = 8
"""Flag of LEASE_GRANTED: the key is that of a partial block, pinned beside the whole ones."""
PARTIAL: Final = 16
"""Flag of PAGE_SEALED: the block is not full; its pages hold what PAGE_OPENED before it said."""
FOR_LOAD: Final = 32
"""Flag of SEQUENCE_BEGUN: no request runs; it owns the pages that a load from a tier fills."""


class EventType(IntEnum):
    """What happened, in the past tense. Numbers are stable; below 16 they name a page."""

    PAGE_RESERVED = 1
    PAGE_WRITING = 2
    PAGE_OPENED = 3
    PAGE_SEALED = 4
    PAGE_LOADING = 5
    PAGE_DRAINING = 6
    PAGE_FREED = 7
    PAGE_QUARANTINED = 8
    PAGE_LOST = 9
    PAGE_DIRTIED = 10

    SEQUENCE_BEGUN = 16
    SEQUENCE_FINISHED = 17
    SEQUENCE_CANCELLED = 18
    SEQUENCE_SUSPENDED = 19
    SEQUENCE_FORKED = 20

    LEASE_GRANTED = 24
    LEASE_RELEASED = 25
    CHECKPOINT_RELEASED = 26

    VALIDATION_FAILED = 32
    HIT_LIMITED = 33

    OBJECT_STORED = 34
    OBJECT_REMOVED = 35
    OBJECT_FAILED = 36
    LOAD_BEGUN = 37
    LOAD_ENDED = 38
    SPILL_BEGUN = 39

    MANAGER_OPENED = 40
    MANAGER_CLOSED = 41
    RECOVERY_BEGUN = 42
    RECOVERY_ENDED = 43
    STATE_DIGEST = 44
    SPILL_ENDED = 45

    ABI_REGISTERED = 48
    KERNEL_REGISTERED = 49
    MAPPING_REGISTERED = 50
    TOPOLOGY_SEALED = 51
    RATES_OBSERVED = 52
    ADMISSION_GRANTED = 53
    ADMISSION_DEFERRED = 54
    ADMISSION_DENIED = 55
    COMPLETION_ANOMALY = 56
    SCRUBBED = 57
    REQUEST_RESUMED = 58
    SLICE_DIGEST = 59
    NUMERIC_DRIFT = 60
    COMMAND_TAKEN = 61
    COMMAND_ENDED = 62
    DIVERGENCE_REPORTED = 63


PAGE_EVENTS_END: Final = 16


class Reason(IntEnum):
    """Why an event happened, or why validation refused. Stable numbers."""

    NONE = 0
    FINISHED = 1
    CANCELLED = 2
    CRASHED = 3
    EVICTED = 4
    DUPLICATE = 5
    UNREFERENCED = 6
    BYTES_UNTRUSTED = 7
    SUSPENDED = 8
    OPERATOR = 9

    CHECKSUM_MISMATCH = 64
    PARTIAL_WRITE = 65
    MISALIGNED_BOUNDARY = 66
    MISSING_PAGE = 67
    WINDOW_OUT_OF_BOUNDS = 68
    WINDOW_OFFSET = 69
    STRIDE_MISMATCH = 70
    TAIL_TOO_SHORT = 71
    OVERLAP_MISSING = 72
    COMPRESSOR_VERSION = 73
    INDEX_STALE = 74
    INDEX_DIRTY = 75
    INDEX_COUNT = 76
    ABI_MISMATCH = 80
    KERNEL_NOT_READY = 81
    MAPPING_NOT_READY = 82
    GROUP_LIMITED = 96
    RANK_LIMITED = 97
    RANK_INTERSECTION_EMPTY = 98
    UNALIGNED_ADDRESS = 112
    UNALIGNED_STRIDE = 113
    TOPOLOGY_MOVED = 114

    BLOCKS = 128
    BANDWIDTH = 129
    RECOVERIES = 130
    QUEUE = 131
    DEADLINE = 132
    NEVER_FITS = 133
    JOINING = 134

    LATE_COMPLETION = 144
    DUPLICATE_COMPLETION = 145
    GHOST_COMPLETION = 146

    OBJECT_MISSING = 160
    OBJECT_TRUNCATED = 161
    OBJECT_TOO_LONG = 162
    OBJECT_HEADER = 163
    OBJECT_TRAILER = 164
    OBJECT_VERSION = 165
    OBJECT_KEY = 166
    OBJECT_LAYOUT = 167
    OBJECT_NOT_A_FILE = 168
    OBJECT_FORBIDDEN = 169
    OBJECT_UNREADABLE = 170
    STORE_TIMEOUT = 176
    STORE_FULL = 177
    STORE_FAILED = 178
    TIER_DOWN = 179
    OVER_CAP = 180
    EXPIRED = 181
    LOAD_CANCELLED = 182
    LOAD_DEADLINE = 183

    DRIFTED = 192


class ResumeSource(IntEnum):
    """What a request resumed on, as REQUEST_RESUMED tells it. Stable numbers."""

    COLD = 0
    HISTORY = 1
    CHECKPOINT = 2
    REPLAY = 3
    SUSPENDED = 4


_HEAD: Final = [
    ("seqno", "<u8"),
    ("time_ns", "<u8"),
    ("type", "u1"),
    ("group", "u1"),
    ("state", "u1"),
    ("tier", "u1"),
    ("reason", "u1"),
    ("flags", "u1"),
    ("references", "<u2"),
    ("page", "<u4"),
    ("generation", "<u4"),
]

EVENT_DTYPE: Final = np.dtype([*_HEAD, ("a", "<i8"), ("b", "<i8"), ("c", "<i8"), ("d", "<i8")])
"""Head and raw payload words. ``time_ns`` is CLOCK_MONOTONIC; the segment header anchors it."""

_OWNER: Final = [("owner", "<u8"), ("unit", "<u4"), ("index", "<u4")]
_SEQUENCE: Final = [("sequence", "<u8"), ("row", "<u4"), ("position", "<u4")]

# ticket: of the request in the queue; blocks and load_bytes it needs; wait_us: so far, or to come
_ADMISSION: Final = [
    ("ticket", "<u8"),
    ("blocks", "<u4"),
    ("waiting", "<u4"),
    ("load_bytes", "<u8"),
    ("wait_us", "<u8"),
]

# num_bytes: of the object; tiers: a bit a tier that holds it now; checkpoint: 1, or 0 for a block
_OBJECT: Final = [
    ("key", "V16"),
    ("num_bytes", "<u8"),
    ("position", "<u4"),
    ("tiers", "<u2"),
    ("checkpoint", "<u2"),
]
# load: the sequence that owns its pages; objects: blocks and checkpoints; micros: since it began
_LOAD: Final = [("load", "<u8"), ("objects", "<u8"), ("num_bytes", "<u8"), ("micros", "<u8")]
_SPILL: Final = [("lease", "<u8"), ("objects", "<u8"), ("num_bytes", "<u8"), ("micros", "<u8")]
# prefix: the first half of the name of the blob with what does not fit, zeros for none
_COMMAND: Final = [
    ("command", "<u8"),
    ("kind", "<u4"),
    ("outcome", "<u4"),
    ("changed", "<u8"),
    ("prefix", "V8"),
]

PAYLOADS: Final[dict[EventType, np.dtype[np.void]]] = {
    kind: np.dtype(fields)
    for kind, fields in {
        # unit: block id (history) or image id (state); index: the block's place in its sequence
        EventType.PAGE_RESERVED: [*_OWNER, ("row", "<u4"), ("role", "<u4"), ("_d", "<i8")],
        EventType.PAGE_WRITING: [*_OWNER, ("_c", "<i8"), ("_d", "<i8")],
        # entries valid in the page; head: ring head of a state page, the position modulo its rows
        EventType.PAGE_OPENED: [*_OWNER, ("entries", "<i8"), ("head", "<i8")],
        # parent: block id of the block before (history), or the position in tokens (state)
        EventType.PAGE_SEALED: [
            ("key", "V16"),
            ("checksum", "<u8"),
            ("unit", "<u4"),
            ("parent", "<u4"),
        ],
        EventType.PAGE_LOADING: [*_OWNER, ("_c", "<i8"), ("_d", "<i8")],
        EventType.PAGE_DRAINING: [*_OWNER, ("_c", "<i8"), ("_d", "<i8")],
        EventType.PAGE_FREED: [*_OWNER, ("_c", "<i8"), ("_d", "<i8")],
        EventType.PAGE_QUARANTINED: [*_OWNER, ("expected", "<u8"), ("found", "<u8")],
        EventType.PAGE_LOST: [*_OWNER, ("_c", "<i8"), ("_d", "<i8")],
        EventType.PAGE_DIRTIED: [*_OWNER, ("_c", "<i8"), ("_d", "<i8")],
        # seed: the chain seed of the sequence's keys
        EventType.SEQUENCE_BEGUN: [*_SEQUENCE, ("seed", "V16")],
        EventType.SEQUENCE_FINISHED: [*_SEQUENCE, ("_c", "<i8"), ("_d", "<i8")],
        EventType.SEQUENCE_CANCELLED: [*_SEQUENCE, ("_c", "<i8"), ("_d", "<i8")],
        EventType.SEQUENCE_SUSPENDED: [*_SEQUENCE, ("_c", "<i8"), ("_d", "<i8")],
        EventType.SEQUENCE_FORKED: [*_SEQUENCE, ("parent_sequence", "<u8"), ("_d", "<i8")],
        # key: of the last block pinned or of the partial one; num_blocks: whole ones, from the root
        EventType.LEASE_GRANTED: [
            ("key", "V16"),
            ("owner", "<u8"),
            ("row", "<u2"),
            ("_pad", "<u2"),
            ("num_blocks", "<u4"),
        ],
        EventType.LEASE_RELEASED: [("lease", "<u8"), ("row", "<u4"), ("_b", "<u4"), ("_d", "V16")],
        EventType.CHECKPOINT_RELEASED: [
            ("owner", "<u8"),
            ("row", "<u4"),
            ("_b", "<u4"),
            ("_d", "V16"),
        ],
        EventType.VALIDATION_FAILED: [
            ("expected", "<u8"),
            ("found", "<u8"),
            ("unit", "<u4"),
            ("layer", "<u4"),
            ("position", "<i8"),
        ],
        # tokens here, in the intersection over groups or ranks
        EventType.HIT_LIMITED: [
            ("found", "<u8"),
            ("agreed", "<u8"),
            ("_c", "<i8"),
            ("_d", "<i8"),
        ],
        EventType.OBJECT_STORED: _OBJECT,
        EventType.OBJECT_REMOVED: _OBJECT,
        # found in what a tier gave: the event's tier, reason and group say where and what
        EventType.OBJECT_FAILED: [("key", "V16"), ("expected", "<u8"), ("found", "<u8")],
        EventType.LOAD_BEGUN: _LOAD,
        EventType.LOAD_ENDED: _LOAD,
        EventType.SPILL_BEGUN: _SPILL,
        EventType.SPILL_ENDED: _SPILL,
        EventType.MANAGER_OPENED: [("blob", "V16"), ("incarnation", "<u8"), ("_d", "<i8")],
        EventType.MANAGER_CLOSED: [("_a", "V32")],
        EventType.RECOVERY_BEGUN: [("bytes_trusted", "<u8"), ("_b", "V24")],
        # replayed: events; micros: of that replay, before the incarnation's first event
        EventType.RECOVERY_ENDED: [
            ("kept", "<u8"),
            ("lost", "<u8"),
            ("replayed", "<u8"),
            ("micros", "<u8"),
        ],
        EventType.STATE_DIGEST: [("digest", "V16"), ("_c", "V16")],
        # word: 31 bits of the digest, as they stand in a page's stamp
        EventType.ABI_REGISTERED: [("blob", "V16"), ("word", "<u8"), ("_d", "<i8")],
        EventType.KERNEL_REGISTERED: [("blob", "V16"), ("ready", "<u8"), ("_d", "<i8")],
        EventType.MAPPING_REGISTERED: [("blob", "V16"), ("word", "<u8"), ("ready", "<u8")],
        EventType.TOPOLOGY_SEALED: [("blob", "V16"), ("_c", "V16")],
        EventType.RATES_OBSERVED: [
            ("tokens_per_s", "<u8"),
            ("bytes_per_s", "<u8"),
            ("load_bytes_per_s", "<u8"),
            ("_d", "<i8"),
        ],
        EventType.ADMISSION_GRANTED: _ADMISSION,
        EventType.ADMISSION_DEFERRED: _ADMISSION,
        EventType.ADMISSION_DENIED: _ADMISSION,
        EventType.COMPLETION_ANOMALY: [("identity", "<u8"), ("_b", "V24")],
        EventType.SCRUBBED: [("pages", "<u8"), ("bytes", "<u8"), ("bad", "<u8"), ("_d", "<i8")],
        # resume_at = kept + loaded + what others had left here; the rest of the prompt is computed
        EventType.REQUEST_RESUMED: [
            ("sequence", "<u8"),
            ("resume_at", "<u4"),
            ("reused", "<u4"),
            ("loaded", "<u4"),
            ("prompt", "<u4"),
            ("kept", "<u4"),
            ("source", "<u4"),
        ],
        # slices of equal size, the last one perhaps shorter; just before this event
        EventType.SLICE_DIGEST: [
            ("slice", "<u4"),
            ("num_slices", "<u4"),
            ("first_word", "<u8"),
            ("digest", "V16"),
        ],
        EventType.NUMERIC_DRIFT: [
            ("max_abs", "<f8"),
            ("cosine", "<f8"),
            ("layer", "<u4"),
            ("entries", "<u4"),
            ("tolerance", "<f8"),
        ],
        EventType.COMMAND_TAKEN: _COMMAND,
        EventType.COMMAND_ENDED: _COMMAND,
        # the first and last seqno of the range in which a reader's tables went another way
        EventType.DIVERGENCE_REPORTED: [
            ("first", "<u8"),
            ("last", "<u8"),
            ("slice", "<u8"),
            ("prefix", "V8"),
        ],
    }.items()
}
"""Named fields of each type's payload, 32 bytes each; names that begin with _ are padding."""


def decode_payload(event: np.void) -> dict[str, int | float | str]:
    """Payload fields of one event by name.

    Args:
        event: one element of an :data:`EVENT_DTYPE` array.

    Returns:
        Field name → number, or hexadecimal digits for keys and digests; empty for a type this
        version does not know.
    """
    try:
        fields = PAYLOADS[EventType(int(event["type"]))]
    except ValueError:
        return {}
    raw: npt.NDArray[np.void] = np.frombuffer(event.tobytes()[32:], dtype=fields)
    decoded: dict[str, int | float | str] = {}
    for name in fields.names or ():
        if not name.startswith("_"):
            value = raw[name][0]
            decoded[name] = value.tobytes().hex() if value.dtype.kind == "V" else value.item()
    return decoded
