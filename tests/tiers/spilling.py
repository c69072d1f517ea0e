"""An endless load on small pools above a folder, whose page bytes can be foretold.

Pages are evicted, spilled and loaded again all the time. What a page holds follows from the text
and the position up to which it was written, so a parent that kills the child knows every byte.
"""

import faulthandler
import hashlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from kvstrata import CacheConfig, CacheManager, LogConfig, OutOfPages, Request
from kvstrata import Sequence as RunningSequence
from kvstrata.core.planner import Rates
from kvstrata.eventstore.log.formats import Buffer
from kvstrata.tiers import tierset
from kvstrata.tiers.config import TierConfig, TiersConfig
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.store import Store
from tests.system.seven_groups import HISTORY, LAYOUT, STATES

from .watched import WatchedFiles

Page = npt.NDArray[np.uint8]
Pools = Literal["private", "shared"]
BLOCK = LAYOUT.block_tokens
TEXT_TOKENS = 320
NUM_TEXTS = 32
TEXTS = [
    np.random.default_rng(number).integers(0, 1000, size=TEXT_TOKENS, dtype=np.int32)
    for number in range(NUM_TEXTS)
]
AT_ONCE = 8
"""Texts that one life works on: one of them new, the others those of the lives before."""
MOST_REQUESTS = 2000
WAIT_S = 20.0


@dataclass(frozen=True)
class Where:
    """The folders of one cache: its log, its shared memory, its folder tier."""

    root: Path
    pools: Pools = "private"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def tier(self) -> Path:
        return self.root / "disk"

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def config(self, tiers: tuple[TierConfig, ...] = (), **fields: Any) -> CacheConfig:
        """Pools for two or three texts, and a machine that had rather load than compute."""
        config = TiersConfig(tiers or (TierConfig(str(self.tier), "disk"),), workers=2, **fields)
        return CacheConfig(
            slots=dict.fromkeys(HISTORY, 49) | dict.fromkeys(STATES, 21),
            max_sequences=4,
            max_leases=8,
            max_tokens_per_sequence=TEXT_TOKENS + BLOCK,
            rates=Rates(tokens_per_s=100, bytes_per_s=10**9),
            log=LogConfig(
                ring_events=1 << 13,
                segment_bytes=1 << 20,
                sync_interval_ms=2.0,
                shared_memory_root=self.shared,
            ),
            tiers=config,
        )

    def open(self, tiers: tuple[TierConfig, ...] = (), **fields: Any) -> CacheManager:
        """Open a manager, above one folder where no tiers are given."""
        self.shared.mkdir(exist_ok=True, parents=True)
        return CacheManager.open(LAYOUT, self.config(tiers, **fields), self.log, self.pools)


def request(text: int, length: int = TEXT_TOKENS, **fields: Any) -> Request:
    """A request for the beginning of a text."""
    return Request(TEXTS[text][:length], model="spilling", **fields)


@cache
def page_of(text: int, position: int, group: str) -> Page:
    """The bytes of a group's page that was written up to a position of a text."""
    prefix = TEXTS[text][:position].tobytes()
    digest = hashlib.sha256(group.encode() + prefix).digest()
    return np.resize(np.frombuffer(digest, np.uint8), LAYOUT.group(group).page_bytes)


def pages_of(text: int, position: int, is_checkpoint: bool) -> list[Page]:
    """The pages of one object, in part order."""
    return [page_of(text, position, group) for group in (STATES if is_checkpoint else HISTORY)]


def page_at(cache: CacheManager, group: str, slot: int) -> Page:
    """The bytes of a page, where they lie."""
    assert cache.pools is not None
    page: Page = cache.pools.storage(group)[slot].numpy()
    return page


