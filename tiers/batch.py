"""Many objects of one folder read and checked at once: the quick way, which only ever says yes.

All headers of one kind of object differ in their key, parent, position, checksums and CRC alone.
So a batch is checked by comparing it with one made from the schema, its pages' checksums are
computed as they are read, and whatever is not beyond doubt is left to :class:`.fetch.Fetch`, which
finds out what is wrong with it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from kvstrata.core.words import Arena

from .fields import (
    CRC,
    HEAD_FIELDS,
    ROW_FIELDS,
    TRAILER,
    TRAILER_FIELDS,
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
_TRAILER_CRC: Final = bytes_of(TRAILER_FIELDS, "header's CRC")

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
        header: uint8[...], a header that is right but for what varies.
        varies: bool[...], which of its bytes do.
        sums: where the checksum of each page stands in it.
        trailer: uint8[...], a trailer that is right but for its CRC.
    """

    sizes: tuple[int, ...]
    header: Octets
    varies: npt.NDArray[np.bool_]
    sums: tuple[slice, ...]
    trailer: Octets


@lru_cache(maxsize=16)
def _form(schema: Schema, is_checkpoint: bool) -> _Form:
    sizes = tuple(part.page_bytes for part in schema.parts(is_checkpoint))
    any_one = Header(ObjectId(bytes(16), is_checkpoint), bytes(16), 0, (0,) * len(sizes))
    header = np.frombuffer(encode(schema, any_one)[0], dtype=np.uint8)
    rows = range(HEAD_BYTES, HEAD_BYTES + len(sizes) * ROW_BYTES, ROW_BYTES)
    sums = tuple(slice(row + _CHECKSUM.start, row + _CHECKSUM.stop) for row in rows)
    varies = np.zeros(len(header), dtype=np.bool_)
    for part in (_KEY, _PARENT, _POSITION, *sums, slice(-CRC.size, None)):
        varies[part] = True
    trailer = TRAILER.pack(TRAILER_MAGIC, 0, schema.object_bytes(is_checkpoint))
    return _Form(sizes, header, varies, sums, np.frombuffer(trailer, dtype=np.uint8))


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
        self._headers: Octets = np.zeros((num, len(form.header)), dtype=np.uint8)
        self._trailers: Octets = np.zeros((num, len(form.trailer)), dtype=np.uint8)
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
        form, headers = self._form, self._headers
        good = read & ((headers == form.header) | form.varies).all(axis=1)
        keys = np.frombuffer(b"".join(one.key for one in self._identities), dtype=np.uint8)
        good &= (headers[:, _KEY] == keys.reshape(-1, 16)).all(axis=1)
        positions = self._words(_POSITION, "<u8")
        good &= positions < POSITIONS
        told = np.stack([self._words(at, "<i8") for at in form.sums], axis=1)
        good &= (self.checksums[:, 1:-1] == told).all(axis=1)
        good &= self._sealed()
        found = zip(
            self._identities,
            self._words(_PARENT, "V16").tolist(),
            positions.tolist(),
            map(tuple, told.tolist()),
            strict=True,
        )
        return [
            Header(*told) if is_good else None
            for told, is_good in zip(found, good.tolist(), strict=True)
        ]

    def _sealed(self) -> npt.NDArray[np.bool_]:
        """Whose header has its own CRC, and its trailer that one too."""
        size = self._headers.shape[1]
        end, headers = size - CRC.size, self._headers.reshape(-1).data
        crcs = [crc32c(headers[at : at + end]) for at in range(0, len(headers), size)]
        seals = np.array(crcs, dtype="<u4").view(np.uint8).reshape(-1, CRC.size)
        trailers = np.repeat(self._form.trailer[None], len(crcs), axis=0)
        trailers[:, _TRAILER_CRC] = seals
        sealed: npt.NDArray[np.bool_] = (self._headers[:, end:] == seals).all(axis=1)
        sealed &= (self._trailers == trailers).all(axis=1)
        return sealed

    def _words(self, at: slice, kind: str) -> npt.NDArray[Any]:
        return np.ascontiguousarray(self._headers[:, at]).view(kind)[:, 0]
