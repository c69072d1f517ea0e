"""The watermark: a small file that keeps what is known durable.

Two slots take turns, so that a torn write leaves the other one. It is written after each sync
and so never says more than the device holds; it may say less. It is what tells a torn tail from
damage to acknowledged events when no later batch does.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from .formats import FORMAT_VERSION, RECORD_BYTES, Buffer, is_whole, seal_record
from .system import System, write_whole

__all__ = ["WATERMARK_SLOT_BYTES", "Watermark", "WatermarkFile", "read_watermark"]

WATERMARK_MAGIC: Final = b"kvs-mark"
WATERMARK_SLOT_BYTES: Final = 4096
_WATERMARK: Final = struct.Struct("<8sIIQQQQQQ")


@dataclass(frozen=True)
class Watermark:
    """What is known durable; ``turn`` counts writes, the higher of two slots holds."""

    turn: int
    durable_seqno: int
    segment_id: int
    offset: int
    incarnation: int

    def pack(self) -> bytes:
        """64 bytes."""
        fields = _WATERMARK.pack(
            WATERMARK_MAGIC, 0, FORMAT_VERSION, self.turn, self.durable_seqno, self.segment_id,
            self.offset, self.incarnation, 0,
        )  # fmt: skip
        return seal_record(fields, 8, RECORD_BYTES)

    @classmethod
    def unpack(cls, data: Buffer) -> Self | None:
        """The watermark in ``data``, or None where it is not whole."""
        if bytes(data[:8]) != WATERMARK_MAGIC or not is_whole(data, 8, RECORD_BYTES):
            return None
        _, _, version, turn, durable, segment, offset, incarnation, _ = _WATERMARK.unpack_from(data)
        if version != FORMAT_VERSION:
            return None
        return cls(turn, durable, segment, offset, incarnation)


def read_watermark(path: Path) -> tuple[Watermark | None, bool]:
    """The watermark, and whether the file is damaged.

    Returns:
        The newer whole slot (None: there is none), and True where a slot holds bytes that are
        no watermark.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, False
    found: list[Watermark] = []
    damaged = False
    for start in (0, WATERMARK_SLOT_BYTES):
        slot = data[start : start + RECORD_BYTES]
        mark = Watermark.unpack(slot)
        if mark is not None:
            found.append(mark)
        elif any(slot):
            damaged = True
    return max(found, key=lambda mark: mark.turn, default=None), damaged


class WatermarkFile:
    """The open watermark of the directory's writer."""

    def __init__(self, system: System, path: Path) -> None:
        last, _ = read_watermark(path)
        self._system = system
        self._turn = last.turn if last is not None else 0
        self._descriptor = system.open(path, os.O_CREAT | os.O_RDWR)
        if os.fstat(self._descriptor).st_size < 2 * WATERMARK_SLOT_BYTES:
            system.fallocate(self._descriptor, 2 * WATERMARK_SLOT_BYTES)
            system.fdatasync(self._descriptor)
            system.sync_directory(path.parent)

    def write(self, durable_seqno: int, segment_id: int, offset: int, incarnation: int) -> None:
        """Store what a sync has just made durable. Raises OSError."""
        self._turn += 1
        mark = Watermark(self._turn, durable_seqno, segment_id, offset, incarnation)
        slot = self._turn % 2 * WATERMARK_SLOT_BYTES
        write_whole(self._system, self._descriptor, [mark.pack()], slot)

    def sync(self) -> None:
        """Make the watermark itself durable. Raises OSError."""
        self._system.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        self._system.close(self._descriptor)
