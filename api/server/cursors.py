"""Cursors: where a listing goes on, for the question it was given for and no other."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Final

from .problems import Problem

__all__ = ["PATTERN", "decode_cursor", "encode_cursor"]

PATTERN: Final = "^[A-Za-z0-9_-]{22}$"
"""What every cursor looks like."""
_FIELDS: Final = struct.Struct("<QII")
_MOST_PLACE: Final = 2**63 - 1
"""What a database and an event have room for."""


def encode_cursor(place: int, question: str) -> str:
    """A cursor.

    Args:
        place: where to go on, at least 0.
        question: everything that decides which rows the listing has, as text.
    """
    asked = zlib.crc32(question.encode())
    packed = _FIELDS.pack(place, asked, zlib.crc32(_FIELDS.pack(place, asked, 0)))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def decode_cursor(cursor: str, question: str) -> int:
    """Where to go on.

    Raises:
        Problem: it is no cursor of this question (409).
    """
    try:
        packed = base64.urlsafe_b64decode(cursor + "==")
        place, asked, check = _FIELDS.unpack(packed)
    except (binascii.Error, ValueError, struct.error):
        place, asked, check = 0, 0, 1
    is_ours = check == zlib.crc32(_FIELDS.pack(place, asked, 0)) and place <= _MOST_PLACE
    if not is_ours or asked != zlib.crc32(question.encode()):
        raise Problem(
            409,
            "cursor: expected one that this server gave for the same question, found another; "
            "begin without a cursor",
        )
    return int(place)
