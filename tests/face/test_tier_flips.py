"""Stored objects with one bit wrong, at every byte; and a disk that is full while it is written."""

import os
from pathlib import Path

import numba
import pytest

from kvstrata.core.events import EventType, Reason
from kvstrata.tiers.format import Schema
from tests.cases.support import layout_of
from tests.face.tiered import (
    Clock,
    Corner,
    corner,
    events_in,
    hook,
    peek,
    served,
    settled,
    stored,
    text,
    tier_of,
    tiering_of,
    told,
)
from tests.tiers.support import reseal

TINY = layout_of(8, windows={"swa": 8}, ratios={"full": 1, "c4": 4})
PROMPT = text(("p", 2 * 8 + 3))
STEP = 7 if numba.config.DISABLE_JIT else 1
"""Not every byte where the core is not compiled."""


def expected_reason(schema: Schema, is_checkpoint: bool, byte: int) -> str:
    if byte < schema.header_bytes(is_checkpoint):
        return "OBJECT_HEADER"
    is_trailer = byte >= schema.object_bytes(is_checkpoint) - 16
    return "OBJECT_TRAILER" if is_trailer else "CHECKSUM_MISMATCH"


def whole_of(place: Corner, kind: str) -> tuple[Path, bytes]:
    path = place.file_of(PROMPT, 2, kind)
    return path, path.read_bytes()


@pytest.mark.parametrize("kind", ["block", "checkpoint"])
def test_a_bit_flipped_at_every_byte(kind: str) -> None:
    """One engine meets each of them: the object never hits, and hits when it is whole again."""
    with corner(TINY) as place:
        stored(place, PROMPT)
        path, whole = whole_of(place, kind)
        tiers = place.tiers(spill="never", catalogue="")
        with place.opened("another", blocks=8, images=8, max_sequences=2, tiers=tiers) as cache:
            schema = tiering_of(cache).objects.schema()
            places = list(range(0, len(whole), STEP))
            for byte in places:
                data = bytearray(whole)
                data[byte] ^= 1 << byte % 8
                path.write_bytes(data)
                assert peek(cache, PROMPT) == 0
                assert not path.exists()
            told_of = [Reason(reason).name for reason in failures(cache)]
            wanted = [expected_reason(schema, kind == "checkpoint", byte) for byte in places]
            assert told_of == wanted
            assert set(wanted) == {"OBJECT_HEADER", "CHECKSUM_MISMATCH", "OBJECT_TRAILER"}
            cache.check_integrity()
            path.write_bytes(whole)
            assert peek(cache, PROMPT) == 2 * 8


def failures(cache: object) -> list[int]:
    events = events_in(cache)  # type: ignore[arg-type]
    return [int(reason) for reason in events["reason"][events["type"] == EventType.OBJECT_FAILED]]


def test_an_object_of_another_format_version() -> None:
    """A later kvstrata wrote it under this name; its checks agree."""
    with corner(TINY) as place:
        stored(place, PROMPT)
        path, whole = whole_of(place, "block")
        with place.opened() as cache:
            size = tiering_of(cache).objects.schema().header_bytes(False)
            head = bytearray(whole[:size])
            head[8] += 1
            first, last = reseal(bytes(head))
            path.write_bytes(first + whole[size:-16] + last)
            assert served(cache, PROMPT) == 0
            assert [Reason(one).name for one in failures(cache)] == ["OBJECT_VERSION"]
            settled(cache)
            assert path.read_bytes() == whole


def test_a_disk_that_fills_up_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing half written is found; the request does not notice; the disk is asked again, not at
    once, and takes all that waited when there is room."""
    clock = Clock()
    clock.set(monkeypatch)
    with corner(TINY) as place, place.opened() as cache:
        disk = hook(cache)
        real = disk.inner._files

        class Full(type(real)):  # type: ignore[misc]
            def pwritev(self, descriptor: int, buffers: list[bytes], offset: int) -> int:
                if offset:
                    raise OSError(28, os.strerror(28))
                return int(super().pwritev(descriptor, buffers[:1], offset))

        disk.inner._files = Full()
        for name in ("a", "b", "c", "d"):
            assert served(cache, text((name, 19))) == 0
            assert not cache.settle_tiers(0.1)
        assert disk.count("put") <= 2, "a full disk is asked again and again"
        assert place.files() == []
        assert list((place.root / "disk" / "temporary").iterdir()) == []
        assert not told(cache, EventType.OBJECT_STORED)
        assert {one["reason"] for one in told(cache, EventType.SPILL_ENDED)} == {"STORE_FULL"}
        stats = tier_of(cache).stats()
        assert (stats.full, stats.down) == (True, False)
        disk.inner._files = real
        clock.now_s += 120.0
        assert served(cache, PROMPT) == 0
        settled(cache)
        assert not tier_of(cache).stats().full
        assert len(place.files()) == 5 * 3, "what had to wait for room is lost"
        cache.check_integrity()
