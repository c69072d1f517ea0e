"""Header and trailer: what is written is read, and docs/format.md says where it stands."""

import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstrata.core.errors import ConfigError, InvariantViolation
from kvstrata.core.events import Reason
from kvstrata.core.groups import Kind
from kvstrata.tiers import fields
from kvstrata.tiers.format import (
    MAX_HEADER_BYTES,
    Description,
    Fault,
    Header,
    ObjectId,
    Part,
    Schema,
    decode,
    encode,
    parse_name,
    read_any,
)

from .support import SCHEMA, block_id, checkpoint_id, header_of, make_object, reseal

PAGE = Path(__file__).resolve().parents[2] / "docs" / "format.md"
BOTH = pytest.mark.parametrize("identity", [block_id(1), checkpoint_id(2)], ids=["block", "image"])


def read_whole(header: bytes) -> Description:
    found = read_any(header)
    assert isinstance(found, Description), found
    return found


def fault_of(found: Header | Description | Fault) -> Fault:
    assert isinstance(found, Fault), found
    return found


@BOTH
def test_what_is_written_is_read(identity: ObjectId) -> None:
    written = header_of(SCHEMA, identity)
    header, trailer = encode(SCHEMA, written)
    assert (len(header), len(trailer)) == (SCHEMA.header_bytes(identity.is_checkpoint), 16)
    assert decode(SCHEMA, identity, header, trailer) == written
    whole = make_object(identity)
    assert len(whole.data) == SCHEMA.object_bytes(identity.is_checkpoint)
    assert len(header) % 64 == 0


@BOTH
def test_a_tool_without_a_schema_reads_all_of_it(identity: ObjectId) -> None:
    whole = make_object(identity)
    found = read_whole(whole.data[:MAX_HEADER_BYTES])
    assert found.header == header_of(SCHEMA, identity)
    assert found.namespace == SCHEMA.namespace
    assert (found.object_bytes, found.header_bytes) == (len(whole.data), len(whole.header))
    assert (found.layout, found.block_tokens) == (SCHEMA.layout, SCHEMA.block_tokens)
    for part, page, data in zip(
        SCHEMA.parts(identity.is_checkpoint), found.pages, whole.pages, strict=True
    ):
        assert whole.data[page.offset : page.offset + page.num_bytes] == data
        assert (page.group, Kind(page.kind).name, page.abi, page.version) == (
            part.group,
            part.kind,
            part.abi,
            part.version,
        )


@given(
    numbers=st.lists(st.tuples(st.sampled_from(Kind), st.integers(1, 1 << 40)), min_size=1),
    key=st.binary(min_size=16, max_size=16),
    parent=st.binary(min_size=16, max_size=16),
    position=st.one_of(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)),
    data=st.data(),
)
def test_any_header_is_read_as_written(
    numbers: list[tuple[Kind, int]], key: bytes, parent: bytes, position: int, data: st.DataObject
) -> None:
    parts = tuple(
        Part(group, "g", kind.name, size, bytes([group]) * 16, (1 << 64) - 1 - group)
        for group, (kind, size) in enumerate(numbers)
    )
    schema = Schema(b"l" * 16, 64, parts, ())
    checksum = st.integers(-(1 << 63), (1 << 63) - 1)
    checksums = data.draw(st.tuples(*[checksum] * len(parts)))
    written = Header(ObjectId(key, False), parent, position, checksums)
    header, trailer = encode(schema, written)
    found = decode(schema, written.identity, header, trailer)
    if position >= 1 << 32:
        assert isinstance(found, Fault)
        assert found.reason is Reason.OBJECT_HEADER
        # Events have 64 signed bits for it; in words it is whole.
        assert found.found % (1 << 64) == position
        assert found.detail.endswith(f"found {position}")
        return
    assert found == written
    assert read_whole(header).namespace == schema.namespace


def test_names_are_parsed_as_they_were_made() -> None:
    for identity in (block_id(5), checkpoint_id(5)):
        assert parse_name(SCHEMA.object_name(identity)) == (SCHEMA.namespace, identity)


