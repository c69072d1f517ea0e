"""A catalogue's commands, through a real engine, its crashes, and a database that goes away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager, StoreError
from kvstrata.api.server.place import CataloguePlace
from kvstrata.core.events import EventType
from kvstrata.eventstore.commands import CommandKind, CommandOutcome
from kvstrata.eventstore.history.catalogue import Catalogue, CatalogueCommands, Command, Who
from kvstrata.eventstore.history.catalogue.commands import Commands
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.identity import Format
from tests.eventstore.support import shared_corner
from tests.face.support import Place, serve
from tests.face.support import request as request_for
from tests.services import database_of_its_own

from .contract import file_url

ANN = Who("ann", "operator")


@pytest.fixture
def place() -> Iterator[Place]:
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        yield Place(corner / "log", corner / "shared")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield file_url(tmp_path)
    else:
        with database_of_its_own(request.getfixturevalue("postgresql")) as found:
            yield found


@pytest.fixture
def catalogue(url: str) -> Iterator[Catalogue]:
    with Catalogue.open(url) as found:
        yield found


def log_id(place: Place) -> str:
    return Format.read(LogPaths(place.directory)).log_id.hex()


def ask(catalogue: Catalogue, place: Place, kind: str, **arguments: Any) -> int:
    return catalogue.commands.submit(log_id(place), kind, arguments, ANN, time.time())[0].id


def row(catalogue: Catalogue, place: Place, number: int) -> Command:
    found = catalogue.commands.get(log_id(place), number)
    assert found is not None
    return found


def answered(catalogue: Catalogue, place: Place, cache: CacheManager, number: int) -> Command:
    deadline_s = time.monotonic() + 60
    while row(catalogue, place, number).state in ("pending", "taken"):
        assert time.monotonic() < deadline_s, cache.commands_status()
        cache.apply_completions()
        time.sleep(0.005)
    return row(catalogue, place, number)


def die(cache: CacheManager) -> None:
    """Leave everything as a killed process would: nothing is answered any more."""
    assert cache.log is not None
    assert cache._commanding is not None
    cache._commanding._source.close()
    cache._commanding._is_ending = True
    cache.log.flush()
    cache.log.close(clean=False)


def note(cache: CacheManager, event: EventType, number: int, outcome: int = 0) -> None:
    words = np.array([number, int(CommandKind.SCRUB) | outcome << 32, 2, 0], dtype=np.int64)
    cache._call.note(event, words)


def test_a_command_is_carried_out_and_answered(
    place: Place, catalogue: Catalogue, url: str
) -> None:
    with place.open("private") as cache:
        cache.follow_commands(CatalogueCommands(url, place.directory), 0.01)
        serve(cache, request_for("text"))
        number = ask(catalogue, place, "scrub")
        done = answered(catalogue, place, cache, number)
    assert (done.state, done.changed) == ("done", 0)
    assert "checksummed" in done.outcome
    assert done.incarnation == 1
    assert done.ended_seqno > done.taken_seqno > 0


def test_commands_of_another_log_are_left_alone(
    place: Place, catalogue: Catalogue, url: str
) -> None:
    foreign = catalogue.commands.submit("ee" * 16, "scrub", {}, ANN, 1.0)[0].id
    with place.open("private") as cache:
        cache.follow_commands(CatalogueCommands(url, place.directory), 0.01)
        answered(catalogue, place, cache, ask(catalogue, place, "scrub"))
    found = catalogue.commands.get("ee" * 16, foreign)
    assert found is not None
    assert found.state == "pending"


def test_what_a_dead_engine_had_not_begun_is_done_by_the_next(
    place: Place, catalogue: Catalogue, url: str
) -> None:
    cache = place.open("private")
    number = ask(catalogue, place, "report_divergence", first_seqno=1, last_seqno=2, slice=0)
    cache.follow_commands(CatalogueCommands(url, place.directory), 0.01)
    deadline_s = time.monotonic() + 30
    while row(catalogue, place, number).state == "pending":  # taken, and never begun
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    die(cache)
    with place.open("private") as again:
        again.follow_commands(CatalogueCommands(url, place.directory), 0.01)
        assert answered(catalogue, place, again, number).state == "done"


@pytest.mark.parametrize(("kind", "state"), [("scrub", "done"), ("report_divergence", "failed")])
def test_what_a_dead_engine_had_begun_is_done_again_only_where_that_is_safe(
    place: Place, catalogue: Catalogue, url: str, kind: str, state: str
) -> None:
    with place.open("private") as cache:
        number = ask(catalogue, place, kind)
        assert cache.log is not None
        seqno = cache.log.status().head
        catalogue.commands.claim(log_id(place), cache.log.incarnation, seqno, 1, time.time())
        note(cache, EventType.COMMAND_TAKEN, number)
    with place.open("private") as again:
        again.follow_commands(CatalogueCommands(url, place.directory), 0.01)
        assert answered(catalogue, place, again, number).state == state


def test_what_a_dead_engine_had_ended_is_answered_and_not_done_again(
    place: Place, catalogue: Catalogue, url: str
) -> None:
    with place.open("private") as cache:
        number = ask(catalogue, place, "scrub")
        assert cache.log is not None
        seqno = cache.log.status().head
        catalogue.commands.claim(log_id(place), cache.log.incarnation, seqno, 1, time.time())
        note(cache, EventType.COMMAND_TAKEN, number)
        note(cache, EventType.COMMAND_ENDED, number, int(CommandOutcome.REFUSED))
        ended = cache.log.status().head
    with place.open("private") as again:
        again.follow_commands(CatalogueCommands(url, place.directory), 0.01)
        found = answered(catalogue, place, again, number)
        status = again.commands_status()
        assert status is not None
        assert status.ended == 0
    assert (found.state, found.changed, found.ended_seqno) == ("refused", 2, ended)
    assert found.outcome == "the log says so; the engine died before it could answer"


def test_an_engine_starts_and_goes_on_while_the_database_is_away(
    place: Place, tmp_path: Path
) -> None:
    away = f"postgresql+psycopg://ann@/none?host={tmp_path}"
    with place.open("private") as cache:
        cache.follow_commands(CatalogueCommands(away, place.directory), 0.01)
        deadline_s = time.monotonic() + 30
        while cache.commands_status().is_reachable:  # type: ignore[union-attr]
            assert time.monotonic() < deadline_s
            serve(cache, request_for("text"))
        status = cache.commands_status()
    assert status is not None
    assert "start the server, or correct the URL" in status.error


def test_a_source_of_a_database_that_is_away_says_so(place: Place, tmp_path: Path) -> None:
    place.open().close()
    away = f"postgresql+psycopg://ann@/none?host={tmp_path}"
    with pytest.raises(StoreError, match="start the server, or correct the URL"):
        CatalogueCommands(away, place.directory).poll(1, 0, 1)


def test_a_catalogue_file_that_was_deleted_is_made_anew_by_both_sides(
    place: Place, tmp_path: Path
) -> None:
    url = file_url(tmp_path)
    asking = CataloguePlace(url)
    with place.open("private") as cache:
        cache.follow_commands(CatalogueCommands(url, place.directory), 0.01)
        with asking.used() as catalogue:
            assert answered(catalogue, place, cache, ask(catalogue, place, "scrub")).state == "done"
        for file in tmp_path.glob("*.sqlite*"):
            file.unlink()
        with asking.used() as catalogue:
            assert answered(catalogue, place, cache, ask(catalogue, place, "scrub")).state == "done"
    asking.close()


def test_what_was_taken_over_is_carried_out_though_the_database_fails_next(
    place: Place, catalogue: Catalogue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open("private"):
        numbers = [ask(catalogue, place, "scrub") for _ in range(3)]
        catalogue.commands.claim(log_id(place), 1, 0, 10, time.time())
    take_over = Commands.take_over
    fails = iter([False, True, False, False])

    def shaky(self: Commands, number: int, incarnation: int) -> bool:
        if next(fails):
            raise StoreError("away")
        return take_over(self, number, incarnation)

    monkeypatch.setattr(Commands, "take_over", shaky)
    source = CatalogueCommands(url, place.directory)
    given = [one.id for _ in range(3) for one in source.poll(2, 0, 10)]
    source.close()
    assert given == numbers
