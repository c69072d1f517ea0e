from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from kvstrata.core.checksum import checksum_bytes
from kvstrata.core.errors import ConfigError, InvariantViolation
from kvstrata.core.events import Reason
from kvstrata.tiers.config import TierConfig, TiersConfig
from kvstrata.tiers.outcomes import Loaded, LoadFailed, Stored
from kvstrata.tiers.tierset import TierSet

from .shaky import SCHEMA, Rig, Thing

HOST, DISK, REMOTE = 0, 1, 2
NAMES = ("host", "disk", "remote")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, *NAMES)


@pytest.fixture(params=[False, True], ids=["block", "checkpoint"])
def thing(request: pytest.FixtureRequest) -> Thing:
    return Thing(3, request.param)


def served(outcome: Loaded | LoadFailed) -> Loaded:
    assert isinstance(outcome, Loaded), outcome
    return outcome


def failed(outcome: Loaded | LoadFailed) -> LoadFailed:
    assert isinstance(outcome, LoadFailed), outcome
    return outcome


def reasons(outcome: Loaded | LoadFailed) -> list[tuple[int, Reason]]:
    return [(tier, fault.reason) for tier, fault in outcome.faults]


def test_an_object_goes_to_every_tier_of_the_mask_and_comes_back(rig: Rig, thing: Thing) -> None:
    stored = rig.tiers.store(thing.header, thing.pages, 0b101)
    assert (stored.tiers, stored.written, stored.faults) == (0b101, 0b101, ())
    assert stored.num_bytes == 2 * thing.num_bytes
    assert rig.tiers.find([thing.identity, Thing(9).identity]) == [0b101, 0]
    again = rig.tiers.store(thing.header, thing.pages, 0b111)
    assert (again.tiers, again.written, again.num_bytes) == (0b111, 0b010, thing.num_bytes)
    found = served(thing.load(rig.tiers, 0b111))
    assert thing.is_loaded
    assert (found.tier, found.header, found.num_bytes) == (HOST, thing.header, thing.num_bytes)
    assert (found.gone, found.gained, found.faults) == (0, 0, ())
    assert [store.calls["read"] for store in rig.stores] == [1, 0, 0]


def test_the_fastest_tier_of_the_mask_serves(rig: Rig, thing: Thing) -> None:
    rig.keep(thing, HOST, DISK)
    assert served(thing.load(rig.tiers, 1 << DISK)).tier == DISK
    assert thing.is_loaded
    assert rig.stores[HOST].calls["read"] == 0


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (-20, Reason.CHECKSUM_MISMATCH),
        (0, Reason.OBJECT_HEADER),
        (100, Reason.OBJECT_HEADER),
        (-1, Reason.OBJECT_TRAILER),
    ],
)
def test_a_bad_object_is_set_aside_and_the_next_tier_serves(
    rig: Rig, thing: Thing, offset: int, reason: Reason
) -> None:
    rig.keep(thing, HOST, DISK)
    rig.spoil(thing, HOST, offset)
    found = served(thing.load(rig.tiers, 0b011))
    assert thing.is_loaded
    assert (found.tier, found.gone, reasons(found)) == (DISK, 0b001, [(HOST, reason)])
    assert rig.tiers.find([thing.identity]) == [0b010]
    stats = rig.tiers.stats()["host"]
    assert (stats.set_aside, stats.faults) == (1, {reason.name: 1})


def test_a_wrong_page_is_named(rig: Rig) -> None:
    thing = Thing(3)
    rig.keep(thing, DISK)
    rig.spoil(thing, DISK, -20)  # in the last page: c4.index
    found = failed(thing.load(rig.tiers, 0b010))
    expected = thing.header.checksums[1]
    assert (found.fault.group, found.fault.expected) == (1, expected)
    assert found.fault.found == checksum_bytes(thing.into[1]) != expected
    assert "c4.index" in found.fault.detail
    assert not thing.is_loaded


