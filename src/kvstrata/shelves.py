"""The tiers' places and their catalogue, as one manager uses them. Safe from any thread."""

import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kvstrata.core.errors import ConfigError, StoreError
from kvstrata.core.events import Reason
from kvstrata.core.keys import words_key
from kvstrata.core.words import Arena
from kvstrata.tiers.catalogue import Catalogue, Entry
from kvstrata.tiers.config import TiersConfig
from kvstrata.tiers.format import Header, ObjectId, Schema, parse_name
from kvstrata.tiers.retention import Chosen, Retention, enforce
from kvstrata.tiers.schema import KEY_BYTES, POSITIONS
from kvstrata.tiers.tierset import TierSet

__all__ = ["Shelves"]

_LOG: Final = logging.getLogger("kvstrata.tiers")
_RETAIN_S: Final = 5.0
"""How often the limits of the tiers are looked at."""
_AWAY_S: Final = 10.0
"""How long a catalogue that failed is left alone."""

_MOST_USES: Final = 1024
"""Prefixes whose use is told to the catalogue at a time; of more, the first that were used."""

Forget = Callable[[list[tuple[ObjectId, int, Reason]]], None]
"""Told of objects that are to go: which, a bit for the tier, why."""
Drifted = Callable[[ObjectId, int], None]
"""Told of an object that was to go and had gone before: which, the tier's index."""


