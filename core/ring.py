"""The ring between the mutating thread and the log writer, and how an event gets into it.

An int64 array: 512 header words (the *status page*), then ``capacity`` events of eight words.
The event with seqno s (the first is 1) stands at place ``(s - 1) % capacity``. The mutating
thread writes events and publishes a whole call by one release store of the head; the writer
alone moves RING_DRAINED and RING_DURABLE. Cursors: durable ≤ drained ≤ head.
"""

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .compile import helper
from .errors import ConfigError
from .events import EVENT_WORDS, LAST_OF_CALL
from .views import (
    COMPILES,
)
from .words import (
    META_LAST_SEQNO,
    Arena,
)

__all__ = [
    "RING_FLAG_CLOSED",
    "RING_FLAG_POISONED",
    "RING_FLAG_UNLOGGED",
    "RING_HEADER_WORDS",
    "new_ring",
    "publish",
    "ring_bytes",
]

RING_HEADER_WORDS: Final = 512
RING_MAGIC_VALUE: Final = 0x6B76_735F_7269_6E67  # "kvs_ring"
(
    RING_MAGIC,
    RING_CAPACITY,
    RING_HEAD,
    RING_DRAINED,
    RING_DURABLE,
    RING_FLAGS,
    RING_HEARTBEAT_NS,
    RING_INCARNATION,
    RING_BOOT_ID_0,
    RING_BOOT_ID_1,
    RING_STALLS,
    RING_PID,
) = range(12)

RING_FLAG_POISONED: Final = 1
RING_FLAG_UNLOGGED: Final = 2
RING_FLAG_CLOSED: Final = 4


def ring_bytes(capacity: int) -> int:
    """Size of a ring of ``capacity`` events."""
    return (RING_HEADER_WORDS + capacity * EVENT_WORDS) * 8


def new_ring(capacity: int, memory: Any = None) -> Arena:
    """A ring over ``memory`` (a writable buffer of :func:`ring_bytes`), or over private memory.

    Args:
        capacity: events, a power of two, at least 64.
        memory: what to lay it over; its header is initialised.

    Raises:
        ConfigError: the capacity is no power of two.
    """
    if capacity < 64 or capacity & (capacity - 1):
        raise ConfigError(f"ring capacity: expected a power of two >= 64 events, found {capacity}")
    words = RING_HEADER_WORDS + capacity * EVENT_WORDS
    ring: Arena
    if memory is None:
        ring = np.zeros(words, dtype=np.int64)
    else:
        ring = np.frombuffer(memory, dtype=np.int64, count=words)
        ring[:RING_HEADER_WORDS] = 0
    ring[RING_CAPACITY] = capacity
    ring[RING_MAGIC] = RING_MAGIC_VALUE
    return ring


@intrinsic
def _atomic_store(typingctx: Any, array: Any, place: Any, value: Any) -> Any:
    """Store one word after everything stored before it."""
    signature = types.void(array, types.intp, types.int64)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.gep(view.data, [args[1]])
        builder.store_atomic(args[2], pointer, ordering="release", align=8)
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return signature, codegen


def plain_store(array: Arena, place: int, value: int) -> None:
    """Python twin of the ordered store."""
    array[place] = value


store_release: Any = _atomic_store if COMPILES else plain_store


@helper
def publish(arena: Arena, ring: Arena) -> None:
    """Make every event applied since the last call visible, by one ordered store."""
    head = arena[META_LAST_SEQNO]
    if head != ring[RING_HEAD]:
        place = (head - 1) & (ring[RING_CAPACITY] - 1)
        ring[RING_HEADER_WORDS + place * EVENT_WORDS + 2] |= LAST_OF_CALL << 40
        store_release(ring, RING_HEAD, head)
