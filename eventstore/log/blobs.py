"""Blobs: canonical JSON by digest, synced before any event names it."""

import hashlib
import json
from typing import Any, Final

from kvstrata.core.errors import CorruptSegment, LogError

from .directory import LogPaths
from .system import System, replace_file

__all__ = ["BLOB_DIGEST_BYTES", "canonical_json", "get_blob", "put_blob"]

BLOB_DIGEST_BYTES: Final = 16


def canonical_json(value: Any) -> bytes:
    """The one spelling of a JSON value: sorted keys, no spaces, ASCII, no NaN.

    Raises:
        ValueError: not a JSON value.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:BLOB_DIGEST_BYTES]


def put_blob(system: System, paths: LogPaths, value: Any) -> bytes:
    """Store a value durably; the same value is stored once.

    Returns:
        Its digest, 16 bytes.

    Raises:
        OSError: it was not stored.
        ValueError: not a JSON value.
    """
    data = canonical_json(value)
    digest = _digest(data)
    path = paths.blobs / digest.hex()
    if not path.is_file():
        replace_file(system, path, [data])
    return digest


def get_blob(paths: LogPaths, digest: bytes) -> Any:
    """A stored value.

    Args:
        paths: the directory.
        digest: 16 bytes.

    Raises:
        LogError: no such blob.
        CorruptSegment: its bytes do not give its digest.
    """
    path = paths.blobs / digest.hex()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LogError(f"expected blob {digest.hex()}, found none in {paths.blobs}") from None
    if _digest(data) != digest:
        raise CorruptSegment(
            f"expected content of digest {digest.hex()}, found {_digest(data).hex()} in {path}; "
            "restore the file from a copy of the directory"
        )
    return json.loads(data)
