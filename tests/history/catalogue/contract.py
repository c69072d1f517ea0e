"""What every database behind the catalogue of history has to do; a test file per database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from kvstrata.core.errors import StaleLease, StoreError
from kvstrata.eventstore.history.catalogue import (
    Catalogue,
    CommandState,
    Incident,
    IncidentState,
    LayoutRow,
    SegmentRow,
    SnapshotRow,
    Who,
)
from kvstrata.eventstore.history.catalogue.tables import METADATA, MIGRATIONS, VERSION_TABLE

LOG = "ab" * 16
OTHER = "cd" * 16
ANN = Who("ann", "operator")
BOB = Who("bob", "operator")


def drift(catalogue: Catalogue, first: int, last: int) -> tuple[Incident, bool]:
    return catalogue.incidents.report(
        LOG, "projection_drift", "slice 3", "tables differ", "drift", first, last, 5.0
    )


class CatalogueContract:
    """Tests of a `catalogue_url` that each database's fixture gives, empty every time."""

    @pytest.fixture
    def catalogue(self, catalogue_url: str) -> Iterator[Catalogue]:
        with Catalogue.open(catalogue_url) as found:
            yield found

    # the schema

    def test_the_migrations_make_the_tables_of_this_version(self, catalogue: Catalogue) -> None:
        options = {"compare_type": True, "version_table": VERSION_TABLE}
        options["include_name"] = lambda name, kind, _: kind != "table" or name in METADATA.tables
        with catalogue._session.reading() as connection:
            context = MigrationContext.configure(connection, opts=options)
            assert compare_metadata(context, METADATA) == []
        assert ScriptDirectory(MIGRATIONS.folder).get_heads() == [MIGRATIONS.revision]

    def test_opening_again_keeps_everything(self, catalogue_url: str) -> None:
        with Catalogue.open(catalogue_url) as first:
            first.commands.submit(LOG, "scrub", {}, ANN, 1.0)
        with Catalogue.open(catalogue_url) as second:
            assert len(second.commands.rows(LOG)) == 1

    def test_both_catalogues_share_a_database(self, catalogue_url: str) -> None:
        from kvstrata.tiers.catalogue import Catalogue as TierCatalogue

        with Catalogue.open(catalogue_url) as history:
            tiers = TierCatalogue.open(catalogue_url)
            assert list(tiers.entries("disk")) == []
            assert history.commands.rows(LOG) == []
            tiers.close()

    def test_a_later_version_is_refused(self, catalogue_url: str) -> None:
        with (
            Catalogue.open(catalogue_url) as catalogue,
            catalogue._session.writing() as connection,
        ):
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        with pytest.raises(StoreError, match="found 9999: update kvstrata"):
            Catalogue.open(catalogue_url)

    def test_a_closed_catalogue_says_so(self, catalogue: Catalogue) -> None:
        catalogue.close()
        with pytest.raises(StoreError, match="found it closed"):
            catalogue.commands.rows(LOG)

    # commands

    def test_a_command_goes_its_way(self, catalogue: Catalogue) -> None:
        commands = catalogue.commands
        asked, is_new = commands.submit(LOG, "pin", {"key": "00ff"}, ANN, 1.0)
        assert is_new
        assert (asked.state, asked.arguments, asked.who) == ("pending", {"key": "00ff"}, "ann")
        assert commands.num_waiting(LOG) == 1
        [taken] = commands.claim(LOG, incarnation=2, seqno=41, limit=10, now_s=2.0)
        assert (taken.id, taken.state, taken.taken_seqno) == (asked.id, "taken", 41)
        assert commands.end(asked.id, CommandState.DONE, "pinned 3 blocks", 3, 44, 3.0)
        ended = commands.get(LOG, asked.id)
        assert ended is not None
        assert (ended.state, ended.outcome, ended.changed) == ("done", "pinned 3 blocks", 3)
        assert (ended.ended_seqno, ended.ended_s) == (44, 3.0)
        assert commands.num_waiting(LOG) == 0

    def test_a_command_is_answered_once(self, catalogue: Catalogue) -> None:
        asked, _ = catalogue.commands.submit(LOG, "scrub", {}, ANN, 1.0)
        catalogue.commands.claim(LOG, 1, 0, 10, 2.0)
        assert catalogue.commands.end(asked.id, CommandState.DONE, "first", 1, 5, 3.0)
        assert not catalogue.commands.end(asked.id, CommandState.FAILED, "second", 2, 6, 4.0)
        found = catalogue.commands.get(LOG, asked.id)
        assert found is not None
        assert found.outcome == "first"

    def test_a_command_that_nobody_took_is_not_answered(self, catalogue: Catalogue) -> None:
        asked, _ = catalogue.commands.submit(LOG, "scrub", {}, ANN, 1.0)
        assert not catalogue.commands.end(asked.id, CommandState.DONE, "?", 0, 0, 2.0)

    def test_the_same_key_of_the_same_asker_asks_once(self, catalogue: Catalogue) -> None:
        submit = catalogue.commands.submit
        first, _ = submit(LOG, "scrub", {}, ANN, 1.0, "k")
        again, is_new = submit(LOG, "scrub", {}, ANN, 2.0, "k")
        assert (again.id, is_new) == (first.id, False)
        assert submit(LOG, "scrub", {}, BOB, 2.0, "k")[1]
        assert submit(OTHER, "scrub", {}, ANN, 2.0, "k")[1]
        assert submit(LOG, "scrub", {}, ANN, 2.0)[1]
        assert submit(LOG, "scrub", {}, ANN, 2.0)[1]

    def test_the_same_key_at_the_same_time_asks_once(self, catalogue: Catalogue) -> None:
        def submit(_: int) -> int:
            return catalogue.commands.submit(LOG, "scrub", {}, ANN, 1.0, "together")[0].id

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(submit, range(16)))) == 1
        assert catalogue.commands.num_waiting(LOG) == 1

    def test_two_engines_never_take_the_same_command(self, catalogue: Catalogue) -> None:
        for _ in range(40):
            catalogue.commands.submit(LOG, "scrub", {}, ANN, 1.0)

        def take(incarnation: int) -> list[int]:
            mine: list[int] = []
            for _ in range(20):
                found = catalogue.commands.claim(LOG, incarnation, 0, 3, 2.0)
                mine += [command.id for command in found]
            return mine

        with ThreadPoolExecutor(4) as pool:
            taken = [number for mine in pool.map(take, range(1, 5)) for number in mine]
        assert len(taken) == len(set(taken)) == 40

    def test_an_engine_takes_the_oldest_of_its_own_log(self, catalogue: Catalogue) -> None:
        catalogue.commands.submit(OTHER, "scrub", {}, ANN, 1.0)
        mine = [catalogue.commands.submit(LOG, "scrub", {}, ANN, 1.0)[0].id for _ in range(3)]
        taken = catalogue.commands.claim(LOG, 1, 0, 2, 2.0)
        assert [command.id for command in taken] == mine[:2]

    def test_what_an_earlier_life_left_behind_is_taken_over_once(
        self, catalogue: Catalogue
    ) -> None:
        asked, _ = catalogue.commands.submit(LOG, "scrub", {}, ANN, 1.0)
        catalogue.commands.claim(LOG, 1, 7, 10, 2.0)
        assert catalogue.commands.left_behind(LOG, 1) == []
        [left] = catalogue.commands.left_behind(LOG, 2)
        assert (left.id, left.taken_seqno) == (asked.id, 7)
        assert catalogue.commands.take_over(asked.id, 2)
        assert not catalogue.commands.take_over(asked.id, 2)
        assert catalogue.commands.left_behind(LOG, 2) == []

    def test_commands_are_listed_newest_first_in_pages(self, catalogue: Catalogue) -> None:
        numbers = [catalogue.commands.submit(LOG, "scrub", {}, ANN, 1.0)[0].id for _ in range(5)]
        first = catalogue.commands.rows(LOG, limit=2)
        assert [row.id for row in first] == numbers[:2:-1]
        rest = catalogue.commands.rows(LOG, before=first[-1].id)
        assert [row.id for row in rest] == numbers[2::-1]
        assert catalogue.commands.rows(LOG, state="done") == []
        assert catalogue.commands.get(OTHER, numbers[0]) is None

    # incidents

    def test_the_same_is_one_incident_until_it_is_resolved(self, catalogue: Catalogue) -> None:
        first, is_new = drift(catalogue, 10, 20)
        assert (first.state, first.occurrences, is_new) == (IncidentState.OPEN, 1, True)
        more, is_new = drift(catalogue, 21, 30)
        assert (more.id, more.first_seqno, more.last_seqno) == (first.id, 10, 30)
        assert (more.occurrences, is_new) == (2, False)
        catalogue.incidents.resolve(LOG, first.id, ANN, 6.0)
        later, is_new = drift(catalogue, 31, 40)
        assert is_new
        assert later.id != first.id

    def test_what_was_seen_before_opens_nothing(self, catalogue: Catalogue) -> None:
        first, _ = drift(catalogue, 10, 20)
        assert drift(catalogue, 10, 20) == (first, False)
        resolved = catalogue.incidents.resolve(LOG, first.id, ANN, 6.0)
        assert drift(catalogue, 12, 15) == (resolved, False)

    def test_several_who_see_it_at_once_open_one(self, catalogue: Catalogue) -> None:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: drift(catalogue, 10, 20), range(16)))
        assert len({incident.id for incident, _ in found}) == 1
        assert sum(is_new for _, is_new in found) == 1

    def test_an_incident_goes_its_way(self, catalogue: Catalogue) -> None:
        number = drift(catalogue, 10, 20)[0].id
        seen = catalogue.incidents.acknowledge(LOG, number, ANN, 6.0)
        assert seen is not None
        assert (seen.state, seen.acknowledged_by, seen.acknowledged_s) == (
            "acknowledged",
            "ann",
            6.0,
        )
        assert catalogue.incidents.acknowledge(LOG, number, BOB, 7.0) == seen
        assert catalogue.incidents.add_note(LOG, number, BOB, "restarted", 8.0)
        done = catalogue.incidents.resolve(LOG, number, BOB, 9.0)
        assert done is not None
        assert (done.state, done.resolved_by, done.acknowledged_by) == ("resolved", "bob", "ann")
        with pytest.raises(StaleLease, match="found it resolved by bob"):
            catalogue.incidents.acknowledge(LOG, number, ANN, 10.0)
        [note] = catalogue.incidents.notes(number)
        assert (note.who, note.text) == ("bob", "restarted")

    def test_an_incident_of_another_log_is_none(self, catalogue: Catalogue) -> None:
        number = drift(catalogue, 10, 20)[0].id
        assert catalogue.incidents.get(OTHER, number) is None
        assert catalogue.incidents.resolve(OTHER, number, ANN, 6.0) is None
        assert not catalogue.incidents.add_note(OTHER, number, ANN, "text", 6.0)

    # audit

    def test_whatever_is_done_leaves_its_trace(self, catalogue: Catalogue) -> None:
        asked, _ = catalogue.commands.submit(LOG, "pin", {"key": "00"}, ANN, 1.0)
        catalogue.commands.claim(LOG, 4, 0, 1, 2.0)
        catalogue.commands.end(asked.id, CommandState.REFUSED, "no such key", 0, 9, 3.0)
        number = drift(catalogue, 1, 2)[0].id
        catalogue.incidents.acknowledge(LOG, number, ANN, 6.0)
        catalogue.incidents.add_note(LOG, number, BOB, "text", 7.0)
        catalogue.incidents.resolve(LOG, number, BOB, 8.0)
        catalogue.audit.add(LOG, 9.0, Who("eve", "viewer"), "scrub", "", "forbidden")
        trace = [(row.who, row.role, row.action) for row in catalogue.audit.rows(LOG)]
        assert trace[::-1] == [
            ("ann", "operator", "pin"),
            ("engine 4", "engine", "pin"),
            ("drift", "rule", "open"),
            ("ann", "operator", "acknowledged"),
            ("bob", "operator", "note"),
            ("bob", "operator", "resolved"),
            ("eve", "viewer", "scrub"),
        ]
        assert catalogue.audit.rows(LOG)[-1].detail == {"key": "00"}

    # holdings

    def test_what_lay_in_directories_is_kept_and_brought_up_to_date(
        self, catalogue: Catalogue
    ) -> None:
        layout = LayoutRow("ff" * 16, "small", {"name": "small"}, 1.0)
        segment = SegmentRow(LOG, 1, 1, 10, 4096, 1, False, 0.5, 1.0)
        snapshot = SnapshotRow(LOG, 10, 8192, 0.7, 1.0)
        catalogue.holdings.remember(layout, [segment], [snapshot])
        sealed = segment._replace(last_seqno=20, is_sealed=True, seen_s=2.0)
        catalogue.holdings.remember(layout._replace(seen_s=2.0), [sealed], [])
        assert catalogue.holdings.layouts() == [layout._replace(seen_s=2.0)]
        assert catalogue.holdings.segments(LOG) == [sealed]
        assert catalogue.holdings.snapshots(LOG) == [snapshot]
        assert catalogue.holdings.segments(OTHER) == []


def file_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'catalogue.sqlite'}"
