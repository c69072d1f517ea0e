"""Reading an object's header and trailer: nothing in them is believed before it was checked."""

from typing import Any

from crc32c import crc32c

from kvstrata.core.events import Reason
from kvstrata.core.groups import Kind

from .fields import (
    BLOCK,
    CHECKPOINT,
    CRC,
    HEAD,
    MAGIC,
    ROW,
    TRAILER,
    TRAILER_MAGIC,
    Bytes,
    Description,
    Fault,
    Header,
    Page,
)
from .schema import (
    FORMAT_VERSION,
    HEAD_BYTES,
    MAX_HEADER_BYTES,
    POSITIONS,
    ROW_BYTES,
    SEAL_BYTES,
    TRAILER_BYTES,
    ObjectId,
    Schema,
    facts_digest,
    namespace_of,
    pack_facts,
)

__all__ = ["decode", "read_any"]


def _fault(reason: Reason, what: str, expected: object, found: object, group: int = 0) -> Fault:
    shown = [value.hex() if isinstance(value, bytes) else value for value in (expected, found)]
    detail = f"{what}: expected {shown[0]}, found {shown[1]}"
    return Fault(reason, group, _word(expected), _word(found), detail)


def _word(value: object) -> int:
    if isinstance(value, bytes):
        return int.from_bytes(value[:8], "little", signed=True)
    # A damaged field may hold any 64 bits; events store them as signed.
    return (value + (1 << 63)) % (1 << 64) - (1 << 63) if isinstance(value, int) else 0


def read_any(header: Bytes) -> Description | Fault:
    """Read a header without knowing the engine's schema, as tools do.

    Args:
        header: the first bytes of an object; ``MAX_HEADER_BYTES`` are always enough, more than
            the header are no fault.

    Returns:
        What it tells, or OBJECT_TRUNCATED (there is more header than was given), OBJECT_HEADER
        or OBJECT_VERSION.
    """
    if len(header) < HEAD_BYTES + SEAL_BYTES:
        return _fault(Reason.OBJECT_TRUNCATED, "header", HEAD_BYTES + SEAL_BYTES, len(header))
    magic, version, header_bytes, *_ = fields = HEAD.unpack_from(header)
    if magic != MAGIC:
        return _fault(Reason.OBJECT_HEADER, "magic", MAGIC, magic)
    if not HEAD_BYTES + SEAL_BYTES <= header_bytes <= MAX_HEADER_BYTES or header_bytes % 64:
        return _fault(Reason.OBJECT_HEADER, "header bytes", MAX_HEADER_BYTES, header_bytes)
    if header_bytes > len(header):
        return _fault(Reason.OBJECT_TRUNCATED, "header", header_bytes, len(header))
    crc_at = header_bytes - CRC.size
    (crc,) = CRC.unpack_from(header, crc_at)
    computed = int(crc32c(memoryview(header)[:crc_at]))
    if crc != computed:
        return _fault(Reason.OBJECT_HEADER, "CRC of the header", crc, computed)
    if version != FORMAT_VERSION:
        return _fault(Reason.OBJECT_VERSION, "format version", FORMAT_VERSION, version)
    return _describe(header, fields, crc)


def _describe(header: Bytes, fields: tuple[Any, ...], crc: int) -> Description | Fault:
    """The rows, which must follow one another as the head says."""
    _, _, size, total, unit, num_parts, tokens, _, key, parent, position, layout, *facts = fields
    if size != HEAD_BYTES + num_parts * ROW_BYTES + SEAL_BYTES:
        return _fault(Reason.OBJECT_HEADER, "parts of the header", size, num_parts)
    if unit not in (BLOCK, CHECKPOINT):
        return _fault(Reason.OBJECT_HEADER, "unit", BLOCK, unit)
    if position >= POSITIONS:
        return _fault(Reason.OBJECT_HEADER, "position below", POSITIONS, position)
    pages = []
    offset = size
    for at in range(HEAD_BYTES, size - SEAL_BYTES, ROW_BYTES):
        abi, start, num_bytes, checksum, version, group, kind, _ = ROW.unpack_from(header, at)
        if start != offset:
            return _fault(Reason.OBJECT_HEADER, f"offset of group {group}", offset, start, group)
        pages.append(Page(group, kind, abi, version, start, num_bytes, checksum))
        offset += num_bytes
    if total != offset + TRAILER_BYTES:
        return _fault(Reason.OBJECT_HEADER, "object bytes", offset + TRAILER_BYTES, total)
    own = facts_digest(pack_facts(p.abi, p.num_bytes, p.version, p.group, p.kind) for p in pages)
    if facts[unit - BLOCK] != own:
        return _fault(Reason.OBJECT_HEADER, "facts of the parts", facts[unit - BLOCK], own)
    read = Header(
        ObjectId(key, unit == CHECKPOINT), parent, position, tuple(p.checksum for p in pages)
    )
    namespace = namespace_of(FORMAT_VERSION, tokens, layout, *facts)
    return Description(read, namespace, size, total, tokens, layout, tuple(pages), crc)


