"""Objects of format version 1, byte for byte: what was stored once is read for ever.

The files hold 32 bytes a line, in hex. They are never written anew: another format has another
version and files of its own.
"""

import hashlib
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from kvstrata.core.checksum import checksum_bytes
from kvstrata.tiers.format import Description, ObjectId, decode, encode, read_any

from .support import SCHEMA, block_id, checkpoint_id, header_of, make_object

GOLDEN = Path(__file__).resolve().parent / "golden"
NAMESPACE = "b5d61c2a8962cd4f64947f2553ea8efa"
FILES = {"version-1-block.hex": block_id(1), "version-1-checkpoint.hex": checkpoint_id(2)}

each_file = pytest.mark.parametrize(("name", "identity"), FILES.items())


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / name).read_text(encoding="ascii"))


@each_file
def test_objects_are_written_so(name: str, identity: ObjectId) -> None:
    assert make_object(identity).data == golden(name)


@each_file
def test_objects_are_read_so(name: str, identity: ObjectId) -> None:
    data = golden(name)
    size = SCHEMA.header_bytes(identity.is_checkpoint)
    written = header_of(SCHEMA, identity)
    assert decode(SCHEMA, identity, data[:size], data[-16:]) == written
    assert encode(SCHEMA, written) == (data[:size], data[-16:])
    found = read_any(data)
    assert isinstance(found, Description)
    assert (found.namespace, found.header) == (NAMESPACE, written)
    for page in found.pages:
        assert checksum_bytes(data[page.offset :][: page.num_bytes]) == page.checksum


@each_file
def test_a_stranger_reads_them_by_the_page_alone(name: str, identity: ObjectId) -> None:
    """Written from docs/format.md, without a line of the package."""
    data = golden(name)
    magic, version, size, total, unit, parts, tokens = struct.unpack_from("<8sIIQIII", data)
    assert (magic, version, total) == (b"kvs-objt", 1, len(data))
    assert (unit, size) == (2 if identity.is_checkpoint else 1, 128 + 64 * parts + 64)
    assert data[40:56] == identity.key
    (crc,) = struct.unpack_from("<I", data, size - 4)
    assert crc == crc32c(data[: size - 4])
    assert data[-16:] == struct.pack("<4sIQ", b"KVST", crc, total)
    facts, offset = b"", size
    for at in range(128, size - 64, 64):
        abi, start, length, _, mapping, group, kind = struct.unpack_from("<16sQQqQII", data, at)
        assert start == offset
        facts += struct.pack("<16sQQII", abi, length, mapping, group, kind)
        offset += length
    assert offset + 16 == total
    assert hashlib.sha256(facts).digest()[:16] == data[80 + 16 * unit :][:16]
    agreed = struct.pack("<II", version, tokens) + data[80:128]
    assert hashlib.sha256(agreed).hexdigest()[:32] == NAMESPACE
