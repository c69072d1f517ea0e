"""Damages that a stored object may have, and what is to be told of each."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kvstrata.tiers.format import Header, ObjectId, Schema, encode


@dataclass(frozen=True)
class Fault:
    """A damage, what is to be told of it, and whether the object is set aside."""

    damage: Callable[[Path, Schema], None]
    reason: str
    is_aside: bool = True


def cut(length: int) -> Callable[[Path, Schema], None]:
    return lambda path, _: os.truncate(path, length)


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path, Schema], None]:
    return lambda path, _: put(path, change(path.read_bytes()))


def put(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def another_key(path: Path, _: Schema) -> None:
    others = [one for one in path.parent.parent.rglob(f"*{path.suffix}") if one != path]
    put(path, others[0].read_bytes() if others else b"")


def written_with(**changes: object) -> Callable[[Path, Schema], None]:
    """As an engine with another schema would have written it, under this name."""

    def damage(path: Path, schema: Schema) -> None:
        put(path, forged(path, schema, replace(schema, **changes)))  # type: ignore[arg-type]

    return damage


def with_part(**changes: object) -> Callable[[Path, Schema], None]:
    """The same with another first group."""

    def damage(path: Path, schema: Schema) -> None:
        kind = "checkpoints" if path.suffix == ".checkpoint" else "blocks"
        first, *rest = getattr(schema, kind)
        other = replace(schema, **{kind: (replace(first, **changes), *rest)})
        put(path, forged(path, schema, other))

    return damage


def forged(path: Path, mine: Schema, other: Schema) -> bytes:
    """An object of the same pages whose header says another schema; all its checks agree."""
    identity = ObjectId(bytes.fromhex(path.stem), path.suffix == ".checkpoint")
    sizes = [part.page_bytes for part in other.parts(identity.is_checkpoint)]
    pages = path.read_bytes()[mine.header_bytes(identity.is_checkpoint) : -16]
    sums = tuple(range(len(sizes)))
    first, last = encode(other, Header(identity, bytes(16), 64, sums))
    return first + pages.ljust(sum(sizes), b"\0")[: sum(sizes)] + last


def a_folder(path: Path, _: Schema) -> None:
    path.unlink()
    path.mkdir()


FAULTS = {
    "empty": Fault(cut(0), "OBJECT_TRUNCATED"),
    "one byte": Fault(cut(1), "OBJECT_TRUNCATED"),
    "cut inside the header": Fault(cut(100), "OBJECT_TRUNCATED"),
    "cut inside a page": Fault(
        edited(lambda data: data[: len(data) // 2 + 60]), "OBJECT_TRUNCATED"
    ),
    "a byte short": Fault(edited(lambda data: data[:-1]), "OBJECT_TRUNCATED"),
    "a byte more": Fault(edited(lambda data: data + b"\0"), "OBJECT_TOO_LONG"),
    "twice": Fault(edited(lambda data: data + data), "OBJECT_TOO_LONG"),
    "zeros": Fault(edited(lambda data: bytes(len(data))), "OBJECT_HEADER"),
    "zeros from the header on": Fault(
        edited(lambda data: data[:384].ljust(len(data), b"\0")), "OBJECT_TRAILER"
    ),
    "zeros in a page": Fault(
        edited(lambda data: data[:-80] + bytes(64) + data[-16:]), "CHECKSUM_MISMATCH"
    ),
    "zeros at its end": Fault(edited(lambda data: data[:-16] + bytes(16)), "OBJECT_TRAILER"),
    "another layout": Fault(written_with(layout=b"another layout!!"), "OBJECT_LAYOUT"),
    "another dtype": Fault(with_part(abi=b"float8, not bf16"), "ABI_MISMATCH"),
    "another mapping": Fault(with_part(version=7), "COMPRESSOR_VERSION"),
    "another kind": Fault(with_part(kind="INDEXER"), "OBJECT_LAYOUT"),
    "a folder": Fault(a_folder, "OBJECT_NOT_A_FILE"),
    "a link to nowhere": Fault(
        lambda path, _: (path.unlink(), path.symlink_to("nowhere"))[0], "OBJECT_NOT_A_FILE"
    ),
    "gone": Fault(lambda path, _: path.unlink(), "OBJECT_MISSING", is_aside=False),
}
