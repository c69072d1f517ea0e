"""kill -9 of an engine that carries out commands: each ends once in the log, and is answered so."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kvstrata import StaleLease
from kvstrata.core.events import EventType, decode_payload
from kvstrata.eventstore.history.catalogue import Catalogue, CatalogueCommands, Who
from kvstrata.eventstore.log import read_events
from tests.eventstore.support import shared_corner
from tests.face.commanded import key_of
from tests.face.support import Place, request, serve

from .contract import file_url
from .test_source import log_id

ANN = Who("ann", "operator")
ROUNDS = int(os.environ.get("KVSTRATA_KILLS", "2"))
"""More by environment variable."""


@pytest.fixture
def place() -> Iterator[Place]:
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        yield Place(corner / "log", corner / "shared")


def live(place: Place, url: str, until: int | None) -> None:
    """An engine that serves and takes commands, for ever, or until so many are answered."""
    with Catalogue.open(url) as catalogue, place.open("shared") as cache:
        cache.follow_commands(CatalogueCommands(url, place.directory), 0.002)
        number = 0
        while True:
            with suppress(StaleLease):  # a command took what had just been matched
                serve(cache, request(f"text {number % 7}", 90))
            number += 1
            if until is not None and number % 10 == 0:
                rows = catalogue.commands.rows(log_id(place), limit=1000)
                if sum(row.state in ("done", "refused", "failed") for row in rows) >= until:
                    return


def test_every_command_ends_once_however_often_its_engine_dies(
    place: Place, tmp_path: Path
) -> None:
    url, dice = file_url(tmp_path), random.Random(3)
    with place.open("shared") as cache:
        serve(cache, request("text 1", 90))
        keys = [key_of(cache, request("text 1", 90), blocks) for blocks in (1, 3)]
    wanted = (
        ("scrub", {"max_bytes": 1 << 14}),
        ("pin", {"key": keys[0]}),
        ("unpin", {"key": keys[0]}),
        ("drop_prefix", {"key": keys[1]}),
        ("snapshot", {}),
    )
    context = multiprocessing.get_context("spawn")
    with Catalogue.open(url) as catalogue:
        for _ in range(ROUNDS):
            for kind, arguments in (dice.choice(wanted) for _ in range(8)):
                catalogue.commands.submit(log_id(place), kind, arguments, ANN, time.time())
            child = context.Process(target=live, args=(place, url, None))
            child.start()
            deadline_s = time.monotonic() + 60
            while not any(
                row.state != "pending" for row in catalogue.commands.rows(log_id(place), limit=8)
            ):
                assert time.monotonic() < deadline_s
                time.sleep(0.001)
            time.sleep(dice.random() * 0.02)
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
        live(place, url, 8 * ROUNDS)
        rows = catalogue.commands.rows(log_id(place), limit=1000)
    ended: Counter[int] = Counter()
    seqnos: dict[int, int] = {}
    for event in (event for batch in read_events(place.directory) for event in batch):
        if int(event["type"]) == EventType.COMMAND_ENDED:
            number = int(decode_payload(event)["command"])
            ended[number] += 1
            seqnos[number] = int(event["seqno"])
    assert len(rows) == 8 * ROUNDS
    for row in rows:
        assert row.state in ("done", "refused"), row
        assert ended[row.id] == 1, row
        assert row.ended_seqno == seqnos[row.id], row