class Shelves:
    """Opens the tiers on first use, for the schema of the time, and keeps their catalogue.

    The catalogue is an index that others share: without it everything goes on, and what was not
    told to it then is found by ``kvstrata tiers rebuild``.

    Args:
        config: the tiers.
        is_empty: whether there are no bytes, and so nothing to open.
        clock: seconds that never go back.
    """

    def __init__(
        self, config: TiersConfig, is_empty: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._set: TierSet | None = None
        self._catalogue: Catalogue | None = None
        self._away_until_s = 0.0
        self._retained_s = clock()
        self._used: dict[tuple[bytes, bool], tuple[Schema, Arena, float]] = {}
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self.catalogue_errors = 0
        self.trimmed: Counter[str] = Counter()
        url = _catalogue_url(config)
        if not (url or is_empty):
            _expect_no_limits(config)
        self._url = "" if is_empty else url
        self._opening = threading.Lock()
        self._ask(lambda _: None)

    def tierset(self, schema: Schema) -> TierSet:
        """The tiers for objects of a schema."""
        with self._lock:
            if self._set is None:
                self._set = TierSet.open(schema, self._config, self._clock)
            elif self._set.schema != schema:
                self._set = self._set.for_schema(schema)
            return self._set

    def readable(self) -> int:
        """A bit for each tier that is not known to be down."""
        found = self._set
        mask = (1 << len(self._config.tiers)) - 1
        if found is None:
            return mask
        for tier in found.tiers:
            if tier.outage.is_down and tier.outage.retry_in_s > 0:
                mask &= ~tier.bit
        return mask

    def writable(self) -> int:
        """A bit for each tier that is known neither to be down nor to be full."""
        found = self._set
        mask = self.readable()
        if found is not None:
            for tier in found.tiers:
                if tier.room.is_down and tier.room.retry_in_s > 0:
                    mask &= ~tier.bit
        return mask

    def is_well(self) -> bool:
        """Whether no tier is down or full, or was and has not answered since."""
        found = self._set
        return found is None or not any(t.outage.is_down or t.room.is_down for t in found.tiers)

    def has(self, schema: Schema, identity: ObjectId) -> bool:
        """Whether a folder holds an object; one system call for each folder."""
        name = schema.object_name(identity)
        return any(
            tier.is_folder and not tier.outage.is_down and tier.size(name) is not None
            for tier in self.tierset(schema).tiers
        )

    # the catalogue

    def entries(self, namespace: str, limit: int) -> list[tuple[ObjectId, int, int]] | None:
        """What the catalogue knows: (identity, position, tiers), used longest ago first.

        None where it is away. Without a catalogue nothing is known.
        """
        if not self._url:
            return []
        found: dict[ObjectId, tuple[int, int]] = {}

        def read(catalogue: Catalogue) -> None:
            for index, tier in enumerate(self._config.tiers):
                for entry in catalogue.entries(tier.name, namespace, limit):
                    if not _is_sound(entry):
                        self.catalogue_errors += 1
                        continue
                    identity = ObjectId(entry.key, entry.is_checkpoint)
                    tiers = found.get(identity, (0, 0))[1] | 1 << index
                    found[identity] = entry.position, tiers

        if not self._ask(read):
            return None
        items = list(found.items())[:limit]
        return [(identity, position, tiers) for identity, (position, tiers) in reversed(items)]

    def catalogue(self, schema: Schema, stored: Sequence[tuple[Header, int]]) -> None:
        """Tell the catalogue of objects that were written under a schema: (header, tiers)."""
        if not stored:
            return
        now_s = time.time()
        entries = [
            Entry(
                namespace=schema.namespace,
                name=schema.object_name(header.identity),
                is_checkpoint=header.identity.is_checkpoint,
                key=header.identity.key,
                parent=header.parent,
                position=header.position,
                num_bytes=schema.object_bytes(header.identity.is_checkpoint),
                tier=tier.name,
                owner=self._owner,
                created_s=now_s,
                used_s=now_s,
            )
            for header, tiers in stored
            for index, tier in enumerate(self._config.tiers)
            if tiers >> index & 1
        ]
        self._ask(lambda catalogue: catalogue.add(entries))

    def uncatalogue(self, schema: Schema, identity: ObjectId, tiers: int) -> None:
        """An object is in these tiers no more."""
        name = schema.object_name(identity)

        def remove(catalogue: Catalogue) -> None:
            for index, tier in enumerate(self._config.tiers):
                if tiers >> index & 1:
                    catalogue.remove(tier.name, [name])

        self._ask(remove)

    def used(self, schema: Schema, keys: Arena, with_checkpoint: bool) -> None:
        """A prefix is in use, from its root on; the catalogue is told later, with many others.

        All of it at once, so that what hangs from a block never seems younger than the block.

        Args:
            schema: of the objects.
            keys: int64[n, 2], of its blocks.
            with_checkpoint: whether the checkpoint at its end is used too.
        """
        if self._url:
            of = keys[-1].tobytes(), with_checkpoint
            with self._lock:
                known = self._used.pop(of, None)
                if known is not None or len(self._used) < _MOST_USES:
                    self._used[of] = schema, keys.copy(), time.time()

    def _ask(self, work: Callable[[Catalogue], None]) -> bool:
        """Do something with the catalogue; where it is away, go on without it.

        Returns:
            Whether it was done.
        """
        if not self._url or self._clock() < self._away_until_s:
            return False
        try:
            work(self._opened())
        except (StoreError, TypeError, ValueError) as error:  # the last two: rows that are none
            self.catalogue_errors += 1
            self._away_until_s = self._clock() + _AWAY_S
            _LOG.warning("the catalogue is left alone for %g s: %s", _AWAY_S, error)
            return False
        return True

    def _opened(self) -> Catalogue:
        with self._opening:
            if self._catalogue is None:
                _make_parent(self._url)
                self._catalogue = Catalogue.open(self._url)
            return self._catalogue

    # limits

    def retention_due(self, forget: Forget, drifted: Drifted) -> Callable[[], None] | None:
        """The work of enforcing the tiers' limits, where it is time for it."""
        if not self._url or self._clock() - self._retained_s < _RETAIN_S:
            return None
        self._retained_s = self._clock()
        return partial(self.retain, forget, drifted)

    def _tell_uses(self) -> None:
        """Tell the catalogue what was used since the last time."""
        with self._lock:
            used, self._used = self._used, {}
        names = _names_of(used)

        def work(catalogue: Catalogue) -> None:
            for tier in self._config.tiers:
                for used_s, some in names.items():
                    catalogue.touch(tier.name, some, used_s)

        if names:
            self._ask(work)

    def retain(self, forget: Forget, drifted: Drifted) -> None:
        """Enforce the tiers' limits now.

        Mutates: tiers and catalogue.
        """
        self._tell_uses()
        tierset = self._set
        if tierset is not None:
            for index in range(len(self._config.tiers)):
                self._ask(partial(self._enforce, tierset, index, forget, drifted))
        self.trimmed["rounds"] += 1

    def _enforce(
        self, tierset: TierSet, index: int, forget: Forget, drifted: Drifted, catalogue: Catalogue
    ) -> None:
        tier, namespace = self._config.tiers[index], tierset.schema.namespace
        limits = Retention(tier.cap_bytes, tier.checkpoint_ttl_s, tier.block_ttl_s)
        if limits == Retention():
            return

        def missed(chosen: Chosen) -> None:
            for identity, _, _ in _objects([chosen], index, namespace):
                drifted(identity, index)

        done = enforce(
            tierset.tiers[index].store,
            catalogue,
            tier.name,
            limits,
            time.time(),
            forget=lambda chosen: forget(_objects(chosen, index, namespace)),
            drifted=missed,
        )
        self.trimmed["expired"] += done.num_expired
        self.trimmed["over_cap"] += done.num_objects - done.num_expired
        self.trimmed["drifted"] += done.num_drifted
        self.trimmed["failed"] += done.num_failed

    def stats(self) -> dict[str, dict[str, Any]]:
        """What each tier did and how it stands; empty before any was asked."""
        found = self._set
        if found is None:
            return {}
        return {name: stats.to_json() for name, stats in found.stats().items()}

    def close(self) -> None:
        """Close tiers and catalogue."""
        self._tell_uses()
        with self._lock:
            if self._set is not None:
                self._set.close()
            self._url = ""
            if self._catalogue is not None:
                self._catalogue.close()


def _is_sound(entry: Entry) -> bool:
    """Whether a row can be one of an object: anybody may have written it."""
    key: object = entry.key
    position: object = entry.position
    has_key = isinstance(key, bytes) and len(key) == KEY_BYTES
    return has_key and isinstance(position, int) and 0 <= position < POSITIONS


def _names_of(
    used: dict[tuple[bytes, bool], tuple[Schema, Arena, float]],
) -> dict[float, list[str]]:
    """Names of objects by their last use, each under the latest alone."""
    latest: dict[str, float] = {}
    for (_, with_checkpoint), (schema, keys, used_s) in used.items():
        identities = [ObjectId(words_key(*key), False) for key in keys.tolist()]
        if with_checkpoint:
            identities.append(ObjectId(words_key(*keys[-1].tolist()), True))
        for identity in identities:
            latest[schema.object_name(identity)] = used_s
    found: dict[float, list[str]] = {}
    for name, used_s in latest.items():
        found.setdefault(used_s, []).append(name)
    return found


def _objects(
    chosen: Sequence[Chosen], tier: int, namespace: str
) -> list[tuple[ObjectId, int, Reason]]:
    """Those of them that this engine would load: of its namespace."""
    found = []
    for one in chosen:
        parsed = parse_name(one.entry.name)
        if parsed is not None and parsed[0] == namespace:
            found.append((parsed[1], 1 << tier, one.reason))
    return found


def _catalogue_url(config: TiersConfig) -> str:
    """Where the catalogue is: as configured, else beside the first folder that is no shared memory.

    Without a folder there is none unless one is named.
    """
    if config.catalogue is not None:
        return config.catalogue
    folders = [tier for tier in config.tiers if tier.is_folder]
    on_disk = [tier for tier in folders if not tier.url.startswith("/dev/shm/")] or folders
    if not on_disk:
        return ""
    path = on_disk[0].url.removeprefix("file://")
    return f"sqlite:///{Path(path).absolute() / 'catalogue.sqlite'}"


def _expect_no_limits(config: TiersConfig) -> None:
    """Without a catalogue nobody knows what a tier holds, and what of it was used last."""
    for tier in config.tiers:
        limits = tier.cap_bytes, tier.checkpoint_ttl_s, tier.block_ttl_s
        if limits != (None, None, None):
            raise ConfigError(
                f"tiers: {tier.name}: expected a catalogue beside cap_bytes, checkpoint_ttl_s or "
                "block_ttl_s, found none; set TiersConfig.catalogue"
            )


def _make_parent(url: str) -> None:
    if not url.startswith("sqlite:///"):
        return
    folder = Path(url.removeprefix("sqlite:///")).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"catalogue {url}: expected a folder at {folder}: {error}") from error
