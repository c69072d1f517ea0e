"""kvstrata as a subject: events and validation on; with ``log=False`` without its log."""

import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from subject import Geometry, Subject

from kvstrata import CacheConfig, CacheManager, LogConfig, Request, Sequence, preset


def open_subject(geometry: Geometry, log: bool = True, digests: bool = True) -> Subject:
    return Kvstrata(geometry, log, digests)


class Kvstrata(Subject):
    """The manager without pools: what it decides and logs, as the peers do theirs."""

    name = "kvstrata"
    version = version("kvstrata")

    def __init__(self, geometry: Geometry, log: bool, digests: bool) -> None:
        super().__init__(geometry)
        share = f"{geometry.checkpoint_share:.0%}"
        self.differences = (
            "Hits end at multiples of 128 tokens, the model's lcm, where a checkpoint is.",
            f"Of the bytes left by running sequences, {share} are for checkpoints, 18.4 MB each.",
            "What a step computes is found only once the step has ended.",
            "Every hit is validated, every transition is in the log." if log else "It has no log.",
        )
        self._folder = Path(tempfile.mkdtemp(prefix="kvstrata-bench-"))
        self._memory = Path(
            tempfile.mkdtemp(dir=os.environ.get("KVSTRATA_BENCH_MEMORY", "/dev/shm"))
        )
        layout = preset(geometry.model)
        self._block = layout.block_tokens
        config = CacheConfig(
            budget_bytes=geometry.budget_bytes,
            checkpoint_share=geometry.checkpoint_share,
            max_sequences=geometry.max_sequences,
            max_tokens_per_sequence=geometry.max_tokens,
            log=LogConfig(ring_events=1 << 19, shared_memory_root=self._memory),
            digest_bytes_per_s=CacheConfig.digest_bytes_per_s if digests else 0,
        )
        directory = self._folder / "log" if log else None
        self._cache = CacheManager.open(layout, config, directory)
        self.settings = {
            "block_tokens": layout.block_tokens,
            "events": "on" if log else "off",
            "validation": "on",
            "state_bytes": "All tables but the rows of running requests; made whole at the start.",
            "ring_bytes": 64 * config.log.ring_events,
            "pools": {pool.group: pool.slots for pool in self._cache.stats().pools},
        }

    def prepare(self, tokens: npt.NDArray[np.int32]) -> Any:
        return tokens

    def request(self, prepared: Any) -> Any:
        request = Request(prepared, model=self.geometry.model)
        request.keys(self._block)
        return request

    def match(self, request: Any) -> int:
        return self._cache.match(request).resume_at

    def begin(self, request: Any) -> tuple[Any, int]:
        sequence = self._cache.begin(self._cache.match(request))
        return sequence, sequence.plan.resume_at

    def extend(self, running: Any, num_tokens: int) -> None:
        end = running.position + num_tokens
        for stop in (*running.captures, end):
            now = running.position
            if now < stop <= end:
                self._cache.reserve([running.id], [stop - now]).commit()

    def batch(self, running: list[Sequence]) -> Any:
        ids = np.array([one.id for one in running], dtype=np.int64)
        return ids, np.ones(len(ids), dtype=np.int64)

    def decode(self, batch: Any, tokens: Any) -> None:
        ids, ones = batch
        self._cache.reserve(ids, ones).commit(tokens=tokens)

    def finish(self, running: Any) -> None:
        running.finish()

    def state_bytes(self) -> int:
        cache = self._cache
        return int(cache.arena.nbytes - cache.tables.holder_blocks.nbytes)

    def close(self) -> None:
        self._cache.close()
        shutil.rmtree(self._folder)
        shutil.rmtree(self._memory)
