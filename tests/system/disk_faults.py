"""The faults that an object on disk can come to have, each a function on its file."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvstrata.core.events import Reason
from kvstrata.tiers.format import TRAILER_BYTES, Schema
from tests.tiers.support import reseal

__all__ = ["DISK_FAULTS", "DiskDonors", "DiskFault", "File"]

_VERSION_AT = 8


@dataclass(frozen=True)
class File:
    """One object's file.

    Args:
        path: where it is.
        header_bytes: of its header; its trailer is as long as every other's.
    """

    path: Path
    header_bytes: int

    @classmethod
    def of(cls, path: Path, schema: Schema, is_checkpoint: bool) -> File:
        """The file of an object of a schema."""
        return cls(path, schema.header_bytes(is_checkpoint))


@dataclass(frozen=True)
class DiskDonors:
    """What a file could hold instead of its own bytes.

    Args:
        other_request: the object at the same place of another prompt.
        other_version: the object of the same key, by a model of other weights.
    """

    other_request: bytes
    other_version: bytes


@dataclass(frozen=True)
class DiskFault:
    """A way in which an object on disk is not what was written.

    Args:
        name: readable, in words joined by underscores.
        plant: puts it into a file.
        reason: as which it has to be found.
    """

    name: str
    plant: Callable[[File, DiskDonors], None]
    reason: Reason


def _edit(change: Callable[[bytearray, int], object]) -> Callable[[File, DiskDonors], None]:
    def plant(file: File, _: DiskDonors) -> None:
        data = bytearray(file.path.read_bytes())
        change(data, file.header_bytes)
        file.path.write_bytes(data)

    return plant


def _flip(data: bytearray, at: int) -> None:
    data[at] ^= 1


def _zero(data: bytearray, first: int) -> None:
    data[first:] = bytes(len(data) - first)


def _of_another_format(file: File, _: DiskDonors) -> None:
    """A whole header of a version to come, as its writer would seal it."""
    data = file.path.read_bytes()
    header = bytearray(data[: file.header_bytes])
    struct.pack_into("<I", header, _VERSION_AT, 2)
    first, last = reseal(bytes(header))
    file.path.write_bytes(first + data[file.header_bytes : -TRAILER_BYTES] + last)


def _folder(file: File, _: DiskDonors) -> None:
    file.path.unlink()
    file.path.mkdir()


DISK_FAULTS: Mapping[str, DiskFault] = {
    fault.name: fault
    for fault in [
        DiskFault(
            "header_bit_flipped", _edit(lambda data, _: _flip(data, 40)), Reason.OBJECT_HEADER
        ),
        DiskFault(
            "page_bit_flipped",
            _edit(lambda data, header: _flip(data, (header + len(data)) // 2)),
            Reason.CHECKSUM_MISMATCH,
        ),
        DiskFault(
            "trailer_bit_flipped", _edit(lambda data, _: _flip(data, -5)), Reason.OBJECT_TRAILER
        ),
        DiskFault("zeroed", _edit(lambda data, _: _zero(data, 0)), Reason.OBJECT_HEADER),
        DiskFault(
            "half_still_zero",
            _edit(lambda data, _: _zero(data, len(data) // 2)),
            Reason.OBJECT_TRAILER,
        ),
        DiskFault(
            "truncated",
            _edit(lambda data, _: data.__delitem__(slice(-1, None))),
            Reason.OBJECT_TRUNCATED,
        ),
        DiskFault("too_long", _edit(lambda data, _: data.append(0)), Reason.OBJECT_TOO_LONG),
        DiskFault("missing", lambda file, _: file.path.unlink(), Reason.OBJECT_MISSING),
        DiskFault("a_folder_instead", _folder, Reason.OBJECT_NOT_A_FILE),
        DiskFault(
            "of_another_request",
            lambda file, donors: file.path.write_bytes(donors.other_request) and None,
            Reason.OBJECT_KEY,
        ),
        DiskFault(
            "of_another_version",
            lambda file, donors: file.path.write_bytes(donors.other_version) and None,
            Reason.COMPRESSOR_VERSION,
        ),
        DiskFault("of_another_format", _of_another_format, Reason.OBJECT_VERSION),
    ]
}
