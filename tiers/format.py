"""The bytes of a stored object: header, pages without gaps, trailer; docs/format.md shows them.

All numbers are little-endian. The header's CRC32C covers the header, the trailer repeats what it
must say, and the pages have the checksums that the header tells (``docs/checksum.md``): no byte
of an object is believed unchecked. Equal contents give equal bytes.
"""

from crc32c import crc32c

from kvstrata.core.errors import InvariantViolation
from kvstrata.core.groups import Kind

from .fields import (
    BLOCK,
    CHECKPOINT,
    CRC,
    HEAD,
    MAGIC,
    ROW,
    SEAL,
    TRAILER,
    TRAILER_MAGIC,
    Description,
    Fault,
    Header,
    Page,
)
from .reading import decode, read_any
from .schema import (
    FORMAT_VERSION,
    HEAD_BYTES,
    KEY_BYTES,
    MAX_HEADER_BYTES,
    ROW_BYTES,
    SEAL_BYTES,
    TRAILER_BYTES,
    ObjectId,
    Part,
    Schema,
    parse_name,
)

__all__ = [
    "FORMAT_VERSION",
    "MAX_HEADER_BYTES",
    "TRAILER_BYTES",
    "Description",
    "Fault",
    "Header",
    "ObjectId",
    "Page",
    "Part",
    "Schema",
    "decode",
    "encode",
    "parse_name",
    "read_any",
]


def encode(schema: Schema, header: Header) -> tuple[bytes, bytes]:
    """The bytes before and after an object's pages.

    Args:
        schema: of the engine.
        header: one checksum a part.

    Returns:
        Header, ``schema.header_bytes()`` long, and trailer, 16 bytes.

    Raises:
        InvariantViolation: a header that does not fit the schema.
    """
    key, is_checkpoint = header.identity
    parts = schema.parts(is_checkpoint)
    fits = len(parts) == len(header.checksums) and len(key) == len(header.parent) == KEY_BYTES
    if not fits or not parts:
        raise InvariantViolation(f"object format: {header} does not fit {len(parts)} parts")
    header_bytes, object_bytes = (
        schema.header_bytes(is_checkpoint),
        schema.object_bytes(is_checkpoint),
    )
    packed = bytearray(header_bytes)
    HEAD.pack_into(
        packed, 0, MAGIC, FORMAT_VERSION, header_bytes, object_bytes,
        CHECKPOINT if is_checkpoint else BLOCK, len(parts), schema.block_tokens, b"", key,
        header.parent, header.position, schema.layout, schema.block_facts, schema.checkpoint_facts,
    )  # fmt: skip
    offset = header_bytes
    for index, (part, checksum) in enumerate(zip(parts, header.checksums, strict=True)):
        ROW.pack_into(
            packed, HEAD_BYTES + index * ROW_BYTES, part.abi, offset, part.page_bytes, checksum,
            part.version, part.group, Kind[part.kind].value, b"",
        )  # fmt: skip
        offset += part.page_bytes
    crc = int(crc32c(memoryview(packed)[: -CRC.size]))
    SEAL.pack_into(packed, header_bytes - SEAL_BYTES, b"", crc)
    return bytes(packed), TRAILER.pack(TRAILER_MAGIC, crc, object_bytes)