@pytest.mark.parametrize(
    "change",
    [
        {"layout": b"L" * 16},
        {"block_tokens": 64},
        {"blocks": (replace(SCHEMA.blocks[0], abi=b"x" * 16), SCHEMA.blocks[1])},
        {"blocks": (replace(SCHEMA.blocks[0], version=8), SCHEMA.blocks[1])},
        {"blocks": (replace(SCHEMA.blocks[0], page_bytes=256), SCHEMA.blocks[1])},
        {"blocks": (replace(SCHEMA.blocks[0], kind="SWA"), SCHEMA.blocks[1])},
        {"blocks": SCHEMA.blocks[:1]},
        {"checkpoints": ()},
        {"checkpoints": (replace(SCHEMA.checkpoints[0], abi=b"x" * 16), SCHEMA.checkpoints[1])},
    ],
    ids=str,
)
def test_every_fact_makes_another_namespace(change: dict[str, bytes]) -> None:
    assert replace(SCHEMA, **change).namespace != SCHEMA.namespace  # type: ignore[arg-type]


def test_a_group_s_name_is_no_fact() -> None:
    renamed = replace(SCHEMA, blocks=tuple(replace(part, name="other") for part in SCHEMA.blocks))
    assert renamed.namespace == SCHEMA.namespace


FORGERIES = {
    "unit": (24, struct.pack("<I", 3), Reason.OBJECT_HEADER),
    "parts": (28, struct.pack("<I", 3), Reason.OBJECT_HEADER),
    "header bytes": (12, struct.pack("<I", 0), Reason.OBJECT_HEADER),
    "a longer header": (12, struct.pack("<I", 640), Reason.OBJECT_HEADER),
    "a huge header": (12, struct.pack("<I", (1 << 32) - 64), Reason.OBJECT_HEADER),
    "object bytes": (16, struct.pack("<Q", 593), Reason.OBJECT_HEADER),
    "first offset": (128 + 16, struct.pack("<Q", 319), Reason.OBJECT_HEADER),
    "second offset": (192 + 16, struct.pack("<Q", 320), Reason.OBJECT_HEADER),
    "length": (128 + 24, struct.pack("<Q", (1 << 64) - 1), Reason.OBJECT_HEADER),
    "facts": (96, b"f" * 16, Reason.OBJECT_HEADER),
    "magic": (0, b"kvs-segm", Reason.OBJECT_HEADER),
    "version": (8, struct.pack("<I", 2), Reason.OBJECT_VERSION),
    "the other facts": (112, b"f" * 16, Reason.OBJECT_LAYOUT),
    "block tokens": (32, struct.pack("<I", 64), Reason.OBJECT_LAYOUT),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_header_whose_crc_agrees_is_not_believed_either(what: str) -> None:
    at, value, reason = FORGERIES[what]
    forged = bytearray(make_object(block_id(1)).header)
    forged[at : at + len(value)] = value
    header, trailer = reseal(bytes(forged))
    found = fault_of(decode(SCHEMA, block_id(1), header, trailer))
    assert found.reason is reason, found
    assert found.expected != found.found


@pytest.mark.parametrize(
    ("header_bytes", "trailer_bytes", "reason"),
    [
        (319, 16, Reason.OBJECT_TRUNCATED),
        (0, 16, Reason.OBJECT_TRUNCATED),
        (320, 15, Reason.OBJECT_TRUNCATED),
        (384, 16, Reason.OBJECT_TOO_LONG),
        (320, 17, Reason.OBJECT_TOO_LONG),
    ],
)
def test_too_few_or_too_many_bytes(header_bytes: int, trailer_bytes: int, reason: Reason) -> None:
    whole = make_object(block_id(1))
    header, trailer = whole.header + bytes(64), whole.trailer + bytes(1)
    found = decode(SCHEMA, block_id(1), header[:header_bytes], trailer[:trailer_bytes])
    assert fault_of(found).reason is reason


@pytest.mark.parametrize("num_bytes", range(0, 320, 16))
def test_a_tool_is_told_that_it_needs_more_of_the_header(num_bytes: int) -> None:
    found = fault_of(read_any(make_object(block_id(1)).header[:num_bytes]))
    assert found.reason is Reason.OBJECT_TRUNCATED


def test_a_fault_tells_group_numbers_and_a_line_for_people() -> None:
    other = replace(SCHEMA.blocks[1], abi=b"\xff" * 16)
    schema = replace(SCHEMA, blocks=(SCHEMA.blocks[0], other))
    whole = make_object(block_id(1))
    found = fault_of(decode(schema, block_id(1), whole.header, whole.trailer))
    assert found.reason is Reason.ABI_MISMATCH
    assert (found.group, found.expected) == (1, -1)
    assert found.found == int.from_bytes(b"\xa1" * 8, "little", signed=True)
    assert found.detail == f"ABI of group 1 (group1): expected {'ff' * 16}, found {'a1' * 16}"


def test_numbers_are_told_as_they_are() -> None:
    whole = make_object(block_id(1), replace(SCHEMA, block_tokens=64))
    found = fault_of(decode(SCHEMA, block_id(1), whole.header, whole.trailer))
    assert (found.expected, found.found) == (128, 64)
    assert found.detail == "block tokens: expected 128, found 64"


@pytest.mark.parametrize(
    "change",
    [
        {"group": -1},
        {"group": 256},
        {"kind": "compressed"},
        {"page_bytes": 0},
        {"abi": b"short"},
        {"version": -1},
        {"version": 1 << 64},
    ],
    ids=str,
)
def test_a_part_that_no_header_can_hold_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        replace(SCHEMA.blocks[0], **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"layout": b""},
        {"block_tokens": 0},
        {"block_tokens": 1 << 32},
        {"blocks": ()},
        {"blocks": SCHEMA.blocks[::-1]},
        {"checkpoints": SCHEMA.checkpoints[:1] * 2},
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="object format"):
        replace(SCHEMA, **change)  # type: ignore[arg-type]