def decode(schema: Schema, identity: ObjectId, header: Bytes, trailer: Bytes) -> Header | Fault:
    """Check all of an object but its pages, whose checksums the caller compares.

    Args:
        schema: of the engine.
        identity: what was asked for.
        header: the first ``schema.header_bytes()`` bytes.
        trailer: the last 16 bytes.

    Returns:
        The header, or the first fault in this order: OBJECT_TRUNCATED, OBJECT_TOO_LONG,
        OBJECT_HEADER, OBJECT_VERSION, OBJECT_KEY, OBJECT_LAYOUT, ABI_MISMATCH,
        COMPRESSOR_VERSION, OBJECT_TRAILER.
    """
    expected = schema.header_bytes(identity.is_checkpoint)
    for what, wanted, given in (("header", expected, header), ("trailer", TRAILER_BYTES, trailer)):
        if len(given) != wanted:
            too_long = len(given) > wanted
            reason = Reason.OBJECT_TOO_LONG if too_long else Reason.OBJECT_TRUNCATED
            return _fault(reason, what, wanted, len(given))
    found = read_any(header)
    if isinstance(found, Fault):
        # All of the header was given: one that claims to be longer is not cut but damaged.
        is_claim = found.reason is Reason.OBJECT_TRUNCATED
        return found._replace(reason=Reason.OBJECT_HEADER) if is_claim else found
    fault = _other_object(identity, found) or _other_schema(schema, found)
    if fault is not None:
        return fault
    wanted_trailer = TRAILER.pack(TRAILER_MAGIC, found.crc, found.object_bytes)
    if trailer != wanted_trailer:
        return _fault(Reason.OBJECT_TRAILER, "trailer", wanted_trailer, bytes(trailer))
    return found.header


def _other_object(identity: ObjectId, found: Description) -> Fault | None:
    key, is_checkpoint = found.header.identity
    if key != identity.key:
        return _fault(Reason.OBJECT_KEY, "key", identity.key, key)
    if is_checkpoint != identity.is_checkpoint:
        unit, wanted = is_checkpoint + BLOCK, identity.is_checkpoint + BLOCK
        return _fault(Reason.OBJECT_KEY, "unit (1 block, 2 checkpoint)", wanted, unit)
    return None


def _other_schema(schema: Schema, found: Description) -> Fault | None:
    parts, pages = schema.parts(found.header.identity.is_checkpoint), found.pages
    layout, tokens = Reason.OBJECT_LAYOUT, schema.block_tokens
    if found.layout != schema.layout:
        return _fault(layout, "layout", schema.layout, found.layout)
    if found.block_tokens != tokens:
        return _fault(layout, "block tokens", tokens, found.block_tokens)
    if len(parts) != len(pages):
        return _fault(layout, "parts", len(parts), len(pages))
    for part, page in zip(parts, pages, strict=True):
        of = f"of group {part.group} ({part.name})"
        for what, wanted, stored in (
            ("number", part.group, page.group),
            ("kind", Kind[part.kind].value, page.kind),
            ("page bytes", part.page_bytes, page.num_bytes),
        ):
            if wanted != stored:
                return _fault(layout, f"{what} {of}", wanted, stored, part.group)
        if part.abi != page.abi:
            return _fault(Reason.ABI_MISMATCH, f"ABI {of}", part.abi, page.abi, part.group)
        if part.version != page.version:
            reason = Reason.COMPRESSOR_VERSION
            return _fault(reason, f"mapping {of}", part.version, page.version, part.group)
    if found.namespace != schema.namespace:
        # The other kind of object differs: a checkpoint's ABI, seen from a block.
        expected, stored_at = bytes.fromhex(schema.namespace), bytes.fromhex(found.namespace)
        return _fault(layout, "namespace", expected, stored_at)
    return None
