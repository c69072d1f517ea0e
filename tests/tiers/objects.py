"""Small objects for the tests of what stands above the stores, and a store that can be broken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from kvstrata.core.checksum import checksum_bytes
from kvstrata.core.events import Reason
from kvstrata.core.words import Arena
from kvstrata.tiers.format import Header, ObjectId, encode
from kvstrata.tiers.store import Buffer, Bytes, Flags, Store, StoredObject, StoreFault

from .support import SCHEMA, key_of, pages_of

__all__ = ["SCHEMA", "MemoryStore", "key_of", "name_of", "put"]


def name_of(number: int, is_checkpoint: bool = False) -> str:
    return SCHEMA.object_name(ObjectId(key_of(number), is_checkpoint))


def put(store: Store, number: int, is_checkpoint: bool = False, position: int = 0) -> str:
    """Store a whole object, a block below the one of the number before; its name."""
    identity = ObjectId(key_of(number), is_checkpoint)
    pages = pages_of(SCHEMA, identity)
    parent = bytes(16) if is_checkpoint or not number else key_of(number - 1)
    checksums = tuple(checksum_bytes(page) for page in pages)
    header, trailer = encode(SCHEMA, Header(identity, parent, position, checksums))
    name = SCHEMA.object_name(identity)
    assert store.put(name, [header, *pages, trailer])
    return name


class MemoryStore:
    """A store in a dictionary.

    Attributes:
        held: objects by name.
        refuses: faults by name, raised by reads and deletions.
        calls: deletions, in order.
    """

    url = "memory:"

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.refuses: dict[str, StoreFault] = {}
        self.calls: list[str] = []
        self.temporaries = 0

    def put_many(self, names: Sequence[str], objects: Sequence[Sequence[Bytes]]) -> Flags:
        return np.zeros(len(names), dtype=np.bool_)

    def settle(self, names: Iterable[str]) -> None:
        """All that was put is durable."""

    def put(self, name: str, parts: Sequence[Bytes], settle: bool = True) -> bool:
        if name in self.held:
            return False
        self.held[name] = b"".join(parts)
        return True

    def read(self, name: str, parts: Sequence[Buffer]) -> None:
        data = memoryview(self._get(name))
        if len(data) != sum(part.nbytes for part in parts):
            raise StoreFault(Reason.OBJECT_TRUNCATED, f"{name}: found {len(data)} bytes")
        for part in parts:
            part[:], data = data[: part.nbytes], data[part.nbytes :]

    def read_many(
        self, names: Sequence[str], parts: Arena, num_bytes: int, checksums: Arena
    ) -> Flags:
        return np.zeros(len(names), dtype=np.bool_)

    def size(self, name: str) -> int | None:
        return len(self.held[name]) if name in self.held else None

    def objects(self, namespace: str | None = None) -> Iterator[StoredObject]:
        for name, data in sorted(self.held.items()):
            if namespace is None or name.startswith(namespace):
                yield StoredObject(name, len(data), 1_700_000_000.0)

    def head_bytes(self, name: str, count: int) -> bytes:
        return self._get(name)[:count]

    def delete(self, name: str) -> bool:
        self.calls.append(name)
        if name in self.refuses:
            raise self.refuses[name]
        return self.held.pop(name, None) is not None

    def set_aside(self, name: str) -> None:
        self.held.pop(name, None)

    def collect(self, older_than_s: float = 3600) -> int:
        found, self.temporaries = self.temporaries, 0
        return found

    def claim(self, name: str, timeout_s: float) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def close(self) -> None:
        pass

    def _get(self, name: str) -> bytes:
        if name in self.refuses:
            raise self.refuses[name]
        if name not in self.held:
            raise StoreFault(Reason.OBJECT_MISSING, f"{name}: found no object")
        return self.held[name]