def test_a_header_for_other_parts_is_a_bug() -> None:
    header = header_of(SCHEMA, block_id(1))
    with pytest.raises(InvariantViolation, match="2 parts"):
        encode(SCHEMA, header._replace(checksums=(1,)))
    with pytest.raises(InvariantViolation, match="0 parts"):
        encode(
            replace(SCHEMA, checkpoints=()),
            header._replace(identity=checkpoint_id(1), checksums=()),
        )


TABLES = {
    "head": fields.HEAD_FIELDS,
    "row": fields.ROW_FIELDS,
    "seal": fields.SEAL_FIELDS,
    "trailer": fields.TRAILER_FIELDS,
}


def documented(name: str) -> list[list[str]]:
    (table,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    return [
        [cell.strip(" `") for cell in line.strip().strip("|").split("|")]
        for line in table.strip().splitlines()[2:]
    ]


@pytest.mark.parametrize("name", TABLES)
def test_the_page_s_tables_are_the_constants(name: str) -> None:
    found = [(int(byte), int(size), field) for byte, size, field, _ in documented(name)]
    at, expected = 0, []
    for field, code in TABLES[name]:
        expected.append((at, struct.calcsize(f"<{code}"), field))
        at += struct.calcsize(f"<{code}")
    assert found == expected


def test_the_page_tells_the_magics_version_units_and_kinds() -> None:
    head, row = (
        {field: what for _, _, field, what in documented(name)} for name in ("head", "row")
    )
    assert head["magic"] == fields.MAGIC.decode()
    assert head["format version"] == str(
        fields.HEAD.unpack_from(make_object(block_id(1)).header)[1]
    )
    assert head["unit"] == f"{fields.BLOCK} block, {fields.CHECKPOINT} checkpoint"
    assert row["kind"] == ", ".join(f"{kind.value} {kind.name}" for kind in Kind)
    assert documented("trailer")[0][3] == fields.TRAILER_MAGIC.decode()


def test_the_page_names_every_reason_an_object_can_have() -> None:
    named = [reason for _, reason, _ in documented("reasons")]
    objects = [reason.name for reason in Reason if reason.name.startswith("OBJECT_")]
    others = ["CHECKSUM_MISMATCH", "ABI_MISMATCH", "COMPRESSOR_VERSION"]
    assert sorted(named) == sorted([*objects, *others])
