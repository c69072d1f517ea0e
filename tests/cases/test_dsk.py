"""Cases DSK: what lies below the device, and what of it may be found again."""

import errno
import os
from collections.abc import Sequence as Items
from pathlib import Path
from typing import Any

import pytest

from kvstrata.core.events import EventType
from kvstrata.eventstore.log.formats import Buffer
from kvstrata.tiers.config import TierConfig, TiersConfig
from kvstrata.tiers.local_files import Files
from tests.cases.support import found, layout_of
from tests.face.tiered import (
    FULL,
    Clock,
    begun,
    corner,
    failed,
    peek,
    served,
    settled,
    stored,
    text,
    tier_of,
    tiering_of,
    told,
    until,
)


class HalfWritten(Files):
    """A disk that fails after so many of an object's parts."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.failures = 0

    def pwritev(self, descriptor: int, buffers: Items[Buffer], offset: int) -> int:
        if offset:
            self.failures += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pwritev(descriptor, buffers[: self.parts], offset)


def put_files(cache: Any, files: Files) -> None:
    """The first tier's store works on this machine from now on."""
    tier_of(cache).store._files = files


def test_dsk_01_a_store_that_failed_is_not_visible() -> None:
    """Objects of 8 pages; the disk fails after 3 of them. The key is a miss, no file is left."""
    layout = layout_of(16, ratios={f"h{number}": 1 for number in range(8)})
    tokens = text(("k", 17))
    with corner(layout) as place:
        with place.opened() as cache:
            files = HalfWritten(1 + 3)
            put_files(cache, files)
            served(cache, tokens)
            settled(cache)
            assert files.failures == 3, "it is tried again, and then given up"
            spills = told(cache, EventType.SPILL_BEGUN, EventType.SPILL_ENDED)
            started, ended = spills[::2], spills[1::2]
            assert [(one["type"], one["objects"]) for one in started] == [("SPILL_BEGUN", 1)] * 3
            assert [(one["objects"], one["reason"]) for one in ended] == [(0, "STORE_FAILED")] * 3
            assert not told(cache, EventType.OBJECT_STORED)
            put_files(cache, Files())  # or the close would try again
            assert place.files() == []
            assert list((place.root / "disk" / "temporary").iterdir()) == []
        for log in ("log", "another"):
            with place.opened(log, tiers=place.tiers(spill="never")) as cache:
                assert peek(cache, tokens) == 0
                assert not told(cache, EventType.LOAD_BEGUN)


def test_dsk_02_right_length_wrong_bytes() -> None:
    """Bit 5 of byte 4097 of an object flips: a miss, set aside, and only what is before it hits."""
    layout = layout_of(1024)  # pages of 8192 bytes
    tokens = text(("k", 4 * 1024 + 1))
    with corner(layout) as place:
        stored(place, tokens)
        bad = place.file_of(tokens, 3)
        whole = bad.read_bytes()
        assert len(whole) > 8192
        flip(bad, 4097, 5)
        with place.opened() as cache:
            sequence = begun(cache, tokens)
            assert sequence.plan.resume_at == 2 * 1024
            assert failed(cache) == ["CHECKSUM_MISMATCH"]
            assert cache.validator.failures == {(0, "CHECKSUM_MISMATCH", "disk"): 1}
            assert len(place.aside()) == 1
            assert not bad.exists()
            sequence.cancel()
            assert served(cache, tokens) == 2 * 1024  # recomputes it
            settled(cache)
            assert bad.read_bytes() == whole
        with place.opened() as cache:
            assert peek(cache, tokens) == 4 * 1024


def flip(path: Path, byte: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("catalogue", [None, ""], ids=["catalogue", "no catalogue"])
@pytest.mark.parametrize("log", ["log", "another"], ids=["its log", "no log of it"])
def test_dsk_03_the_index_is_there_after_a_restart(log: str, catalogue: str | None) -> None:
    """P[0:2560) in blocks of 256 is found again: from the log, the catalogue, or the folder."""
    layout = layout_of(256)
    prefix, longer = text(("p", 2560)), text(("p", 2560), ("x", 1))
    with corner(layout) as place:
        tiers = place.tiers(catalogue=catalogue)
        stored(place, prefix, tiers=tiers)
        before = {path: path.stat().st_size for path in place.files()}
        assert len(before) == 10
        with place.opened(log, tiers=tiers) as cache:
            if log == "log":  # a match asks nobody: it knows what this log tells
                assert found(cache, longer) == ("stored", 2560, 2560)
            assert served(cache, longer) == 2560
            assert served(cache, prefix) == 2304  # one token is left to compute
            settled(cache)
            stats = tiering_of(cache).stats()
            assert stats.tiers["disk"]["writes"] == 0
            assert (stats.loads["begun"], stats.tiers["disk"]["reads"]) == (1, 10)
        after = {path: path.stat().st_size for path in place.files()}
        assert sum(after.values()) / sum(before.values()) == 1.0
        assert after == before


def test_dsk_06_a_file_that_is_gone_before_it_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 files under a cap of 20 the first is unlinked; storing one more takes no harm."""
    clock = Clock()
    clock.set(monkeypatch)
    prompts = [text((f"#{number}", 17)) for number in range(1, 22)]
    with corner(FULL) as place:
        with place.opened() as cache:
            size = tiering_of(cache).object_bytes(False)
        disk = TierConfig(str(place.root / "disk"), name="disk", cap_bytes=20 * size)
        with place.opened(tiers=TiersConfig((disk,))) as cache:
            for tokens in prompts[:20]:
                served(cache, tokens)
                settled(cache)
            first = place.file_of(prompts[0], 1)
            retained(cache, clock)
            assert len(place.files()) == 20
            first.unlink()
            served(cache, prompts[20])
            settled(cache)
            retained(cache, clock)
            (drift,) = told(cache, EventType.OBJECT_FAILED)
            assert (drift["reason"], drift["key"]) == ("OBJECT_MISSING", first.name.split(".")[0])
            assert len(place.files()) == 20
            stats = tiering_of(cache).stats()
            assert stats.stored["disk"]["blocks"] == 20
            assert {name: stats.trimmed[name] for name in ("over_cap", "drifted", "failed")} == {
                "over_cap": 1,
                "drifted": 1,
                "failed": 0,
            }
        with place.opened("another", tiers=TiersConfig((disk,))) as cache:
            assert [peek(cache, tokens) for tokens in prompts] == [0] + 20 * [16]


def retained(cache: Any, clock: Clock) -> None:
    """A round of the tiers' limits has been; the index knew first."""
    before = tiering_of(cache)._shelves.trimmed["rounds"]
    clock.now_s += 6.0

    def done() -> bool:
        cache.apply_completions()
        return bool(tiering_of(cache)._shelves.trimmed["rounds"] > before)

    until(done)
    cache.apply_completions()