def wrong_pages(cache: CacheManager, sequence: RunningSequence, text: int) -> list[str]:
    """What a sequence that has just begun was given, as far as it is not what was written."""
    plan = sequence.plan
    wrong = []
    for group in HISTORY:
        slots = cache.block_slots(sequence, group)[: plan.reused_tokens // BLOCK]
        for index, slot in enumerate(slots.tolist()):
            expected = page_of(text, (index + 1) * BLOCK, group)
            if not np.array_equal(page_at(cache, group, slot), expected):
                wrong.append(f"text {text}: {group}, block {index}")
    if plan.checkpoint[0]:
        for group, slot in cache.slots_of_image(plan.checkpoint[0]).items():
            if not np.array_equal(
                page_at(cache, group, slot), page_of(text, plan.resume_at, group)
            ):
                wrong.append(f"text {text}: {group}, checkpoint at {plan.resume_at}")
    return wrong


def _step(cache: CacheManager, sequence: RunningSequence, text: int, end: int) -> None:
    """Compute up to a position: write every page that such a step writes."""
    start = sequence.position
    step = cache.reserve([sequence.id], [end - start])
    if step.refused[0]:
        step.abort()
        raise OutOfPages("no pages")
    first = max(start, sequence.protected) // BLOCK
    for group in HISTORY:
        slots = cache.block_slots(sequence, group)
        for index in range(first, -(-end // BLOCK)):
            position = min((index + 1) * BLOCK, end)
            page_at(cache, group, int(slots[index]))[:] = page_of(text, position, group)
    for group, slot in step.image_slots(0)[1].items():
        page_at(cache, group, slot)[:] = page_of(text, end, group)
    step.commit(tokens=TEXTS[text][start:end])


def serve(
    cache: CacheManager, text: int, length: int, num_output: int, max_resume: int | None = None
) -> int:
    """Serve one request, whose answer is how its text goes on; where it resumed."""
    wanted = request(text, length, max_resume=max_resume)
    sequence = cache.begin_when_ready(wanted, WAIT_S)
    wrong = wrong_pages(cache, sequence, text)
    assert not wrong, wrong
    try:
        for end in (*sequence.captures, length, *range(length + 1, length + num_output + 1)):
            if end > sequence.position:
                _step(cache, sequence, text, end)
    except OutOfPages:
        sequence.cancel()
    else:
        sequence.finish()
    return sequence.resumed_at


def texts_of(life: int) -> list[int]:
    """The texts that a life works on."""
    return [(life + number) % NUM_TEXTS for number in range(AT_ONCE)]


def work(where: Where, life: int, report: int) -> None:
    """Serve until killed; after each flush, report the durable seqno to a file descriptor."""
    faulthandler.dump_traceback_later(2 * WAIT_S, exit=True)
    torch.set_num_threads(1)  # the parent's threads are not in a fork of it
    cache = where.open()
    dice = np.random.default_rng(life)
    texts = texts_of(life)
    for number in range(MOST_REQUESTS):
        text, length = int(dice.choice(texts)), int(dice.integers(1, TEXT_TOKENS - 16))
        serve(cache, text, length, number % 16)
        if number % 4 == 3:
            seqno = cache.stats().last_seqno
            cache.flush()
            os.write(report, seqno.to_bytes(8, "little"))


def die_in_store(wanted: str, countdown: int) -> None:
    """Have this process kill itself the ``countdown``-th time its folder is about to do a call."""
    files = WatchedFiles()
    left = countdown

    def hook(call: str) -> None:
        nonlocal left
        files.calls.clear()
        left -= call == wanted
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def open_watched(url: str, *_: Any) -> Store:
        store = LocalStore(Path(url), files)
        store.is_memory = False  # with syncs, wherever the tests run
        return store

    files.hook = hook
    if wanted == "pwritev":
        files.at_most_bytes = 100  # so that an object may be cut off in its midst
    tierset.open_store = open_watched  # type: ignore[assignment]


def die_before(owner: type, method: str, countdown: int) -> None:
    """Have this process kill itself before the ``countdown``-th call of a method."""
    original: Callable[..., Any] = getattr(owner, method)
    left = countdown

    def called(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, method, called)


def read_object(store: LocalStore, name: str, sizes: Sequence[int]) -> list[Page]:
    """The parts of an object: header, pages, trailer."""
    parts = [np.zeros(size, np.uint8) for size in sizes]
    buffers: list[Buffer] = [memoryview(part) for part in parts]
    store.read(name, buffers)  # type: ignore[arg-type]
    return parts
