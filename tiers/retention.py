"""What goes when a tier holds too much or too long, and in which order.

First what has expired: checkpoints and blocks each have a time to live, counted from their last
use. Then the least recently used, checkpoints and blocks in one order, until the tier is under
its cap. One order suffices and keeps a prefix usable: a request uses a prefix from its root on
and touches all of it with one time, so what hangs from a block was never used later than the
block; of one time the later position goes first, a checkpoint before its block. A prefix is
therefore cut back from its end, and no bytes are kept that nothing leads to. For the same reason
a checkpoint never outlives the blocks before it: the lower of the two times to live holds.

The index forgets an object before its bytes go. Dying in between leaves an object without a row,
which `garbage.collect_garbage` gives one again; never a row without an object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import Reason

from .catalogue import Catalogue, Entry
from .store import Store, StoreFault

__all__ = [
    "Chosen",
    "Retention",
    "Trimmed",
    "choose",
    "decide",
    "enforce",
    "trim",
]

_ROUND: Final = 256  # objects that go together; another process sees its share between rounds


@dataclass(frozen=True)
class Retention:
    """How much a tier may hold, and how long.

    Attributes:
        cap_bytes: of all its objects; None for no limit.
        checkpoint_ttl_s: checkpoints go so many seconds after their last use; None: never.
        block_ttl_s: the same for blocks, and for checkpoints where it is less.

    Raises:
        ConfigError: a limit that is not above 0.
    """

    cap_bytes: int | None = None
    checkpoint_ttl_s: float | None = None
    block_ttl_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("cap_bytes", "checkpoint_ttl_s", "block_ttl_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"retention: {name}: expected more than 0 or None, found {value}")

    def admits(self, num_bytes: int) -> bool:
        """Whether an object of that size can be held at all, whatever goes for it."""
        return self.cap_bytes is None or num_bytes <= self.cap_bytes

    def ttl_s(self, is_checkpoint: bool) -> float:
        """Time to live after the last use, in seconds; infinite where there is none."""
        block_s = math.inf if self.block_ttl_s is None else self.block_ttl_s
        if not is_checkpoint or self.checkpoint_ttl_s is None:
            return block_s
        return min(self.checkpoint_ttl_s, block_s)


class Chosen(NamedTuple):
    """An object that is to go; the reason is EXPIRED or OVER_CAP."""

    entry: Entry
    reason: Reason


class Trimmed(NamedTuple):
    """What became of objects that were to go.

    Attributes:
        num_objects: gone, from the index and from the store.
        num_bytes: that the index has less.
        num_expired: of these objects, gone for their age; the others for the cap.
        num_drifted: of these objects, whose bytes had gone behind our back.
        num_failed: that the store could not delete; the index has them again.
    """

    num_objects: int = 0
    num_bytes: int = 0
    num_expired: int = 0
    num_drifted: int = 0
    num_failed: int = 0


def decide(
    expired: Iterable[Entry],
    oldest: Iterable[Entry],
    used_bytes: int,
    cap_bytes: int | None,
    incoming_bytes: int = 0,
) -> list[Chosen]:
    """Choose what goes; pure.

    Args:
        expired: they all go.
        oldest: least recently used first; some of them may be expired as well.
        used_bytes: what the tier holds now.
        cap_bytes: what it may hold.
        incoming_bytes: what is to be stored next; where it never fits, nothing goes for it.

    Returns:
        In the order in which they go.
    """
    chosen = {entry.name: Chosen(entry, Reason.EXPIRED) for entry in expired}
    if cap_bytes is None or incoming_bytes > cap_bytes:
        return list(chosen.values())
    excess = used_bytes + incoming_bytes - cap_bytes
    excess -= sum(each.entry.num_bytes for each in chosen.values())
    for entry in oldest:
        if excess <= 0:
            break
        if entry.name not in chosen:
            chosen[entry.name] = Chosen(entry, Reason.OVER_CAP)
            excess -= entry.num_bytes
    return list(chosen.values())


def choose(
    catalogue: Catalogue, tier: str, retention: Retention, now_s: float, incoming_bytes: int = 0
) -> list[Chosen]:
    """Choose what goes from a tier next: at most some hundreds, so ask again after.

    Args:
        catalogue: is asked, not changed.
        tier: name of the tier.
        retention: its limits.
        now_s: in seconds of the Unix epoch.
        incoming_bytes: what is to be stored next.

    Raises:
        StoreError: the catalogue does not answer.
    """
    expired: list[Entry] = []
    for is_checkpoint in (True, False):  # what hangs from a block goes before it
        ttl_s = retention.ttl_s(is_checkpoint)
        if ttl_s < math.inf and len(expired) < _ROUND:
            left = _ROUND - len(expired)
            expired += catalogue.expired(tier, is_checkpoint, now_s - ttl_s, left)
    if len(expired) == _ROUND or retention.cap_bytes is None:
        return decide(expired, (), 0, None)
    if catalogue.num_bytes(tier) + incoming_bytes <= retention.cap_bytes:
        return decide(expired, (), 0, None)
    # Another process may trim between two queries. With the sum taken last, what it removed is
    # still among the oldest; taken first, others would go for what has gone already.
    oldest = catalogue.oldest(tier, None, _ROUND)
    used_bytes = catalogue.num_bytes(tier)
    return decide(expired, oldest, used_bytes, retention.cap_bytes, incoming_bytes)


def trim(
    store: Store,
    catalogue: Catalogue,
    tier: str,
    chosen: Sequence[Chosen],
    now_s: float,
    forget: Callable[[Sequence[Chosen]], None],
    drifted: Callable[[Chosen], None] = lambda _: None,
) -> Trimmed:
    """Let objects go: from the index, from the caller's own table, then their bytes.

    Args:
        store: the tier's.
        catalogue: its index; where several processes trim, each row falls to one of them.
        tier: name of the tier.
        chosen: what goes, in this order.
        now_s: in seconds of the Unix epoch.
        forget: told what this process removes, before the bytes go.
        drifted: told what had no bytes any more.

    Raises:
        StoreError: the catalogue does not answer; what is not forgotten still has its bytes.

    Mutates: store and catalogue.
    """
    fallen = set(catalogue.remove(tier, [each.entry.name for each in chosen]))
    mine = [each for each in chosen if each.entry.name in fallen]
    if mine:
        forget(mine)
    gone: list[Chosen] = []
    failed: list[Entry] = []
    num_drifted = 0
    is_out = False
    for each in mine:
        if is_out:  # the others would only wait for the same
            failed.append(each.entry)
            continue
        try:
            was_there = store.delete(each.entry.name)
        except StoreFault as fault:
            is_out = fault.is_outage
            # One that cannot be deleted must not stand before all others for ever.
            failed.append(each.entry if is_out else each.entry._replace(used_s=now_s))
            continue
        gone.append(each)
        if not was_there:
            num_drifted += 1
            drifted(each)
    if failed:
        catalogue.add(failed)
    num_bytes = sum(each.entry.num_bytes for each in gone)
    num_expired = sum(each.reason is Reason.EXPIRED for each in gone)
    return Trimmed(len(gone), num_bytes, num_expired, num_drifted, len(failed))


def enforce(
    store: Store,
    catalogue: Catalogue,
    tier: str,
    retention: Retention,
    now_s: float,
    incoming_bytes: int = 0,
    forget: Callable[[Sequence[Chosen]], None] = lambda _: None,
    drifted: Callable[[Chosen], None] = lambda _: None,
) -> Trimmed:
    """Bring a tier within its limits.

    Args:
        store: the tier's.
        catalogue: its index.
        tier: name of the tier.
        retention: its limits.
        now_s: in seconds of the Unix epoch.
        incoming_bytes: what is to be stored next.
        forget: told what this process removes, before the bytes go.
        drifted: told what had no bytes any more.

    Returns:
        What went. Stops where the store cannot delete what is to go.

    Raises:
        StoreError: the catalogue does not answer.

    Mutates: store and catalogue.
    """
    total = Trimmed()
    while chosen := choose(catalogue, tier, retention, now_s, incoming_bytes):
        done = trim(store, catalogue, tier, chosen, now_s, forget, drifted)
        total = Trimmed(*(a + b for a, b in zip(total, done, strict=True)))
        if done.num_failed and not done.num_objects:
            break
    return total
