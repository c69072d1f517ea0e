"""Two processes above the same folder, the same bucket, the same catalogue."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstrata.tiers.config import TierConfig
from tests.eventstore.support import shared_corner
from tests.services import database_of_its_own

from .sharing import Process, processes
from .spilling import BLOCK
from .support import BUCKET, S3Server, s3_environment, s3_server

Pair = tuple[Process, Process]
TEXTS = [0, 1, 2]
LENGTH = 150
END = LENGTH // BLOCK * BLOCK
BLOCKS = LENGTH // BLOCK


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def both(server: S3Server) -> Iterator[Pair]:
    with processes(os.environ | s3_environment(server.endpoint)) as pair:
        yield pair


@pytest.fixture
def corner() -> Iterator[Path]:
    with shared_corner() as corner:
        yield corner


@pytest.fixture(params=["sqlite", "postgresql"])
def catalogue(request: pytest.FixtureRequest, corner: Path) -> Iterator[str]:
    """URL of an empty catalogue that both can reach."""
    if request.param == "sqlite":
        yield f"sqlite:///{corner / 'catalogue'}"
        return
    with database_of_its_own(request.getfixturevalue("postgresql")) as found:
        yield found


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, corner: Path) -> TierConfig:
    """A place that both share."""
    return TierConfig(str(corner / "disk"), "disk") if request.param == "folder" else bucket()


def bucket() -> TierConfig:
    return TierConfig(f"s3://{BUCKET}/{uuid.uuid4().hex}")


def open_both(both: Pair, corner: Path, *tiers: TierConfig, catalogue: str) -> None:
    for number, process in enumerate(both):
        process.ask("open", corner / str(number), tiers, catalogue=catalogue)
    for process in both:
        process.answer()


def test_the_second_hits_what_the_first_stored(
    both: Pair, corner: Path, place: TierConfig, catalogue: str
) -> None:
    first, second = both
    open_both(both, corner, place, catalogue=catalogue)
    assert first.call("serve", TEXTS, LENGTH) == [0] * len(TEXTS)
    written = first.call("stats")[place.name]
    assert written["writes"] == len(TEXTS) * (BLOCKS + 1)
    assert second.call("serve", TEXTS, LENGTH) == [END] * len(TEXTS)
    read = second.call("stats")[place.name]
    assert read["reads"] == written["writes"]
    assert read["writes"] == 0
    assert read["faults"] == {}
    assert first.call("serve", TEXTS, LENGTH) == [END] * len(TEXTS), "as from its own pages"
    for process in both:
        process.call("close")


def test_what_comes_later_is_found_by_name(both: Pair, corner: Path, place: TierConfig) -> None:
    """The catalogue is read once; folders are asked at every begin, a bucket by a prefetch."""
    first, second = both
    open_both(both, corner, place, catalogue="")
    assert second.call("serve", [9], LENGTH) == [0]
    assert first.call("serve", TEXTS, LENGTH) == [0] * len(TEXTS)
    first.call("stats")
    for text_number in TEXTS:
        if not place.is_folder:
            assert second.call("prefetch", text_number, LENGTH)
        assert second.call("serve", [text_number], LENGTH) == [END]
    for process in both:
        process.call("close")


def test_the_same_keys_at_once_are_written_once(
    both: Pair, corner: Path, place: TierConfig, catalogue: str
) -> None:
    texts = list(range(4))
    open_both(both, corner, place, catalogue=catalogue)
    for process in both:
        process.ask("serve", texts, LENGTH, max_resume=0)
    assert [process.answer() for process in both] == [[0] * len(texts)] * 2
    found = [process.call("stats")[place.name] for process in both]
    objects = len(texts) * (BLOCKS + 1)
    assert sum(tier["writes"] for tier in found) == objects
    known = [objects - tier["writes"] - tier["already_there"] for tier in found]
    assert min(known) >= 0, "what the catalogue told at the first begin is not tried again"
    assert sum(tier["already_there"] for tier in found) > 0
    assert all(tier["faults"] == {} for tier in found)
    for process in both:
        process.call("close")


def test_a_folder_a_node_above_one_bucket(both: Pair, corner: Path, catalogue: str) -> None:
    """The second node loads from the bucket, and then has it in its folder."""
    remote = bucket()
    first, second = both
    nodes = [TierConfig(str(corner / f"node {number}"), f"node {number}") for number in (1, 2)]
    first.call("open", corner / "one", (nodes[0], remote), catalogue=catalogue)
    second.call("open", corner / "two", (nodes[1], remote), catalogue=catalogue)
    first.call("serve", TEXTS, LENGTH)
    objects = len(TEXTS) * (BLOCKS + 1)
    written = first.call("stats")
    assert [written[name]["writes"] for name in ("node 1", "remote")] == [objects] * 2

    assert second.call("serve", TEXTS, LENGTH) == [END] * len(TEXTS)
    read = second.call("stats")
    assert read["remote"]["reads"] == read["node 2"]["promotions"] == objects
    assert read["node 2"]["faults"] == read["remote"]["faults"] == {}
    assert read["remote"]["writes"] == 0

    second.call("open", corner / "three", (nodes[1], remote), catalogue=catalogue)
    assert second.call("serve", TEXTS, LENGTH) == [END] * len(TEXTS)
    again = second.call("stats")
    assert (again["node 2"]["reads"], again["remote"]["reads"]) == (objects, 0)
    for process in both:
        process.call("close")