@pytest.mark.parametrize(
    ("change", "reason"), [(-1, Reason.OBJECT_TRUNCATED), (1, Reason.OBJECT_TOO_LONG)]
)
def test_an_object_of_another_size_is_set_aside(
    rig: Rig, thing: Thing, change: int, reason: Reason
) -> None:
    rig.keep(thing, DISK)
    path = rig.stores[DISK].path(thing.name)
    path.write_bytes((path.read_bytes() + b"x")[: thing.num_bytes + change])
    assert rig.tiers.find([thing.identity]) == [0]
    found = failed(thing.load(rig.tiers, 0b010))
    assert (found.fault.reason, found.gone) == (reason, 0b010)
    assert not path.exists()


def test_another_keys_object_is_refused(rig: Rig) -> None:
    one, other = Thing(3), Thing(4)
    rig.keep(one, DISK)
    rig.keep(other, DISK)
    rig.stores[DISK].path(one.name).write_bytes(rig.stores[DISK].path(other.name).read_bytes())
    found = failed(one.load(rig.tiers, 0b010))
    assert (found.fault.reason, found.gone) == (Reason.OBJECT_KEY, 0b010)
    assert served(other.load(rig.tiers, 0b010)).tier == DISK


def test_a_bad_object_that_cannot_be_set_aside_is_forgotten_all_the_same(
    rig: Rig, thing: Thing
) -> None:
    rig.keep(thing, DISK)
    rig.spoil(thing, DISK)
    rig.stores[DISK].fail("set_aside", reason=Reason.OBJECT_FORBIDDEN)
    assert failed(thing.load(rig.tiers, 0b010)).gone == 0b010
    stats = rig.tiers.stats()["disk"]
    assert stats.set_aside == 0
    assert stats.faults == {"CHECKSUM_MISMATCH": 1, "OBJECT_FORBIDDEN": 1}


def test_an_object_that_was_deleted_is_forgotten_and_nothing_set_aside(
    rig: Rig, thing: Thing
) -> None:
    rig.keep(thing, DISK)
    found = served(thing.load(rig.tiers, 0b011))
    assert (found.tier, found.gone, reasons(found)) == (DISK, 1, [(HOST, Reason.OBJECT_MISSING)])
    assert rig.tiers.delete(thing.name, DISK) is True
    assert rig.tiers.delete(thing.name, DISK) is False
    lost = failed(thing.load(rig.tiers, 0b011))
    assert (lost.fault.reason, lost.gone) == (Reason.OBJECT_MISSING, 0b011)
    assert [store.calls["set_aside"] for store in rig.stores] == [0, 0, 0]
    assert not any(tier.outage.is_down for tier in rig.tiers.tiers)


def test_no_tier_at_all_is_a_miss_and_tiers_of_the_past_are_gone(rig: Rig, thing: Thing) -> None:
    found = failed(thing.load(rig.tiers, 0b110000))
    assert (found.fault.reason, found.gone) == (Reason.OBJECT_MISSING, 0b110000)


def test_an_outage_on_the_last_tier_forgets_nothing(rig: Rig, thing: Thing) -> None:
    rig.stores[DISK].fail("read", reason=Reason.STORE_TIMEOUT, is_outage=True)
    found = failed(thing.load(rig.tiers, 0b010))
    assert (found.fault.reason, found.gone) == (Reason.STORE_TIMEOUT, 0)
    assert rig.stores[DISK].calls == {"read": 1}


