"""Replay of a log of chats: kvstrata's own, beside DuckDB and a plain Python loop.

All read a file that the operating system has in memory. kvstrata's figure is the whole of
``open_replayed``: reading, CRC, applying with every precondition, index, lists and references.
``read`` and ``apply`` are its two parts one after the other, in a pass of their own.
"""

from pathlib import Path
from typing import Any

import numpy as np

from kvstrata.core.arena import new_arena, open_tables
from kvstrata.core.replay import apply_events
from kvstrata.eventstore.log import open_replayed, read_events
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.scan import SegmentScan, read_header

from .figures import in_turn, medians, timed
from .loop import PlainLoop
from .query import DuckDb, Events
from .traffic import chat_config, chat_layout


class ReplayLog:
    """One log, and what replays it.

    Args:
        directory: of the log.
        shared_memory: where its ring is.
        num_pages: of every history pool.
        scratch: folder for the database.
        loop_events: events of the Python loop, the log's first ones.
    """

    def __init__(
        self, directory: Path, shared_memory: Path, num_pages: int, scratch: Path, loop_events: int
    ) -> None:
        self._directory = directory
        self._shared_memory = shared_memory
        self._layout = chat_layout()
        self._params = chat_config(num_pages, shared_memory).arena_params(self._layout)
        self._database, load = timed(
            lambda: DuckDb(scratch / f"{num_pages}.duckdb", read_events(directory))
        )
        self._head = _first(directory, loop_events)
        self.about: dict[str, Any] = {
            "pages_of_each_history_pool": num_pages,
            "pages_of_all_pools": sum(self._params.slots.values()),
            "duckdb_load": {**load, "file_bytes": self._database.file_bytes},
        }
        self._check()

    def _check(self) -> None:
        """All of them come to the same; it also compiles what is to be measured."""
        arena, report = open_replayed(self._directory, self._shared_memory)
        tables = open_tables(arena)
        self.about["events"] = report.events_replayed
        self.about["arena_bytes"] = arena.nbytes
        self.about["indexed_blocks"] = int(np.count_nonzero(tables.blocks.places))
        self._database.check(self._database.last_states(), tables)
        loop = PlainLoop(self._layout, self._params.slots)
        loop.apply(self._head.tobytes())
        early = new_arena(self._layout, self._params)
        assert apply_events(early, _words(self._head)) == len(self._head)
        loop.check(open_tables(early))

    def measure(self, rounds: int) -> dict[str, Any]:
        """Medians of so many rounds, in alternating order."""
        subjects = {"kvstrata": self._kvstrata, "duckdb": self._duckdb, "python": self._python}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in subjects}
        for number in range(rounds):
            for name in in_turn(number, list(subjects)):
                found[name].append(subjects[name]())
        return self.about | {name: medians(one) for name, one in found.items()}

    def _kvstrata(self) -> dict[str, float]:
        (_, report), whole = timed(lambda: open_replayed(self._directory, self._shared_memory))
        rate = report.events_replayed / whole["wall_s"]
        return {**whole, "events_per_s": rate, **self._parts()}

    def _parts(self) -> dict[str, float]:
        """Empty tables; reading and CRC; applying: batch by batch, one after the other."""
        arena, fresh = timed(lambda: new_arena(self._layout, self._params), "tables_")
        spent = {"read_wall_s": 0.0, "read_cpu_s": 0.0, "apply_wall_s": 0.0, "apply_cpu_s": 0.0}

        def add(more: dict[str, float]) -> None:
            for name, seconds in more.items():
                spent[name] += seconds

        for path in LogPaths(self._directory).segment_files():
            header = read_header(path)
            assert header is not None
            scan, read = timed(lambda path=path, header=header: SegmentScan(path, header), "read_")
            add(read)
            batches = scan.batches()
            while True:
                batch, read = timed(lambda batches=batches: next(batches, None), "read_")
                add(read)
                if batch is None:
                    break
                add(timed(lambda words=batch.words: apply_events(arena, words), "apply_")[1])
        return {**fresh, **spent}

    def _duckdb(self) -> dict[str, float]:
        _, whole = timed(self._database.last_states)
        return {**whole, "events_per_s": self.about["events"] / whole["wall_s"]}

    def _python(self) -> dict[str, float]:
        data = self._head.tobytes()
        loop = PlainLoop(self._layout, self._params.slots)
        _, whole = timed(lambda: loop.apply(data))
        rate = len(self._head) / whole["wall_s"]
        return {
            **whole,
            "events": len(self._head),
            "events_per_s": rate,
            "scaled_wall_s": self.about["events"] / rate,
        }


def _words(events: Events) -> Any:
    return np.ascontiguousarray(events).view(np.int64).reshape(-1, 8)


def _first(directory: Path, num_events: int) -> Events:
    """The first events of a log, whole batches."""
    taken: list[Events] = []
    for batch in read_events(directory):
        taken.append(batch.copy())
        if sum(map(len, taken)) >= num_events:
            break
    return np.concatenate(taken)
