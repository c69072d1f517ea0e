"""Whether a stored object is whole, asked of the object alone: no engine's schema is needed."""

from __future__ import annotations

from kvstrata.core.checksum import checksum_bytes
from kvstrata.core.events import Reason

from .fields import TRAILER, TRAILER_MAGIC, Description, Fault
from .reading import read_any
from .schema import MAX_HEADER_BYTES, TRAILER_BYTES, parse_name
from .store import Store, StoredObject, StoreFault

__all__ = ["check_object", "describe", "is_held"]


def describe(store: Store, stored: StoredObject) -> Description | Fault:
    """Read an object's header and hold it against its name and its size.

    Args:
        store: where it is.
        stored: as the store lists it.

    Returns:
        What the header tells, or what is wrong; OBJECT_MISSING where it has gone meanwhile.

    Raises:
        StoreFault: the store as a whole does not answer.
    """
    try:
        found = read_any(store.head_bytes(stored.name, MAX_HEADER_BYTES))
    except StoreFault as error:
        return _of(error)
    if isinstance(found, Fault):
        return found
    if parse_name(stored.name) != (found.namespace, found.header.identity):
        key, unit = found.header.identity
        told = f"{found.namespace}/{key.hex()}{' checkpoint' if unit else ''}"
        return _fault(Reason.OBJECT_KEY, "name", 0, 0, f"{stored.name}, found the object {told}")
    size, expected = stored.num_bytes, found.object_bytes
    if size != expected:
        reason = Reason.OBJECT_TRUNCATED if size < expected else Reason.OBJECT_TOO_LONG
        return _fault(reason, "bytes", expected, size)
    return found


def check_object(store: Store, stored: StoredObject) -> Fault | None:
    """Read an object whole and check every byte of it.

    Args:
        store: where it is.
        stored: as the store lists it.

    Returns:
        The first fault, or None where it is whole.

    Raises:
        StoreFault: the store as a whole does not answer.
    """
    told = describe(store, stored)
    if isinstance(told, Fault):
        return told
    sizes = (told.header_bytes, *(page.num_bytes for page in told.pages), TRAILER_BYTES)
    header, *pages, trailer = parts = [bytearray(size) for size in sizes]
    try:
        store.read(stored.name, [memoryview(part) for part in parts])
    except StoreFault as error:
        return _of(error)
    if read_any(header) != told:
        return _fault(Reason.OBJECT_HEADER, "header", 0, 0, "the one read before, found another")
    for index, (row, page) in enumerate(zip(told.pages, pages, strict=True)):
        checksum = checksum_bytes(page)
        if checksum != row.checksum:
            what = f"checksum of page {index}, group {row.group}"
            return _fault(Reason.CHECKSUM_MISMATCH, what, row.checksum, checksum, group=row.group)
    expected = TRAILER.pack(TRAILER_MAGIC, told.crc, told.object_bytes)
    if trailer != expected:
        shown = f"{expected.hex()}, found {trailer.hex()}"
        return _fault(Reason.OBJECT_TRAILER, "trailer", 0, 0, shown)
    return None


def is_held(store: Store, name: str) -> bool:
    """Whether a store has an object of that name, or something that may be one.

    Raises:
        StoreFault: the store does not answer.
    """
    try:
        return store.size(name) is not None
    except StoreFault as error:
        if error.reason in (Reason.OBJECT_NOT_A_FILE, Reason.OBJECT_KEY):
            return False
        raise


def _of(error: StoreFault) -> Fault:
    """A fault of one object as a value; an outage says nothing about the object."""
    if error.is_outage:
        raise error
    return Fault(error.reason, 0, 0, 0, " ".join(str(error).split()))


def _fault(
    reason: Reason, what: str, expected: int, found: int, shown: str = "", group: int = 0
) -> Fault:
    detail = f"{what}: expected {shown or f'{expected}, found {found}'}"
    return Fault(reason, group, expected, found, detail)
