"""A sealed image holds its window, however far its ring was written by aborted steps."""

import numpy as np
import pytest

from kvstrata import CacheConfig, CacheManager, ConfigError, Request, Sequence, Step
from kvstrata.core.presets import attention_layout

ROWS = 16 - 1 + 4
PROMPT = Request(np.arange(34), "slack")


@pytest.fixture
def cache() -> CacheManager:
    layout = attention_layout(2, sliding_layers=[1], window=16, block_tokens=16, rollback_tokens=4)
    config = CacheConfig(slots={"full": 40, "swa": 20}, max_sequences=4)
    return CacheManager.open(layout, config, None, "private")


def run(cache: CacheManager, step: Step) -> None:
    """Write what the step's rows are: each the position it stands for."""
    assert cache.pools is not None
    ring = cache.pools.view("swa", "k")
    image = step.image_slots(0)[1]["swa"]
    start = int(step.start[0])
    for position in range(start, start + int(step.num_tokens[0])):
        ring[image, :, position % ROWS] = float(position)


def begin(cache: CacheManager) -> tuple[Sequence, Step, Step]:
    """A step that switches the image, and one written in place behind it; both have run."""
    sequence = cache.begin(cache.match(PROMPT))
    switched = cache.reserve([sequence.id], [34])
    behind = cache.reserve([sequence.id], [4])
    run(cache, switched)
    run(cache, behind)
    return sequence, switched, behind


def window_is_whole(cache: CacheManager) -> bool:
    """Whether a hit finds the rows of its window; True where there is no hit."""
    assert cache.pools is not None
    sequence = cache.begin(cache.match(PROMPT))
    ring = cache.pools.view("swa", "k")
    image = cache.image_slots(sequence)["swa"]
    end = sequence.position
    window = range(end - 15, end)
    if end == 0:
        return True
    found = [float(ring[image, 0, position % ROWS].flatten()[0]) for position in window]
    return found == [float(position) for position in window]


def test_an_aborted_step_behind_a_switched_one(cache: CacheManager) -> None:
    sequence, switched, behind = begin(cache)
    behind.abort()
    switched.commit()
    sequence.finish()
    assert window_is_whole(cache)


def test_a_partial_commit_counts_what_an_aborted_step_wrote(cache: CacheManager) -> None:
    _, switched, behind = begin(cache)
    behind.abort()
    with pytest.raises(ConfigError, match="rolled back"):
        switched.commit(accepted=[33])
    switched.commit()


def test_an_aborted_switch_leaves_the_committed_image(cache: CacheManager) -> None:
    sequence, switched, _ = begin(cache)
    switched.abort()
    for end in (32, 34):
        step = cache.reserve([sequence.id], [end - sequence.position])
        run(cache, step)
        step.commit()
    sequence.finish()
    assert cache.match(PROMPT).resume_at == 32
    assert window_is_whole(cache)
