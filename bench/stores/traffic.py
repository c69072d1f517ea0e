"""Realistic events: chats on a manager without pools, whose log is what replay and opening read.

Many sessions are open; each turn sends the whole conversation so far and some new tokens, so
its beginning is a hit unless it was evicted meanwhile. Token ids are random but for the system
prompts, which sessions share.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from kvstrata import CacheConfig, CacheLayout, CacheManager, LogConfig, Request, Sequence, preset
from kvstrata.core.words import META_LAST_SEQNO

Tokens = npt.NDArray[np.int32]

_AT_ONCE = 16
_CHUNK = 8192
_DECODE = 128
_LONGEST = 32_768
_SYSTEM_PROMPTS = 8


def chat_layout() -> CacheLayout:
    return preset("deepseek-v4-flash")


def chat_config(num_pages: int, shared_memory: Path) -> CacheConfig:
    """A manager with so many pages in every history pool, and a sixteenth as many images."""
    layout = chat_layout()
    history = {group.name for group in layout.history_groups}
    images = max(num_pages // 16, 1024)
    slots = {group.name: num_pages if group.name in history else images for group in layout.groups}
    return CacheConfig(
        slots=slots,
        max_sequences=_AT_ONCE,
        max_tokens_per_sequence=_LONGEST + 2 * _CHUNK,
        log=LogConfig(
            ring_events=1 << 19, segments_per_snapshot=0, shared_memory_root=shared_memory
        ),
    )


class Chats:
    """Drives a manager with turns of many sessions.

    Args:
        cache: the manager.
        sessions: open at once.
        seed: of all tokens and lengths.
    """

    def __init__(self, cache: CacheManager, sessions: int, seed: int = 0) -> None:
        self._cache = cache
        self._dice = np.random.default_rng(seed)
        self._systems = [self._tokens(length) for length in [1024] * _SYSTEM_PROMPTS]
        self._sessions = [self._new_session() for _ in range(sessions)]

    def run(self, num_events: int, told: Callable[[int], None] = lambda events: None) -> None:
        """Serve turns until so many more events are logged."""
        end = self._events + num_events
        while self._events < end:
            self._serve(self._dice.choice(len(self._sessions), _AT_ONCE, replace=False))
            told(self._events)

    @property
    def _events(self) -> int:
        return int(self._cache.arena[META_LAST_SEQNO])

    def _tokens(self, length: int) -> Tokens:
        return self._dice.integers(0, 1 << 30, length, dtype=np.int32)

    def _new_session(self) -> Tokens:
        return self._systems[self._dice.integers(_SYSTEM_PROMPTS)]

    def _serve(self, chosen: npt.NDArray[np.int64]) -> None:
        """One turn of each chosen session: prompts computed in turn, answers together."""
        running = [self._begin(int(number)) for number in chosen]
        ids = np.array([sequence.id for sequence in running], dtype=np.int64)
        for _ in range(int(self._dice.integers(1, 5))):
            answers = [self._tokens(_DECODE) for _ in running]
            step = self._cache.reserve(ids, np.full(len(ids), _DECODE, dtype=np.int64))
            step.commit(tokens=np.concatenate(answers))
            for number, answer in zip(chosen, answers, strict=True):
                self._sessions[number] = np.concatenate([self._sessions[number], answer])
        for sequence in running:
            sequence.finish()

    def _begin(self, number: int) -> Sequence:
        told = self._tokens(int(self._dice.integers(64, 4096)))
        prompt = np.concatenate([self._sessions[number], told])
        if len(prompt) > _LONGEST:
            prompt = np.concatenate([self._new_session(), told])
        self._sessions[number] = prompt
        sequence = self._cache.begin(self._cache.match(Request(prompt, model="bench")))
        at = sequence.position
        stops = [stop for stop in sequence.captures if at < stop < len(prompt)] + [len(prompt)]
        for stop in stops:
            while at < stop:
                tokens = min(_CHUNK, stop - at)
                self._cache.reserve([sequence.id], [tokens]).commit()
                at += tokens
        return sequence


def open_chats(
    directory: Path, shared_memory: Path, num_pages: int, seed: int = 0
) -> tuple[CacheManager, Chats]:
    """A cache and its chats, whose conversations together are half as large again as its pools.

    A conversation is about 128 blocks long, so some turns find their beginning evicted.
    """
    config = chat_config(num_pages, shared_memory)
    cache = CacheManager.open(chat_layout(), config, directory)
    return cache, Chats(cache, max(num_pages // 85, 2 * _AT_ONCE), seed)


def leave(cache: CacheManager) -> None:
    """Leave a cache as a crash would, with its log whole."""
    cache.flush(60)
    assert cache.log is not None
    cache.log.close(clean=False)


def write_log(directory: Path, shared_memory: Path, num_pages: int, num_events: int) -> None:
    """A log of so many events of chats from an empty cache on, without snapshots."""
    cache, chats = open_chats(directory, shared_memory, num_pages)
    with progress(f"a log of {num_pages:,} pages", num_events) as tell:
        chats.run(num_events, tell)
    leave(cache)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal."""
    columns = (TextColumn(what), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.update(task, completed=done)
