"""kvstrata replay with a tier below the device, in the books alone."""

from pathlib import Path

import pytest

from kvstrata import CacheLayout, ConfigError
from kvstrata.api.replay import Outcome, Replay
from kvstrata.api.traces import read_trace
from kvstrata.tiers.config import TierConfig, TiersConfig
from tests.api.replays import BLOCK, FULL, HYBRID, random_lines, write_trace

POLICIES = ("none", "ends", f"every:{2 * BLOCK}", "full")
FEW_PAGES = 14_000
"""Bytes in which few blocks fit, so that most that is hit again was evicted."""


def replayed(
    folder: Path,
    shared_root: Path,
    policy: str | None,
    layout: CacheLayout = HYBRID,
    keys: int = 4096,
) -> Outcome:
    trace = read_trace(write_trace(folder / "trace.jsonl", *random_lines(5, requests=120)))
    name = f"log-{policy}".replace(":", "-")
    replay = Replay(
        trace, layout, FEW_PAGES, folder / name, 2, shared_root, tier_policy=policy, tier_keys=keys
    )
    try:
        replay.run(lambda done: None)
    finally:
        replay.close()
    return replay.outcome()


def test_policies_trade_bytes_for_computing(tmp_path: Path, shared_root: Path) -> None:
    without = replayed(tmp_path, shared_root, None)
    found = [replayed(tmp_path, shared_root, policy) for policy in POLICIES]
    assert without.stored_bytes == without.loads == 0
    assert without.evictions > 50
    tokens = {one.stored_tokens for one in found}
    assert len(tokens) == 1, "every policy stores every block once"
    stored = [one.stored_bytes for one in found]
    assert stored[0] < min(stored[1:])
    assert stored[3] > max(stored[:3])
    per_token = [one.stored_bytes_per_token or 0.0 for one in found]
    assert per_token == [one.stored_bytes / one.stored_tokens for one in found]
    assert all(one.loads > 0 and one.load_bytes > 0 for one in found)
    assert found[3].recomputed_tokens == 0
    assert found[1].recomputed_tokens > 0
    assert found[3].saved_tokens > without.saved_tokens


def test_a_tier_of_few_keys_forgets_the_oldest(tmp_path: Path, shared_root: Path) -> None:
    (tmp_path / "few").mkdir()
    few = replayed(tmp_path / "few", shared_root, "ends", FULL, keys=8)
    many = replayed(tmp_path, shared_root, "ends", FULL)
    assert few.hit_tokens < many.hit_tokens
    assert few.stored_tokens > many.stored_tokens, "what was forgotten is stored again"


def test_totals_are_those_of_the_log(tmp_path: Path, shared_root: Path) -> None:
    first = replayed(tmp_path, shared_root, "ends")
    again = replayed(tmp_path, shared_root, "ends")  # the log holds all of it: it is only read
    assert again.run_requests == 0
    for name in ("requests", "hit_tokens", "loads", "load_bytes", "stored_bytes", "hits"):
        assert getattr(first, name) == getattr(again, name) > 0, name


@pytest.mark.parametrize("policy", ["some", "every:0", "every:3"])
def test_a_policy_that_is_none_is_refused(tmp_path: Path, shared_root: Path, policy: str) -> None:
    with pytest.raises(ConfigError, match="checkpoints"):
        replayed(tmp_path, shared_root, policy)
    assert TiersConfig((TierConfig("books"),)).checkpoints == "ends"
