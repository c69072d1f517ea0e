"""All tiers of one engine: load from the fastest that serves, store to those asked for."""

import random as randomness
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from kvstrata.core.events import Reason

from .batch import Batch, Targets
from .config import TiersConfig
from .counters import TierStats
from .fetch import Fetch, check_pages
from .format import Fault, Header, ObjectId, Schema, encode
from .outcomes import Loaded, LoadFailed, Stored, TierFaults
from .store import Buffer, Store, open_store
from .tier import Failure, Tier

__all__ = ["TierSet"]

CLAIM_TIMEOUT_S: Final = 30.0


class TierSet:
    """Tiers in order; safe to use from any thread.

    Args:
        schema: what the objects of this engine agree on.
        tiers: fastest first.
        claim_timeout_s: how long a load waits for another process of this node that fetches the
            same object, in seconds; then it fetches by itself.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        schema: Schema,
        tiers: Sequence[Tier],
        claim_timeout_s: float = CLAIM_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.schema = schema
        self.tiers = tuple(tiers)
        self._claim_timeout_s = claim_timeout_s
        self._clock = clock

    @classmethod
    def open(
        cls,
        schema: Schema,
        config: TiersConfig,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = randomness.random,
    ) -> "TierSet":
        """Open the stores of all tiers.

        Raises:
            ConfigError: a place that cannot be used; those opened before are closed.
        """
        stores: list[Store] = []
        try:
            for tier in config.tiers:
                stores.append(open_store(tier.url, tier.timeout_s, tier.retries))
        except BaseException:
            for store in stores:
                store.close()
            raise
        tiers = [
            Tier(index, tier.name, store, tier.is_folder, clock, random)
            for index, (tier, store) in enumerate(zip(config.tiers, stores, strict=True))
        ]
        longest_s = min(config.load_deadline_s, max(tier.timeout_s for tier in config.tiers))
        return cls(schema, tiers, longest_s, clock)

    def for_schema(self, schema: Schema) -> "TierSet":
        """The same tiers, for objects that agree on something else."""
        return TierSet(schema, self.tiers, self._claim_timeout_s, self._clock)

    def load(
        self,
        identity: ObjectId,
        tiers: int,
        pages: Sequence[Buffer],
        checksum: Callable[[int], int],
        dead: Callable[[], bool],
    ) -> Loaded | LoadFailed:
        """Read one object into pages from the fastest tier that serves it whole and right.

        Args:
            identity: which object.
            tiers: mask of the tiers that have it.
            pages: one buffer a part, in part order; they hold anything after a failure.
            checksum: that of the page of part i, computed from its buffer now.
            dead: whether the load was cancelled; asked before every read.

        Raises:
            InvariantViolation: the pages are not those of such an object.

        Mutates: the pages; a bad object is set aside; a folder above a remote tier gains it.
        """
        start_s = self._clock()
        fetch = Fetch(self.schema, identity, pages, checksum, dead)
        fetch.gone |= tiers >> len(self.tiers) << len(self.tiers)
        for tier in self._of(tiers):
            folder = self._folder_above(tier)
            if folder is not None:
                served = fetch.once(tier, folder, self._claim_timeout_s)
            else:
                header = fetch.read(tier)
                served = None if header is None else (tier, header)
            if served is not None:
                return Loaded(
                    tier=served[0].index,
                    header=served[1],
                    num_bytes=fetch.num_bytes,
                    seconds=self._clock() - start_s,
                    faults=fetch.faults,
                    gone=fetch.gone,
                    gained=fetch.gained,
                )
            if fetch.is_cancelled:
                break
        if not fetch.faults:
            fault = Fault(Reason.OBJECT_MISSING, 0, 0, 0, f"no tier was named for {fetch.name}")
            return LoadFailed(fault, (), fetch.gone)
        return LoadFailed(fetch.faults[-1][1], fetch.faults, fetch.gone)

    def load_many(
        self,
        identities: Sequence[ObjectId],
        tiers: Sequence[int],
        targets: Targets,
        dead: Callable[[int], bool],
    ) -> Iterator[Loaded | LoadFailed]:
        """Read several objects of one kind, each as :meth:`load` does.

        Args:
            identities: which objects, all blocks or all checkpoints.
            tiers: a mask an object.
            targets: where their pages go.
            dead: whether the load of an object, by its place, was cancelled.

        Yields:
            An outcome an object, in their order.

        Raises:
            InvariantViolation: the pages are not those of such objects.

        Mutates: as :meth:`load`.
        """
        for number, found in enumerate(self._load_quickly(identities, tiers, targets, dead)):
            yield found or self.load(
                identities[number],
                tiers[number],
                targets.pages(number),
                partial(targets.checksum, number),
                partial(dead, number),
            )

    def _load_quickly(
        self,
        identities: Sequence[ObjectId],
        tiers: Sequence[int],
        targets: Targets,
        dead: Callable[[int], bool],
    ) -> list[Loaded | None]:
        """Whatever of them is whole and right in the folder that is asked first, read at once."""
        first = next(iter(self._of(tiers[0])), None)
        unknown = -1 << len(self.tiers)
        if first is None or not first.is_folder:
            return [None] * len(identities)
        below = first.bit - 1
        if any(not one & first.bit or one & (below | unknown) for one in tiers) or dead(0):
            return [None] * len(identities)
        start_s = self._clock()
        batch = Batch(self.schema, identities, targets)
        parts, checksums = batch.parts(), batch.checksums
        headers = batch.check(first.read_many(batch.names, parts, batch.num_bytes, checksums))
        each_s = (self._clock() - start_s) / len(identities)
        return [
            None if header is None else Loaded(first.index, header, batch.num_bytes, each_s)
            for header in headers
        ]

    def store(
        self, header: Header, pages: Sequence[Buffer], tiers: int, settle: bool = True
    ) -> Stored:
        """Write one object to every tier of a mask that lacks it.

        Args:
            header: of the object, with the checksums of its pages.
            pages: one buffer a part, in part order; not changed meanwhile by anybody.
            tiers: mask of the tiers to write to.
            settle: whether it is to be durable at once; else only after :meth:`settle`.

        Raises:
            InvariantViolation: the pages are not those of such an object.

        Mutates: the tiers' places.
        """
        start_s = self._clock()
        identity = header.identity
        parts = self._parts(header, pages)
        name = self.schema.object_name(identity)
        whole = written = 0
        faults: list[tuple[int, Fault]] = []
        for tier in self._of(tiers):
            answer = self._put(tier, name, parts, settle)
            if isinstance(answer, Failure):
                faults.append((tier.index, answer.fault))
                continue
            whole |= tier.bit
            written |= tier.bit if answer else 0
        num_bytes = written.bit_count() * self.schema.object_bytes(identity.is_checkpoint)
        return Stored(whole, written, num_bytes, self._clock() - start_s, tuple(faults))

    def store_together(
        self, headers: Sequence[Header], pages: Sequence[Sequence[Buffer]], tiers: Sequence[int]
    ) -> list[Stored]:
        """Write several objects to folders, as far as that is quick and plain.

        Args:
            headers: of the objects, all different.
            pages: of each object.
            tiers: a mask an object.

        Returns:
            What was written of each object, durable after :meth:`settle`; what its mask has beyond
            that is left to :meth:`store`.

        Raises:
            InvariantViolation: the pages are not those of such objects.

        Mutates: the tiers' places.
        """
        if len(headers) == 1:
            return [Stored(0, 0, 0, 0.0)]  # nothing to share
        start_s = self._clock()
        names = [self.schema.object_name(header.identity) for header in headers]
        objects = [self._parts(*one) for one in zip(headers, pages, strict=True)]
        written = [0] * len(headers)
        for tier in self.tiers:
            chosen = [number for number, mask in enumerate(tiers) if mask & tier.bit]
            if not chosen or not tier.is_folder:
                continue
            took = tier.put_many([names[n] for n in chosen], [objects[n] for n in chosen])
            for number, is_written in zip(chosen, took.tolist(), strict=True):
                written[number] |= tier.bit if is_written else 0
        each_s = (self._clock() - start_s) / len(headers)
        sizes = [self.schema.object_bytes(header.identity.is_checkpoint) for header in headers]
        return [
            Stored(mask, mask, mask.bit_count() * size, each_s)
            for mask, size in zip(written, sizes, strict=True)
        ]

    def find(self, identities: Sequence[ObjectId], tiers: int = -1) -> list[int]:
        """Ask the stores where objects are.

        Args:
            identities: which objects.
            tiers: mask of the tiers to ask; all of them if -1.

        Returns:
            A mask of tiers for each identity, 0 for none. An object of a wrong size does not
            count; a tier that is down is as if empty.
        """
        masks = [0] * len(identities)
        for tier in self._of(tiers):
            for place, identity in enumerate(identities):
                if tier.outage.is_down and tier.outage.retry_in_s > 0:
                    break
                size = tier.size(self.schema.object_name(identity))
                if size == self.schema.object_bytes(identity.is_checkpoint):
                    masks[place] |= tier.bit
        return masks

    def delete(self, name: str, tier: int) -> bool | Fault:
        """Delete an object from one tier.

        Args:
            name: of the object in its store.
            tier: index of the tier.

        Returns:
            False where it was not there, a fault where the tier could not say.

        Mutates: the tier's place.
        """
        asked = self.tiers[tier]
        refusal = asked.refusal()
        if refusal is not None:
            return refusal.fault
        answer = asked.ask(lambda: asked.store.delete(name))
        return answer.fault if isinstance(answer, Failure) else answer

    def stats(self) -> dict[str, TierStats]:
        """Counts and standing of each tier, by name."""
        return {tier.name: tier.stats() for tier in self.tiers}

    def close(self) -> None:
        """Close every store. Mutates: nothing can be asked any more."""
        for tier in self.tiers:
            tier.store.close()

    def settle(self, identities: Sequence[ObjectId], tiers: int) -> tuple[int, TierFaults]:
        """Make objects durable that were stored without.

        Args:
            identities: which objects.
            tiers: mask of the tiers where they are.

        Returns:
            Mask of the tiers where they are durable now, and why elsewhere they are not.
        """
        names = [self.schema.object_name(identity) for identity in identities]
        settled, faults = 0, []
        for tier in self._of(tiers):
            failure = tier.settle(names)
            if failure is None:
                settled |= tier.bit
            else:
                faults.append((tier.index, failure.fault))
        return settled, tuple(faults)

    def _parts(self, header: Header, pages: Sequence[Buffer]) -> list[Buffer]:
        """All bytes of an object, one buffer after the other."""
        check_pages(self.schema, header.identity.is_checkpoint, pages)
        first, last = encode(self.schema, header)
        return [memoryview(first), *pages, memoryview(last)]

    def _put(self, tier: Tier, name: str, parts: Sequence[Buffer], settle: bool) -> bool | Failure:
        """Put an object; of the processes that share a folder, one at a time: it writes, once."""
        if not tier.is_folder or (tier.outage.is_down and tier.outage.retry_in_s > 0):
            return tier.put(name, parts, settle)
        with tier.claim(name, self._claim_timeout_s, lambda: False):
            return tier.put(name, parts, settle)

    def _of(self, mask: int) -> Iterable[Tier]:
        return [tier for tier in self.tiers if mask & tier.bit]

    def _folder_above(self, tier: Tier) -> Tier | None:
        """The slowest folder above a remote tier: what was fetched stays there longest."""
        if tier.is_folder:
            return None
        return next((t for t in reversed(self.tiers[: tier.index]) if t.is_folder), None)
