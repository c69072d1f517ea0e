"""Many objects of one folder read and checked at once: the quick way, which only ever says yes.

All headers of one kind of object differ in their key, parent, position, checksums and CRC alone.
So a batch is checked by comparing it with one made from the schema, its pages' checksums are
computed as they are read, and whatever is not beyond doubt is left to :class:`.fetch.Fetch`, which
finds out what is wrong with it.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from kvstrata.core.words import Arena

from .fields import CRC, HEAD_FIELDS, ROW_FIELDS, TRAILER, TRAILER_MAGIC, Header, bytes_of
from .format import ObjectId, Schema, encode
from .schema import HEAD_BYTES, POSITIONS, ROW_BYTES, TRAILER_BYTES

__all__ = ["Batch", "Targets"]

_KEY: Final = bytes_of(HEAD_FIELDS, "key")
_PARENT: Final = bytes_of(HEAD_FIELDS, "parent key")
_POSITION: Final = bytes_of(HEAD_FIELDS, "position")
_CHECKSUM: Final = bytes_of(ROW_FIELDS, "page checksum")


class Targets(Protocol):
    """Where the pages of several objects of one kind go."""

    def addresses(self) -> Arena:
        """int64[n, k]: where page k of object n lies in memory."""

    def pages(self, number: int) -> list[memoryview]:
        """The pages of one object."""

    def checksum(self, number: int, part: int) -> int:
        """The checksum of one page as it is now."""


class Batch:
    """One reading of several objects of one kind.

    Args:
        schema: what the objects agree on.
        identities: which objects; all blocks or all checkpoints.
        targets: where their pages go.

    Attributes:
        names: of the objects in their store.
        num_bytes: of each object.
        checksums: int64[n, k], of each of :meth:`parts`, to be filled as they are read.
    """

    def __init__(self, schema: Schema, identities: Sequence[ObjectId], targets: Targets) -> None:
        self._identities = identities
        self._targets = targets
        is_checkpoint = identities[0].is_checkpoint
        self.num_bytes = schema.object_bytes(is_checkpoint)
        self.names = [schema.object_name(identity) for identity in identities]
        self._sizes = [part.page_bytes for part in schema.parts(is_checkpoint)]
        num, header_bytes = len(identities), schema.header_bytes(is_checkpoint)
        self._headers = np.zeros((num, header_bytes), dtype=np.uint8)
        self._trailers = np.zeros((num, TRAILER_BYTES), dtype=np.uint8)
        self.checksums: Arena = np.zeros((num, len(self._sizes) + 2), dtype=np.int64)
        any_one = Header(ObjectId(bytes(16), is_checkpoint), bytes(16), 0, (0,) * len(self._sizes))
        self._template = np.frombuffer(encode(schema, any_one)[0], dtype=np.uint8)
        self._fixed = np.ones(header_bytes, dtype=np.bool_)
        for varies in (_KEY, _PARENT, _POSITION):
            self._fixed[varies] = False
        rows = range(HEAD_BYTES, HEAD_BYTES + len(self._sizes) * ROW_BYTES, ROW_BYTES)
        self._at = [slice(row + _CHECKSUM.start, row + _CHECKSUM.stop) for row in rows]
        for varies in self._at:
            self._fixed[varies] = False
        self._fixed[-CRC.size :] = False

    def parts(self) -> Arena:
        """int64[n, k, 2]: address and length of what each object's bytes are read into."""
        num = len(self._identities)
        parts: Arena = np.zeros((num, len(self._sizes) + 2, 2), dtype=np.int64)
        for column, buffer in ((0, self._headers), (-1, self._trailers)):
            parts[:, column, 0] = buffer.ctypes.data + np.arange(num) * buffer.shape[1]
            parts[:, column, 1] = buffer.shape[1]
        parts[:, 1:-1, 0] = self._targets.addresses()
        parts[:, 1:-1, 1] = self._sizes
        return parts

    def check(self, read: npt.NDArray[np.bool_]) -> list[Header | None]:
        """What of the objects read is beyond doubt.

        Args:
            read: bool[n], whose bytes have come.

        Returns:
            A header an object; None for one that was not read, or is not as it must be.
        """
        headers = self._headers
        good = read & (headers[:, self._fixed] == self._template[self._fixed]).all(axis=1)
        keys = np.frombuffer(b"".join(one.key for one in self._identities), dtype=np.uint8)
        good &= (headers[:, _KEY] == keys.reshape(-1, 16)).all(axis=1)
        positions = self._words(_POSITION, "<u8")
        good &= positions < POSITIONS
        for number in np.flatnonzero(good).tolist():
            crc = int(crc32c(headers[number, : -CRC.size].data))
            sealed = headers[number, -CRC.size :].tobytes() == CRC.pack(crc)
            trailer = TRAILER.pack(TRAILER_MAGIC, crc, self.num_bytes)
            good[number] = sealed and self._trailers[number].tobytes() == trailer
        told = np.stack([self._words(at, "<i8") for at in self._at], axis=1)
        good &= (self.checksums[:, 1:-1] == told).all(axis=1)
        found: list[Header | None] = [None] * len(self._identities)
        for number in np.flatnonzero(good).tolist():
            found[number] = Header(
                self._identities[number],
                headers[number, _PARENT].tobytes(),
                int(positions[number]),
                tuple(told[number].tolist()),
            )
        return found

    def _words(self, at: slice, kind: str) -> npt.NDArray[Any]:
        return np.ascontiguousarray(self._headers[:, at]).view(kind)[:, 0]
