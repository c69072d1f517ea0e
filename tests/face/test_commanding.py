"""Operators' commands: fetched by a service thread, carried out by the mutating one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from kvstrata import CacheManager, ConfigError, Deferred
from kvstrata.core.arena import new_arena
from kvstrata.core.events import EventType, Reason, decode_payload
from kvstrata.core.replay import apply_events
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_STATE, POOL_FIRST
from kvstrata.eventstore.commands import COMMAND_MEANINGS, CommandKind, CommandOutcome
from kvstrata.eventstore.log import read_events

from .commanded import Source, carry_out, key_of, until
from .support import Place, check_sums, hit, memory_manager, prefill, request, serve


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def engine(place: Place, source: Source) -> Iterator[CacheManager]:
    with place.open("private") as cache:
        cache.follow_commands(source, poll_s=0.01)
        yield cache
        check_sums(cache)
        check_replay(cache, place)


def check_replay(cache: CacheManager, place: Place) -> None:
    """What was done for operators is in the log: a replay of it gives the same tables."""
    assert cache.log is not None
    if cache.log.poisoned:
        return  # a test's own doing: the log has ended
    cache.flush()
    arena = new_arena(cache.layout, cache.config.arena_params(cache.layout))
    for events in read_events(place.directory):
        words = np.frombuffer(events.tobytes(), dtype=np.int64).reshape(-1, 8)
        assert apply_events(arena, words) == len(words)
    assert np.array_equal(arena, cache.arena)


def state_of(cache: CacheManager, group: str, slot: int) -> PageState:
    pool = cache.tables.pools[cache.layout.group_id(group)]
    return PageState(int(cache.tables.pages[int(pool[POOL_FIRST]) + slot, PAGE_STATE]))


def events_of(place: Place, *kinds: EventType) -> list[np.void]:
    found = [event for batch in read_events(place.directory) for event in batch]
    return [event for event in found if int(event["type"]) in kinds]


# what each kind does


def test_a_quarantined_page_is_hit_no_more(engine: CacheManager, source: Source) -> None:
    sequence = prefill(engine, request("text"))
    slot = int(engine.block_slots(sequence, "full")[1])
    sequence.finish()
    assert hit(engine, request("text")) == (32, 32)
    answer = carry_out(engine, source, "quarantine", group="full", page=slot)
    assert answer[:3] == ("done", "withdrawn, with what hung from its block", 1)
    assert hit(engine, request("text"))[1] == 16


def test_only_a_sealed_page_of_that_generation_is_quarantined(
    engine: CacheManager, source: Source
) -> None:
    serve(engine, request("text"))
    refused = carry_out(engine, source, "quarantine", group="full", page=39)
    assert refused.outcome == "refused"
    assert "expected a sealed page, found it FREE" in refused.text
    refused = carry_out(engine, source, "quarantine", group="full", page=1, generation=7)
    assert "expected generation 7 of full page 1, found 1" in refused.text
    for bad in ({"group": "none", "page": 1}, {"group": "full", "page": 40}, {"group": "full"}):
        assert carry_out(engine, source, "quarantine", **bad).outcome == "refused"
    assert hit(engine, request("text")) == (32, 32)


def test_a_page_that_only_pins_hold_goes_back_to_its_pool(
    engine: CacheManager, source: Source
) -> None:
    sequence = prefill(engine, request("text"))
    slot = int(engine.block_slots(sequence, "full")[0])
    sequence.finish()
    carry_out(engine, source, "pin", key=key_of(engine, request("text"), 2))
    carry_out(engine, source, "quarantine", group="full", page=slot)
    assert state_of(engine, "full", slot) is PageState.QUARANTINED
    answer = carry_out(engine, source, "unquarantine", group="full", page=slot)
    assert answer[:3] == ("done", "back in its pool, 1 pins ended", 1)
    assert state_of(engine, "full", slot) is PageState.FREE
    assert carry_out(engine, source, "unquarantine", group="full", page=slot).changed == 0


def test_a_page_that_a_sequence_reads_stays_quarantined(
    engine: CacheManager, source: Source
) -> None:
    sequence = prefill(engine, request("text"))
    slot = int(engine.block_slots(sequence, "full")[0])
    carry_out(engine, source, "quarantine", group="full", page=slot)
    answer = carry_out(engine, source, "unquarantine", group="full", page=slot)
    assert answer.outcome == "refused"
    assert "goes back to its pool by itself when the last of them ends" in answer.text
    sequence.finish()
    assert state_of(engine, "full", slot) is PageState.FREE
    refused = carry_out(engine, source, "unquarantine", group="swa", page=1)
    assert refused.outcome in ("done", "refused")


def test_a_prefix_is_dropped_with_what_goes_on_from_it(
    engine: CacheManager, source: Source
) -> None:
    serve(engine, request("text", 100))
    serve(engine, request("other", 100))
    answer = carry_out(engine, source, "drop_prefix", key=key_of(engine, request("text", 100), 3))
    assert answer.outcome == "done"
    assert answer.text.startswith("4 blocks and ")
    assert hit(engine, request("text", 100))[1] == 32
    assert hit(engine, request("other", 100))[1] == 96
    again = carry_out(engine, source, "drop_prefix", key=key_of(engine, request("text", 100), 3))
    assert (again.outcome, again.changed) == ("done", 0)


def test_what_is_read_is_kept_with_what_it_hangs_from(engine: CacheManager, source: Source) -> None:
    serve(engine, request("text", 100))
    with engine.lease(engine.match(request("text", 60))):
        key = key_of(engine, request("text", 100), 1)
        answer = carry_out(engine, source, "drop_prefix", key=key)
        assert "3 and" in answer.text
        assert "kept: they are in use" in answer.text
        assert hit(engine, request("text", 100))[1] == 48
    carry_out(engine, source, "drop_prefix", key=key)
    assert hit(engine, request("text", 100))[1] == 0


def test_a_pinned_prefix_outlives_pressure(engine: CacheManager, source: Source) -> None:
    serve(engine, request("kept", 64))
    key = key_of(engine, request("kept", 64), 4)
    answer = carry_out(engine, source, "pin", key=key)
    assert answer[:3] == ("done", "4 blocks pinned until the engine ends", 4)
    assert carry_out(engine, source, "pin", key=key).text == "it is pinned already"
    for number in range(12):
        serve(engine, request(f"pressure {number}", 200))
    assert hit(engine, request("kept", 64))[1] == 64
    assert carry_out(engine, source, "unpin", key=key)[:3] == ("done", "1 pins ended", 1)
    for number in range(12):
        serve(engine, request(f"more {number}", 200))
    assert hit(engine, request("kept", 64))[1] == 0
    assert carry_out(engine, source, "unpin", key=key).changed == 0


def test_what_is_not_there_cannot_be_pinned(engine: CacheManager, source: Source) -> None:
    assert carry_out(engine, source, "pin", key="00" * 16).outcome == "refused"
    for bad in ("", "zz" * 16, "00", None, 7):
        answer = carry_out(engine, source, "pin", key=bad)
        assert (answer.outcome, answer.changed) == ("refused", 0)
        assert "expected 32 hexadecimal digits" in answer.text


def test_pins_take_lease_rows(engine: CacheManager, source: Source) -> None:
    serve(engine, request("text", 100))
    keys = [key_of(engine, request("text", 100), blocks) for blocks in (1, 2, 3)]
    outcomes = [carry_out(engine, source, "pin", key=key).outcome for key in keys]
    assert outcomes == ["done", "done", "refused"]


def test_a_scrub_finds_what_was_damaged(engine: CacheManager, source: Source) -> None:
    sequence = prefill(engine, request("text"))
    slot = int(engine.block_slots(sequence, "full")[0])
    sequence.finish()
    assert engine.pools is not None
    engine.pools.storage("full")[slot, 0] += 1
    answer = carry_out(engine, source, "scrub")
    assert (answer.outcome, answer.changed) == ("done", 1)
    assert "1 bad and quarantined" in answer.text
    assert hit(engine, request("text"))[1] == 0


def test_a_scrub_goes_once_around_from_wherever_it_stands(
    engine: CacheManager, source: Source
) -> None:
    for name in ("one", "two"):
        serve(engine, request(name, 200))
    engine.scrub(1)
    sealed = engine.scrub_progress().sealed_pages
    assert sealed > 10
    answer = carry_out(engine, source, "scrub", max_bytes=1 << 40)
    assert int(answer.text.split()[0]) >= sealed


def test_a_snapshot_is_stored(engine: CacheManager, source: Source, place: Place) -> None:
    serve(engine, request("text"))
    answer = carry_out(engine, source, "snapshot")
    assert answer.outcome == "done"
    [file] = (place.directory / "snapshots").glob("*.snap")
    assert file.name in answer.text


def test_a_drained_engine_lets_nobody_in(engine: CacheManager, source: Source) -> None:
    running = prefill(engine, request("text"))
    assert carry_out(engine, source, "drain").text.endswith("1 sequences run")
    with pytest.raises(Deferred, match="an operator drains this engine") as hit_it:
        engine.begin(engine.match(request("other")))
    assert hit_it.value.limit == "draining"
    engine.reserve([running.id], [1]).commit(tokens=[1])
    running.finish()
    status = engine.commands_status()
    assert status is not None
    assert status.is_draining
    carry_out(engine, source, "drain", drain=False)
    serve(engine, request("other"))


def test_a_divergence_is_written_into_the_log(
    engine: CacheManager, source: Source, place: Place
) -> None:
    wanted = {"first_seqno": 10, "last_seqno": 20, "slice": 3}
    assert carry_out(engine, source, "report_divergence", **wanted).outcome == "done"
    engine.flush()
    [event] = events_of(place, EventType.DIVERGENCE_REPORTED)
    assert int(event["reason"]) == Reason.DRIFTED
    payload = decode_payload(event)
    assert (payload["first"], payload["last"], payload["slice"]) == (10, 20, 3)
    bad = carry_out(engine, source, "report_divergence", first_seqno=5, last_seqno=4, slice=0)
    assert bad.outcome == "refused"


def test_a_kind_that_is_none_is_refused(engine: CacheManager, source: Source) -> None:
    answer = carry_out(engine, source, "explode")
    assert answer.outcome == "refused"
    assert "found 'explode'" in answer.text


def test_every_kind_has_a_meaning() -> None:
    assert set(COMMAND_MEANINGS) == set(CommandKind)


# how they come and go


def test_a_command_stands_in_the_log_between_two_events(
    engine: CacheManager, source: Source, place: Place
) -> None:
    answer = carry_out(engine, source, "scrub")
    taken, ended = events_of(place, EventType.COMMAND_TAKEN, EventType.COMMAND_ENDED)
    assert decode_payload(taken)["command"] == decode_payload(ended)["command"] == 1
    assert decode_payload(ended)["kind"] == CommandKind.SCRUB
    assert decode_payload(ended)["outcome"] == CommandOutcome.DONE
    assert int(ended["seqno"]) == answer.seqno
    prefix = str(decode_payload(ended)["prefix"])
    assert [file for file in (place.directory / "blobs").iterdir() if file.stem.startswith(prefix)]


def test_it_is_answered_once_its_event_is_durable(engine: CacheManager, source: Source) -> None:
    answer = carry_out(engine, source, "drain", drain=False)
    assert engine.log is not None
    assert engine.log.status().durable >= answer.seqno


def test_a_source_that_is_away_harms_nobody(engine: CacheManager, source: Source) -> None:
    source.is_away = True
    until(lambda: "database is away" in engine.commands_status().error, engine)  # type: ignore[union-attr]
    status = engine.commands_status()
    assert status is not None
    assert not status.is_reachable
    assert status.retry_in_s > 0
    serve(engine, request("text"))
    polls = source.num_polls
    time.sleep(0.1)
    assert source.num_polls <= polls + 1  # it is not asked all the time
    source.is_away = False
    assert carry_out(engine, source, "scrub").outcome == "done"


def test_an_answer_waits_until_the_source_is_back(engine: CacheManager, source: Source) -> None:
    number = source.ask("scrub")
    until(lambda: not source.asked, engine)
    source.is_away = True
    until(lambda: engine.commands_status().ended == 1, engine)  # type: ignore[union-attr]
    time.sleep(0.05)
    assert number not in source.answers
    source.is_away = False
    until(lambda: number in source.answers, engine)


def test_no_more_are_fetched_than_can_be_answered(engine: CacheManager, source: Source) -> None:
    for _ in range(100):
        source.ask("scrub")
    time.sleep(0.2)  # the engine makes no call: none is carried out
    assert len(source.asked) == 100 - 32
    until(lambda: len(source.answers) == 100, engine)


def test_what_an_earlier_life_began_is_done_again_where_that_is_safe(
    engine: CacheManager, source: Source
) -> None:
    safe = source.ask("scrub", was_begun=True)
    unsafe = source.ask("report_divergence", True, first_seqno=1, last_seqno=2, slice=0)
    until(lambda: len(source.answers) == 2, engine)
    assert source.answers[safe].outcome == "done"
    assert source.answers[unsafe].outcome == "failed"
    assert "whether report_divergence was done is not known" in source.answers[unsafe].text


def test_what_ended_is_answered_when_the_manager_closes(place: Place, source: Source) -> None:
    with place.open("private") as cache:
        cache.follow_commands(source, poll_s=60.0)
        number = source.ask("drain")
        time.sleep(0.05)
    assert source.is_closed
    assert number not in source.answers  # never fetched: it is at its source still
    assert threading.active_count() < 20


def test_a_poisoned_log_is_said(engine: CacheManager, source: Source) -> None:
    assert engine.log is not None
    engine.log.end_epoch("a test")
    answer = carry_out(engine, source, "drain", drain=False)
    assert answer.outcome == "failed"
    assert "done (requests are let in again" in answer.text
    assert "but not durably" in answer.text


def test_a_manager_without_a_log_follows_nobody(source: Source) -> None:
    with memory_manager() as cache, pytest.raises(ConfigError, match="with a log directory"):
        cache.follow_commands(source)


def test_there_is_one_source(engine: CacheManager, source: Source) -> None:
    with pytest.raises(ConfigError, match="found a second"):
        engine.follow_commands(source)


def test_the_wait_between_looks_is_some(place: Place, source: Source) -> None:
    with place.open() as cache, pytest.raises(ConfigError, match="expected more than 0"):
        cache.follow_commands(source, poll_s=0.0)