def test_a_tier_that_is_down_is_passed_over_and_comes_back_by_itself(
    rig: Rig, thing: Thing
) -> None:
    rig.keep(thing, HOST, DISK)
    rig.stores[HOST].fail("read", "size", "put", reason=Reason.OBJECT_UNREADABLE, is_outage=True)
    for _ in range(3):
        found = served(thing.load(rig.tiers, 0b011))
        assert (found.tier, found.gone) == (DISK, 0)
    assert rig.tiers.stats()["host"].down
    found = served(thing.load(rig.tiers, 0b011))
    assert reasons(found) == [(HOST, Reason.TIER_DOWN)]
    assert rig.stores[HOST].calls["read"] == 3
    assert rig.tiers.find([thing.identity]) == [0b010]
    stored = rig.tiers.store(thing.header, thing.pages, 0b011)
    assert (stored.tiers, stored.written) == (0b010, 0)
    assert stored.faults[0][1].reason == Reason.TIER_DOWN
    deleted = rig.tiers.delete(thing.name, HOST)
    assert not isinstance(deleted, bool)
    assert deleted.reason == Reason.TIER_DOWN
    assert rig.stores[HOST].calls == {"read": 3}

    rig.stores[HOST].heal()
    rig.clock.now_s += rig.tiers.stats()["host"].retry_in_s
    assert served(thing.load(rig.tiers, 0b011)).tier == HOST
    stats = rig.tiers.stats()["host"]
    assert (stats.down, stats.outages, stats.retry_in_s) == (False, 1, 0)
    assert stats.passed_over == 3


def test_an_unexpected_failure_is_tried_once_more_in_the_whole_load(rig: Rig, thing: Thing) -> None:
    rig.keep(thing, HOST, DISK)
    rig.stores[HOST].next["read"].append(RuntimeError("odd"))
    found = served(thing.load(rig.tiers, 0b011))
    assert (found.tier, found.gone, reasons(found)) == (HOST, 0, [(HOST, Reason.STORE_FAILED)])
    assert "RuntimeError: odd" in found.faults[0][1].detail
    rig.stores[HOST].always["read"] = RuntimeError("odd")
    rig.stores[DISK].always["read"] = RuntimeError("odd as well")
    lost = failed(thing.load(rig.tiers, 0b011))
    assert (lost.fault.reason, lost.gone) == (Reason.STORE_FAILED, 0)
    assert [store.calls["read"] for store in rig.stores] == [4, 1, 0]


def test_a_cancelled_load_stops_before_the_next_read(rig: Rig, thing: Thing) -> None:
    rig.keep(thing, HOST, DISK)
    rig.spoil(thing, HOST)
    asked: list[bool] = []

    def dead() -> bool:
        asked.append(len(asked) > 0)
        return asked[-1]

    found = failed(thing.load(rig.tiers, 0b111, dead))
    assert (found.fault.reason, found.gone) == (Reason.LOAD_CANCELLED, 0b001)
    cancelled = [(DISK, Reason.LOAD_CANCELLED)]
    assert reasons(found) == [(HOST, Reason.CHECKSUM_MISMATCH), *cancelled]
    assert [store.calls["read"] for store in rig.stores] == [1, 0, 0]


