"""A tier's store that counts what it is asked and fails when told to; and objects to keep there."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from kvstrata.core.checksum import checksum_bytes
from kvstrata.core.events import Reason
from kvstrata.core.words import Arena
from kvstrata.tiers.format import Header, ObjectId, Part, Schema
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.outcomes import Loaded, LoadFailed
from kvstrata.tiers.store import Buffer, Bytes, Flags, StoredObject, StoreFault
from kvstrata.tiers.tier import Tier
from kvstrata.tiers.tierset import TierSet

SCHEMA = Schema(
    layout=b"layout".ljust(16),
    block_tokens=128,
    blocks=(
        Part(0, "c4", "COMPRESSED", 96, b"abi of c4".ljust(16), 7),
        Part(1, "c4.index", "INDEXER", 40, b"abi of index".ljust(16), 0),
    ),
    checkpoints=(Part(2, "swa", "SWA", 64, b"abi of swa".ljust(16), 0),),
)


class Shaky:
    """A local store; ``next[method]`` holds what the next calls of it raise or do first."""

    def __init__(self, root: Path) -> None:
        self.inner = LocalStore(root)
        self.url = self.inner.url
        self.calls: Counter[str] = Counter()
        self.next: defaultdict[str, deque[BaseException | Callable[[], object]]]
        self.next = defaultdict(deque)
        self.always: dict[str, BaseException] = {}

    def fail(self, *methods: str, reason: Reason, is_outage: bool = False) -> None:
        """From now on, until healed."""
        for method in methods:
            self.always[method] = StoreFault(reason, f"{method} failed", is_outage)

    def heal(self) -> None:
        self.always.clear()

    def _call(self, method: str) -> None:
        self.calls[method] += 1
        planned = self.next[method].popleft() if self.next[method] else self.always.get(method)
        if isinstance(planned, BaseException):
            raise planned
        if planned is not None:
            planned()

    def put_many(self, names: Sequence[str], objects: Sequence[Sequence[Bytes]]) -> Flags:
        self._call("put_many")
        return self.inner.put_many(names, objects)

    def settle(self, names: Iterable[str]) -> None:
        self.inner.settle(names)

    def put(self, name: str, parts: Sequence[Bytes], settle: bool = True) -> bool:
        self._call("put")
        return self.inner.put(name, parts, settle)

    def read(self, name: str, parts: Sequence[Buffer]) -> None:
        self._call("read")
        self.inner.read(name, parts)

    def read_many(
        self, names: Sequence[str], parts: Arena, num_bytes: int, checksums: Arena
    ) -> Flags:
        self._call("read_many")
        return self.inner.read_many(names, parts, num_bytes, checksums)

    def size(self, name: str) -> int | None:
        self._call("size")
        return self.inner.size(name)

    def objects(self, namespace: str | None = None) -> Iterator[StoredObject]:
        return self.inner.objects(namespace)

    def head_bytes(self, name: str, count: int) -> bytes:
        return self.inner.head_bytes(name, count)

    def delete(self, name: str) -> bool:
        self._call("delete")
        return self.inner.delete(name)

    def set_aside(self, name: str) -> None:
        self._call("set_aside")
        self.inner.set_aside(name)

    def collect(self, older_than_s: float = 3600) -> int:
        return self.inner.collect(older_than_s)

    def claim(self, name: str, timeout_s: float) -> AbstractContextManager[bool]:
        self._call("claim")
        return self.inner.claim(name, timeout_s)

    def close(self) -> None:
        self._call("close")

    def path(self, name: str) -> Path:
        return self.inner.root / "objects" / name


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Thing:
    """An object: its header and pages, and a place to load it into."""

    def __init__(self, number: int, is_checkpoint: bool = False) -> None:
        self.identity = ObjectId(bytes([number] * 16), is_checkpoint)
        self.name = SCHEMA.object_name(self.identity)
        self.num_bytes = SCHEMA.object_bytes(is_checkpoint)
        sizes = [part.page_bytes for part in SCHEMA.parts(is_checkpoint)]
        self.pages = [
            memoryview(bytearray((number + 7 * place) % 256 for place in range(size)))
            for size in sizes
        ]
        checksums = tuple(checksum_bytes(page) for page in self.pages)
        self.header = Header(self.identity, bytes(16), 128 * number, checksums)
        self.into = [memoryview(bytearray(b"\xee" * size)) for size in sizes]

    def load(
        self, tiers: TierSet, mask: int, dead: Callable[[], bool] = lambda: False
    ) -> Loaded | LoadFailed:
        return tiers.load(
            self.identity, mask, self.into, lambda part: checksum_bytes(self.into[part]), dead
        )

    @property
    def is_loaded(self) -> bool:
        return self.into == self.pages


class Rig:
    """Tiers on shaky stores: "host" and "disk" are folders, "remote" is none."""

    def __init__(self, root: Path, *names: str, claim_timeout_s: float = 30.0) -> None:
        self.clock = Clock()
        self.stores = [Shaky(root / name) for name in names]
        self.tiers = TierSet(
            SCHEMA,
            [
                Tier(index, name, store, name != "remote", self.clock, lambda: 0.0)
                for index, (name, store) in enumerate(zip(names, self.stores, strict=True))
            ],
            claim_timeout_s,
            self.clock,
        )

    def keep(self, thing: Thing, *places: int) -> None:
        """Put an object into some stores, uncounted."""
        for place in places:
            stored = self.tiers.store(thing.header, thing.pages, 1 << place)
            assert stored.tiers == 1 << place
            self.stores[place].calls.clear()

    def spoil(self, thing: Thing, place: int, offset: int = -20) -> None:
        """Flip a bit of an object."""
        path = self.stores[place].path(thing.name)
        data = bytearray(path.read_bytes())
        data[offset] ^= 4
        path.write_bytes(data)
