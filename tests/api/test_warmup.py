from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from kvstrata import CacheConfig, CacheManager
from kvstrata.api.warm import NUM_STAGES, warm
from kvstrata.core.presets import attention_layout

from .logs import crash, open_cache, run_prompt

if TYPE_CHECKING:
    from .conftest import CommandLine

FULL_ONLY = attention_layout(num_layers=1)
SLIDING = attention_layout(num_layers=4, sliding_layers=(0, 2), window=40, block_tokens=8)


def compiled_signatures() -> dict[str, int]:
    """How many signatures of each compiled function this process has."""
    return {
        f"{found.__module__}.{found.__name__}": len(found.signatures)
        for name, module in list(sys.modules.items())
        if name.startswith("kvstrata.")
        for found in vars(module).values()
        if isinstance(found, Dispatcher)
    }


def use_a_cache(directory: Path, shared_root: Path) -> None:
    for layout in (FULL_ONLY, SLIDING):
        place = directory / layout.digest().hex()
        cache = open_cache(place, shared_root, layout)
        run_prompt(cache).finish()
        sequence = run_prompt(cache)
        for count in (1, 30):
            cache.reserve([sequence.id], [count]).commit(tokens=np.zeros(count, np.int32))
        cache.reserve(np.array([sequence.id]), np.array([3])).abort()
        crash(cache)
        with open_cache(place, shared_root, layout) as cache:
            cache.check_integrity()
            run_prompt(cache).cancel()
        with CacheManager.open(layout, CacheConfig(budget_bytes=1_000_000)) as without_bytes:
            sequence = run_prompt(without_bytes)
            for count in (1, 30):
                tokens = np.zeros(count, np.int32)
                without_bytes.reserve([sequence.id], [count]).commit(tokens=tokens)
            sequence.finish()


def test_after_it_nothing_is_left_to_compile(tmp_path: Path, shared_root: Path) -> None:
    assert len(list(warm())) == NUM_STAGES
    before = compiled_signatures()
    assert numba.config.DISABLE_JIT or sum(map(bool, before.values())) > 20
    use_a_cache(tmp_path, shared_root)
    assert compiled_signatures() == before


def test_it_says_how_long_it_took_and_where_the_code_is(kvstrata: CommandLine) -> None:
    outcome = kvstrata("warmup")
    assert outcome.code == 0
    assert outcome.out.startswith("compiled in ")
    assert "/compiled/" in outcome.out
