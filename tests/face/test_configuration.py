"""Settings, directories and owners that do not fit: refused in one line, nothing damaged."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kvstrata import (
    CacheConfig,
    CacheManager,
    ConfigError,
    CorruptSegment,
    DirectoryBusy,
    LogConfig,
    LogError,
    PoolSet,
    UnknownSchema,
    preset,
)
from kvstrata.core.arena import arena_digest
from kvstrata.eventstore.log import open_replayed

from .support import FULL, LAYOUT, Place, config, hit, request, serve

WRONG_SIZES: dict[str, tuple[dict[str, Any], str]] = {
    "no history page": ({"slots": {"full": 1, "swa": 20}}, "pool 'full' is too small for one "),
    "one image": ({"slots": {"full": 40, "swa": 2}}, "'swa' .* expected at least 3 .* found 2"),
    "a group is missing": ({"slots": {"full": 40}}, r"one entry per group \['full', 'swa'\]"),
    "a group too many": ({"slots": {"full": 40, "swa": 20, "x": 3}}, "one entry per group"),
    "budget": ({"slots": None, "budget_bytes": 1000}, r"expected at least [\d,]+ .* found 1,000"),
    "no budget": ({"slots": None, "budget_bytes": 0}, "expected at least"),
    "no memory at all": ({"slots": None}, "either budget_bytes or slots, found both or neither"),
    "both": ({"budget_bytes": 10}, "either budget_bytes or slots, found both or neither"),
    "no sequence": ({"max_sequences": 0}, "expected 1 <= max_sequences"),
    "no token": ({"max_tokens_per_sequence": 0}, "max_tokens_per_sequence: expected at least 1"),
    "one image each": ({"images_per_sequence": 1}, "images_per_sequence: expected 2 to 4, found 1"),
    "all checkpoints": ({"checkpoint_share": 1.0}, "checkpoint_share: expected 0 <= share < 1"),
    "sometimes": ({"verify_hits": "sometimes"}, "'sampled' or 'never', found 'sometimes'"),
    "ring for fewer": ({"max_sequences": 64}, r"ring_events: expected at least \d+ for 64"),
}


@pytest.mark.parametrize("name", WRONG_SIZES)
def test_sizes_that_do_not_serve(place: Place, name: str) -> None:
    changes, message = WRONG_SIZES[name]
    with pytest.raises(ConfigError, match=message) as caught:
        place.open(**changes)
    assert "\n" not in str(caught.value)
    assert not place.directory.exists()
    assert not list(place.shared.iterdir())


def test_the_budget_it_asks_for_suffices() -> None:
    """The message names the bytes needed: with them it opens, with one less it does not."""
    with pytest.raises(ConfigError, match="budget_bytes") as caught:
        config(slots=None, budget_bytes=1).arena_params(LAYOUT)
    least = int(str(caught.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    with pytest.raises(ConfigError, match=f"expected at least {least:,}"):
        config(slots=None, budget_bytes=least - 1).arena_params(LAYOUT)
    # All of what is left over goes to the one block.
    whole = config(slots=None, budget_bytes=least, checkpoint_share=0.0)
    with CacheManager.open(LAYOUT, whole, pools="private") as cache:
        assert cache.pools is not None
        assert cache.pools.num_bytes == least
        assert serve(cache, request("fits", 16)) == 0


def test_pools_stay_within_their_budget() -> None:
    for budget in (300_000, 1_000_000, 12_345_678):
        params = config(slots=None, budget_bytes=budget).arena_params(LAYOUT)
        used = sum(params.slots[group.name] * group.page_bytes for group in LAYOUT.groups)
        assert used <= budget
        assert used > budget - LAYOUT.block_bytes - LAYOUT.image_bytes


def test_a_preset_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"expected one of .*deepseek-v4-flash.*, found 'v5'"):
        preset("v5")


WRONG_RINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no power of two": ({"ring_events": 1000}, "ring_events: expected a power of two"),
    "segment below a call": ({"segment_bytes": 4096}, "segment_bytes: expected at least"),
    "odd segment": ({"segment_bytes": (64 << 20) + 1}, "segment_bytes: expected a multiple"),
    "impatient": ({"stall_limit_ms": 1.0}, "stall_limit_ms: expected at least"),
    "never syncs": ({"sync_interval_ms": 0.0}, "sync_interval_ms: expected at least"),
    "word": ({"durability": "maybe"}, "durability: expected one of .* found 'maybe'"),
}


@pytest.mark.parametrize("name", WRONG_RINGS)
def test_log_settings_that_do_not_fit(name: str) -> None:
    changes, message = WRONG_RINGS[name]
    with pytest.raises(ConfigError, match=message):
        LogConfig(**changes)


@pytest.fixture
def used(place: Place) -> tuple[Place, dict[str, bytes], bytes]:
    """A closed log with one request in it, its files, and its digest."""
    with place.open("shared") as cache:
        serve(cache, request("kept", 40))
    return place, place.listing(), cache.digest()


def nothing_is_damaged(used: tuple[Place, dict[str, bytes], bytes]) -> None:
    place, listing, digest = used
    assert place.listing() == listing
    replayed, _ = open_replayed(place.directory, place.shared)
    assert arena_digest(replayed) == digest
    with place.open("shared") as cache:
        assert cache.recovery is not None
        assert cache.recovery.pages_lost["bytes_untrusted"] == 0
        assert hit(cache, request("kept", 40)) == (32, 32)


Used = tuple[Place, dict[str, bytes], bytes]


def test_a_log_of_another_layout(used: Used) -> None:
    place = used[0]
    settings = config({"shared_memory_root": place.shared}, slots={"full": 40})
    with pytest.raises(ConfigError, match=r"expected a log of layout .*, found layout .* set it"):
        CacheManager.open(FULL, settings, place.directory, "shared")
    nothing_is_damaged(used)


def test_a_log_of_other_sizes(used: Used) -> None:
    with pytest.raises(ConfigError, match=r"expected a log of tables .* with sizes .*'full': 40"):
        used[0].open("shared", slots={"full": 41, "swa": 20})
    nothing_is_damaged(used)


def test_pools_of_another_layout(used: Used) -> None:
    foreign = PoolSet.allocate(FULL, {"full": 40})
    with pytest.raises(ConfigError, match="pools: expected layout 'attention', found 'attention'"):
        used[0].open(foreign)
    small = PoolSet.allocate(LAYOUT, {"full": 30, "swa": 20})
    with pytest.raises(ConfigError, match="pool 'full': expected 40 slots, found 30"):
        used[0].open(small)
    with used[0].open() as cache:
        assert hit(cache, request("kept", 40)) == (32, 32)


def test_a_log_of_another_version(used: Used) -> None:
    place, listing, _ = used
    path = place.directory / "format.json"
    whole = path.read_text()
    path.write_text(whole.replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(UnknownSchema, match=r"event schema 1, found 1 and 2 in .*\.aside"):
        place.open("shared")
    path.write_text(whole)
    assert place.listing() == listing
    nothing_is_damaged(used)


def test_a_directory_of_something_else(place: Place) -> None:
    place.directory.mkdir()
    (place.directory / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"notes\.txt"):
        place.open()
    assert place.listing() == {"notes.txt": b"mine"}
    assert not list(place.shared.iterdir())


def test_a_file_in_the_way(place: Place) -> None:
    place.directory.write_text("mine")
    with pytest.raises((ConfigError, LogError)):
        place.open()
    assert place.directory.read_text() == "mine"


def test_shared_pools_need_a_directory() -> None:
    with pytest.raises(ConfigError, match="pools='shared': expected a log directory, found none"):
        CacheManager.open(LAYOUT, config(), None, "shared")


def test_flush_without_a_log() -> None:
    with (
        CacheManager.open(LAYOUT, config()) as cache,
        pytest.raises(ConfigError, match="flush: expected a manager with a log directory"),
    ):
        cache.flush()


def test_a_damaged_event_is_refused(used: Used) -> None:
    """What was acknowledged and is damaged is never guessed at."""
    place, listing, _ = used
    for path in (place.directory / "snapshots").iterdir():
        path.unlink()
    (name,) = [name for name in listing if name.endswith(".seg")]
    path = place.directory / name
    damaged = bytearray(listing[name])
    damaged[4096 + 64 + 300] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(CorruptSegment, match=Path(name).name):
        place.open("shared")
    assert path.read_bytes() == damaged


_SECOND = """
import sys
from kvstrata import CacheManager, DirectoryBusy
from tests.face.support import LAYOUT, config
from pathlib import Path
try:
    CacheManager.open(LAYOUT, config({"shared_memory_root": Path(sys.argv[2])}), sys.argv[1])