def test_a_bug_of_the_caller_is_an_exception(rig: Rig) -> None:
    thing = Thing(3)
    rig.keep(thing, DISK)
    with pytest.raises(ZeroDivisionError):
        rig.tiers.load(thing.identity, 0b010, thing.into, lambda _: 1 // 0, lambda: False)
    with pytest.raises(InvariantViolation, match=r"\[96, 40\] bytes, found \[96\]"):
        rig.tiers.load(thing.identity, 0b010, thing.into[:1], lambda _: 0, lambda: False)
    with pytest.raises(InvariantViolation, match="pages"):
        rig.tiers.store(thing.header, thing.pages[:1], 0b010)
    assert rig.tiers.find([thing.identity]) == [0b010]


def test_a_failed_store_does_not_stop_the_other_tiers(rig: Rig, thing: Thing) -> None:
    rig.stores[HOST].fail("put", reason=Reason.STORE_FAILED, is_outage=True)
    rig.stores[DISK].always["put"] = RuntimeError("odd")
    stored = rig.tiers.store(thing.header, thing.pages, 0b111)
    assert (stored.tiers, stored.written, stored.num_bytes) == (0b100, 0b100, thing.num_bytes)
    assert [fault.reason for _, fault in stored.faults] == [Reason.STORE_FAILED] * 2
    assert [tier for tier, _ in stored.faults] == [HOST, DISK]


def test_a_full_tier_is_not_written_for_a_while_but_still_read(rig: Rig, thing: Thing) -> None:
    rig.keep(thing, HOST)
    other = Thing(8)
    rig.stores[HOST].fail("put", reason=Reason.STORE_FULL, is_outage=True)
    for _ in range(5):
        stored = rig.tiers.store(other.header, other.pages, 1)
        assert (stored.tiers, stored.faults[0][1].reason) == (0, Reason.STORE_FULL)
    assert rig.stores[HOST].calls["put"] == 1
    stats = rig.tiers.stats()["host"]
    assert (stats.full, stats.down, stats.faults) == (True, False, {"STORE_FULL": 5})
    for _ in range(5):  # however often it says so
        rig.clock.now_s += 60
        assert rig.tiers.store(other.header, other.pages, 1).tiers == 0
    assert rig.stores[HOST].calls["put"] == 6
    assert served(thing.load(rig.tiers, 1)).tier == HOST
    rig.stores[HOST].heal()
    rig.clock.now_s += 60
    assert rig.tiers.store(other.header, other.pages, 1).tiers == 1
    assert not rig.tiers.stats()["host"].full


def test_an_object_of_a_wrong_size_does_not_keep_the_right_one_out(rig: Rig, thing: Thing) -> None:
    rig.keep(thing, DISK)
    path = rig.stores[DISK].path(thing.name)
    path.write_bytes(b"cut")
    stored = rig.tiers.store(thing.header, thing.pages, 0b010)
    assert (stored.tiers, stored.written) == (0b010, 0b010)
    assert served(thing.load(rig.tiers, 0b010)).tier == DISK


def test_a_folder_in_an_objects_place_does_not_keep_it_out(rig: Rig, thing: Thing) -> None:
    path = rig.stores[DISK].path(thing.name)
    path.mkdir(parents=True)
    assert rig.tiers.find([thing.identity]) == [0]
    stored = rig.tiers.store(thing.header, thing.pages, 0b010)
    assert (stored.tiers, stored.written) == (0b010, 0b010)
    assert path.is_file()


def test_finding_goes_on_when_a_tier_fails(rig: Rig) -> None:
    things = [Thing(number) for number in range(6)]
    for thing in things:
        rig.keep(thing, HOST, DISK)
    rig.stores[HOST].fail("size", reason=Reason.STORE_TIMEOUT, is_outage=True)
    assert rig.tiers.find([thing.identity for thing in things]) == [0b010] * 6
    assert rig.stores[HOST].calls["size"] == 3
    assert rig.tiers.find([]) == []


def test_statistics_are_json_values(rig: Rig, thing: Thing) -> None:
    rig.tiers.store(thing.header, thing.pages, 0b010)
    rig.tiers.store(thing.header, thing.pages, 0b010)
    rig.stores[DISK].next["read"].append(lambda: setattr(rig.clock, "now_s", 102.0))
    thing.load(rig.tiers, 0b011)
    found = json.loads(json.dumps({k: v.to_json() for k, v in rig.tiers.stats().items()}))
    assert list(found) == list(NAMES)
    disk = found["disk"]
    assert (disk["reads"], disk["read_bytes"], disk["read_s"]) == (1, thing.num_bytes, 2.0)
    assert (disk["writes"], disk["write_bytes"], disk["already_there"]) == (1, thing.num_bytes, 1)
    assert found["host"]["faults"] == {"OBJECT_MISSING": 1}
    assert found["remote"]["writes"] == 0


def test_many_threads_load_and_store_side_by_side(rig: Rig) -> None:
    shared = Thing(200)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            own = Thing(number)
            mine = Thing(200)
            for _ in range(5):
                assert rig.tiers.store(own.header, own.pages, 0b011).tiers == 0b011
                assert rig.tiers.store(shared.header, shared.pages, 0b010).tiers == 0b010
                served(own.load(rig.tiers, 0b011))
                served(mine.load(rig.tiers, 0b010))
                assert own.is_loaded
                assert mine.is_loaded
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    stats = rig.tiers.stats()
    assert (stats["disk"].reads, stats["disk"].writes, stats["host"].writes) == (40, 9, 8)
    assert stats["disk"].already_there == 80 - 9


def test_a_set_is_opened_from_its_settings(tmp_path: Path) -> None:
    config = TiersConfig(
        (TierConfig(str(tmp_path / "a"), "fast"), TierConfig((tmp_path / "b").as_uri(), "slow"))
    )
    tiers = TierSet.open(SCHEMA, config)
    thing = Thing(5)
    assert tiers.store(thing.header, thing.pages, 0b11).written == 0b11
    assert served(thing.load(tiers, 0b11)).tier == 0
    assert list(tiers.stats()) == ["fast", "slow"]
    tiers.close()
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigError, match="file"):
        TierSet.open(SCHEMA, TiersConfig((TierConfig(str(tmp_path / "file")),)))


