"""Names, codes and sizes of an object's fields, and the values that reading them gives."""

import struct
from typing import Final, NamedTuple

from kvstrata.core.errors import InvariantViolation
from kvstrata.core.events import Reason

from .schema import HEAD_BYTES, ROW_BYTES, SEAL_BYTES, TRAILER_BYTES, ObjectId

__all__ = [
    "BLOCK",
    "CHECKPOINT",
    "CRC",
    "HEAD",
    "HEAD_FIELDS",
    "MAGIC",
    "ROW",
    "ROW_FIELDS",
    "SEAL",
    "SEAL_FIELDS",
    "TRAILER",
    "TRAILER_FIELDS",
    "TRAILER_MAGIC",
    "Bytes",
    "Description",
    "Fault",
    "Header",
    "Page",
    "bytes_of",
]

Bytes = bytes | bytearray | memoryview

MAGIC: Final = b"kvs-objt"
TRAILER_MAGIC: Final = b"KVST"
BLOCK: Final = 1
CHECKPOINT: Final = 2

# Names and struct codes, in order; a test holds docs/format.md against them.
HEAD_FIELDS: Final = (
    ("magic", "8s"),
    ("format version", "I"),
    ("header bytes", "I"),
    ("object bytes", "Q"),
    ("unit", "I"),
    ("parts", "I"),
    ("block tokens", "I"),
    ("zero", "4s"),
    ("key", "16s"),
    ("parent key", "16s"),
    ("position", "Q"),
    ("layout digest", "16s"),
    ("block facts", "16s"),
    ("checkpoint facts", "16s"),
)
ROW_FIELDS: Final = (
    ("ABI digest", "16s"),
    ("offset", "Q"),
    ("length", "Q"),
    ("page checksum", "q"),
    ("mapping version", "Q"),
    ("group", "I"),
    ("kind", "I"),
    ("zero", "8s"),
)
SEAL_FIELDS: Final = (("zero", "60s"), ("CRC", "I"))
TRAILER_FIELDS: Final = (("magic", "4s"), ("header's CRC", "I"), ("object bytes", "Q"))


def _struct(fields: tuple[tuple[str, str], ...], num_bytes: int) -> struct.Struct:
    packed = struct.Struct("<" + "".join(code for _, code in fields))
    if packed.size != num_bytes:
        raise InvariantViolation(f"object format: {packed.size} bytes, expected {num_bytes}")
    return packed


def bytes_of(fields: tuple[tuple[str, str], ...], name: str) -> slice:
    """Where a field lies among these. Raises InvariantViolation where there is none."""
    at = 0
    for known, code in fields:
        end = at + struct.calcsize(f"<{code}")
        if known == name:
            return slice(at, end)
        at = end
    raise InvariantViolation(f"object format: expected a field {name!r}, found none")


HEAD: Final = _struct(HEAD_FIELDS, HEAD_BYTES)
ROW: Final = _struct(ROW_FIELDS, ROW_BYTES)
SEAL: Final = _struct(SEAL_FIELDS, SEAL_BYTES)
TRAILER: Final = _struct(TRAILER_FIELDS, TRAILER_BYTES)
CRC: Final = struct.Struct("<I")


class Header(NamedTuple):
    """What an object tells beyond its engine's schema.

    Attributes:
        identity: which object it is.
        parent: key of the block before, zeros at the root and for checkpoints.
        position: position of the block in its sequence, or of the checkpoint, in tokens.
        checksums: of the pages, signed 64-bit, in part order.
    """

    identity: ObjectId
    parent: bytes
    position: int
    checksums: tuple[int, ...]


class Fault(NamedTuple):
    """Why an object is not used; a value, no exception.

    Attributes:
        reason: one of the OBJECT reasons, ABI_MISMATCH or COMPRESSOR_VERSION.
        group: number of the group, 0 where it is not about one.
        expected: what should stand there: the number, or the first 8 bytes of a digest or key,
            as a signed 64-bit integer.
        found: what stands there, in the same form.
        detail: one line for people.
    """

    reason: Reason
    group: int
    expected: int
    found: int
    detail: str


class Page(NamedTuple):
    """One row of a header: where a page lies and what it is; ``kind`` is the number."""

    group: int
    kind: int
    abi: bytes
    version: int
    offset: int
    num_bytes: int
    checksum: int


class Description(NamedTuple):
    """All that a header tells to a reader who knows no schema."""

    header: Header
    namespace: str
    header_bytes: int
    object_bytes: int
    block_tokens: int
    layout: bytes
    pages: tuple[Page, ...]
    crc: int
