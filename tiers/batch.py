"""Many objects of one folder read and checked at once: the quick way, which only ever says yes.

All headers of one kind of object differ in their key, parent, position, checksums and CRC alone.
So each is compared with one made from the schema, with the pages' checksums computed as they were
read, and whatever is not beyond doubt is left to :class:`.fetch.Fetch`, which finds out what is
wrong with it.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from kvstrata.core.words import Arena

from .fields import (
    CRC,
    HEAD_FIELDS,
    ROW_FIELDS,
    TRAILER,
    TRAILER_MAGIC,
    Header,
    bytes_of,
)
from .format import ObjectId, Schema, encode
from .schema import HEAD_BYTES, POSITIONS, ROW_BYTES

__all__ = ["Batch", "Targets"]

_KEY: Final = bytes_of(HEAD_FIELDS, "key")
_PARENT: Final = bytes_of(HEAD_FIELDS, "parent key")
_POSITION: Final = bytes_of(HEAD_FIELDS, "position")
_CHECKSUM: Final = bytes_of(ROW_FIELDS, "page checksum")
_SAID: Final = slice(_PARENT.start, _POSITION.stop)
"""What only the header says: parent and position."""

Octets = npt.NDArray[np.uint8]


class Targets(Protocol):
    """Where the pages of several objects of one kind go."""

    def addresses(self) -> Arena:
        """int64[n, k]: where page k of object n lies in memory."""

    def pages(self, number: int) -> list[memoryview]:
        """The pages of one object."""

    def checksum(self, number: int, part: int) -> int:
        """The checksum of one page as it is now."""


class _Form(NamedTuple):
    """What all objects of one kind have in common.

    Attributes:
        sizes: bytes of each page.
        header: packs a header from what never varies, in pieces, and what does, between them.
        pieces: those before the key, after the position, and after each page's checksum; the CRC
            comes last.
    """

    sizes: tuple[int, ...]
    header: struct.Struct
    pieces: tuple[bytes, ...]


@lru_cache(maxsize=16)
def _form(schema: Schema, is_checkpoint: bool) -> _Form:
    sizes = tuple(part.page_bytes for part in schema.parts(is_checkpoint))
    any_one = Header(ObjectId(bytes(16), is_checkpoint), bytes(16), 0, (0,) * len(sizes))
    header = bytes(encode(schema, any_one)[0])
    rows = range(HEAD_BYTES, HEAD_BYTES + len(sizes) * ROW_BYTES, ROW_BYTES)
    starts = [0, _POSITION.stop, *(row + _CHECKSUM.stop for row in rows)]
    stops = [_KEY.start, *(row + _CHECKSUM.start for row in rows), len(header) - CRC.size]
    pieces = tuple(header[start:stop] for start, stop in zip(starts, stops, strict=True))
    first, *others, last = (f"{len(piece)}s" for piece in pieces)
    said = f"16s{_SAID.stop - _SAID.start}s"
    codes = [first, said, *(f"{code}q" for code in others), last, "I"]
    return _Form(sizes, struct.Struct("<" + "".join(codes)), pieces)


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
        self._form = form = _form(schema, is_checkpoint)
        self.num_bytes = schema.object_bytes(is_checkpoint)
        self.names = [schema.object_name(identity) for identity in identities]
        num = len(identities)
        self._headers: Octets = np.zeros((num, form.header.size), dtype=np.uint8)
        self._trailers: Octets = np.zeros((num, TRAILER.size), dtype=np.uint8)
        self.checksums: Arena = np.zeros((num, len(form.sizes) + 2), dtype=np.int64)

    def parts(self) -> Arena:
        """int64[n, k, 2]: address and length of what each object's bytes are read into."""
        num, sizes = len(self._identities), self._form.sizes
        parts: Arena = np.zeros((num, len(sizes) + 2, 2), dtype=np.int64)
        for column, buffer in ((0, self._headers), (-1, self._trailers)):
            parts[:, column, 0] = buffer.ctypes.data + np.arange(num) * buffer.shape[1]
            parts[:, column, 1] = buffer.shape[1]
        parts[:, 1:-1, 0] = self._targets.addresses()
        parts[:, 1:-1, 1] = sizes
        return parts

    def check(self, read: npt.NDArray[np.bool_]) -> list[Header | None]:
        """What of the objects read is beyond doubt.

        Args:
            read: bool[n], whose bytes have come.

        Returns:
            A header an object; None for one that was not read, or is not as it must be.
        """
        size, end_size = self._headers.shape[1], self._trailers.shape[1]
        headers, trailers = self._headers.tobytes(), self._trailers.tobytes()
        sums = self.checksums[:, 1:-1].tolist()
        found: list[Header | None] = [None] * len(self._identities)
        for n in np.flatnonzero(read).tolist():
            header = headers[n * size : (n + 1) * size]
            trailer = trailers[n * end_size : (n + 1) * end_size]
            found[n] = self._check_one(self._identities[n], header, trailer, sums[n])
        return found

    def _check_one(
        self, identity: ObjectId, header: bytes, trailer: bytes, sums: list[int]
    ) -> Header | None:
        """Make header and trailer anew, of the pages as they came and of what only they say."""
        first, *pieces, last = self._form.pieces
        between = chain.from_iterable(zip(pieces, sums, strict=True))
        crc = crc32c(header[: -CRC.size])
        expected = self._form.header.pack(first, identity.key, header[_SAID], *between, last, crc)
        position = int.from_bytes(header[_POSITION], "little")
        if header != expected or position >= POSITIONS:
            return None
        if trailer != TRAILER.pack(TRAILER_MAGIC, crc, self.num_bytes):
            return None
        return Header(identity, header[_PARENT], position, tuple(sums))
