from __future__ import annotations

import math

import pytest

from kvstrata.core.errors import ConfigError
from kvstrata.tiers.config import MAX_TIERS, CheckpointPolicy, TierConfig, TiersConfig

DISK = TierConfig("/data/prefixes")


@pytest.mark.parametrize(
    ("url", "name", "is_folder"),
    [
        ("/data/prefixes", "disk", True),
        ("file:///data/prefixes", "disk", True),
        ("prefixes", "disk", True),
        ("/dev/shm/prefixes", "host", True),
        ("file:///dev/shm/prefixes", "host", True),
        ("s3://bucket/prefix", "remote", False),
    ],
)
def test_the_url_gives_the_usual_name(url: str, name: str, is_folder: bool) -> None:
    tier = TierConfig(url)
    assert (tier.name, tier.is_folder) == (name, is_folder)
    assert TierConfig(url, name="mine").name == "mine"


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"url": ""}, "url"),
        ({"url": "ftp://server/path"}, "s3://bucket/prefix"),
        ({"url": "file://server/path"}, "file:///path"),
        ({"name": "a\nb"}, "name"),
        ({"cap_bytes": 0}, "cap_bytes of disk"),
        ({"cap_bytes": 1.5}, "cap_bytes of disk"),
        ({"checkpoint_ttl_s": 0}, "checkpoint_ttl_s"),
        ({"block_ttl_s": -1.0}, "block_ttl_s"),
        ({"timeout_s": math.nan}, "timeout_s"),
        ({"timeout_s": math.inf}, "timeout_s"),
        ({"retries": -1}, "retries"),
        ({"retries": True}, "retries"),
    ],
)
def test_a_tier_that_cannot_work_is_refused(changed: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        TierConfig(**{"url": "/data", **changed})  # type: ignore[arg-type]
    assert "expected" in str(caught.value)
    assert "found" in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"tiers": ()}, "1 to 8"),
        ({"tiers": tuple(TierConfig(f"/{n}", str(n)) for n in range(MAX_TIERS + 1))}, "1 to 8"),
        ({"tiers": (DISK, TierConfig("/other"))}, "name of its own.*disk"),
        ({"tiers": (DISK, TierConfig("file:///data/prefixes/", "again"))}, "place of its own"),
        ({"spill": "sometimes"}, "spill.*seal, evict, never"),
        ({"checkpoints": "every:0"}, "checkpoints"),
        ({"workers": 0}, "workers"),
        ({"max_spills": 0}, "max_spills"),
        ({"max_queued_spills": 0}, "max_queued_spills"),
        ({"objects": 0}, "objects"),
        ({"load_deadline_s": 0.0}, "load_deadline_s"),
    ],
)
def test_tiers_that_cannot_work_are_refused(changed: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        TiersConfig(**{"tiers": (DISK,), **changed})  # type: ignore[arg-type]


def test_eight_tiers_and_a_list_of_them_are_fine() -> None:
    tiers = [TierConfig(f"/{number}", str(number)) for number in range(MAX_TIERS)]
    config = TiersConfig(tiers)  # type: ignore[arg-type]
    assert config.tiers == tuple(tiers)
    assert hash(config) == hash(TiersConfig(tuple(tiers)))


@pytest.mark.parametrize("text", ["full", "every:4096", "ends", "none"])
def test_a_policy_is_read_as_it_is_written(text: str) -> None:
    policy = TiersConfig((DISK,), checkpoints=text).checkpoint_policy()
    assert str(policy) == text
    assert policy.every_tokens == (4096 if text == "every:4096" else 0)


@pytest.mark.parametrize(
    "text",
    ["", "all", "every", "every:", "every:0", "every:-4", "every:4.5", "every:x", "full:4", "²"],
)
def test_another_policy_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="every:P"):
        CheckpointPolicy.parse(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("full", {(128, False), (128, True), (256, False), (256, True)}),
        ("every:256", {(256, False), (256, True)}),
        ("ends", {(128, True), (256, True)}),
        ("none", set()),
    ],
)
def test_a_policy_says_which_checkpoints_are_kept(text: str, kept: set[tuple[int, bool]]) -> None:
    policy = CheckpointPolicy.parse(text)
    asked = [(position, is_end) for position in (128, 256) for is_end in (False, True)]
    assert {one for one in asked if policy.keeps(*one)} == kept