def test_closing_closes_every_store(rig: Rig) -> None:
    rig.tiers.close()
    assert [store.calls["close"] for store in rig.stores] == [1, 1, 1]


def together(rig: Rig, things: list[Thing], mask: int) -> list[Stored]:
    headers, pages = [thing.header for thing in things], [thing.pages for thing in things]
    return rig.tiers.store_together(headers, pages, [mask] * len(things))


def test_many_are_written_to_folders_together_and_to_others_not(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "host", "disk", "remote")
    things = [Thing(1), Thing(2), Thing(3, is_checkpoint=True)]
    rig.keep(things[1], 1)
    found = together(rig, things, 0b111)
    assert [one.tiers for one in found] == [0b011, 0b001, 0b011]
    assert [one.written for one in found] == [0b011, 0b001, 0b011]
    assert [one.num_bytes for one in found] == [
        2 * things[0].num_bytes, things[1].num_bytes, 2 * things[2].num_bytes
    ]  # fmt: skip
    assert not rig.stores[2].calls
    assert rig.tiers.stats()["host"].writes == 3
    for thing in things:
        assert isinstance(thing.load(rig.tiers, 0b001), Loaded)
        assert thing.is_loaded
    rest = rig.tiers.store(things[1].header, things[1].pages, 0b110)
    both = found[1].joined(rest)
    assert (both.tiers, both.written, both.num_bytes) == (0b111, 0b101, 2 * things[1].num_bytes)


def test_what_is_down_or_full_is_not_asked_for_many(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "disk")
    disk = rig.stores[0]
    things = [Thing(number) for number in range(1, 4)]
    for reason in (Reason.STORE_FAILED, Reason.STORE_FULL):
        disk.fail("claim", "put", "put_many", reason=reason, is_outage=True)
        for _ in range(6):
            # What fails so is no news of the tier, good or bad: asked for singly it is told.
            assert [one.tiers for one in together(rig, things, 1)] == [0, 0, 0]
            rig.tiers.store(things[0].header, things[0].pages, 1)
        calls = disk.calls["put_many"]
        assert [one.tiers for one in together(rig, things, 1)] == [0, 0, 0]
        assert disk.calls["put_many"] == calls
        disk.heal()
        rig.clock.now_s += 1000.0
        assert rig.tiers.store(things[0].header, things[0].pages, 1).tiers == 1
        assert [one.tiers for one in together(rig, things[:2], 1)] == [0, 1]
        rig.tiers.delete(things[0].name, 0)
        rig.tiers.delete(things[1].name, 0)