except DirectoryBusy as error:
    print(error)
    sys.exit(17)
"""


def settled(place: Place) -> dict[str, bytes]:
    """The directory once the writer has nothing more to note (its watermark follows a flush)."""
    listing = place.listing()
    while True:
        time.sleep(0.2)
        if (again := place.listing()) == listing:
            return listing
        listing = again


def test_a_second_process_is_refused(place: Place) -> None:
    with place.open("shared") as cache:
        serve(cache, request("kept", 40))
        cache.flush()
        before, digest = settled(place), cache.digest()
        command = [sys.executable, "-c", _SECOND, str(place.directory), str(place.shared)]
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode == 17, second.stderr
        (line,) = second.stdout.splitlines()
        assert "expected to be the only writer, found process" in line
        assert str(place.directory) in line
        with pytest.raises(DirectoryBusy, match="stop it, or choose another directory"):
            place.open("shared")
        assert place.listing() == before
        assert cache.digest() == digest
        assert serve(cache, request("kept", 40)) == 32
        cache.flush()
    with place.open("shared") as cache:
        assert hit(cache, request("kept", 40)) == (32, 32)


def test_configuration_is_frozen() -> None:
    with pytest.raises(AttributeError):
        config().max_sequences = 9  # type: ignore[misc]
    assert CacheConfig(budget_bytes=1) == CacheConfig(budget_bytes=1)
