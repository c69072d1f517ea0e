"""A follower has what the engine has, as far as that is durable."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from kvstrata import ConfigError
from kvstrata.core.events import EVENT_DTYPE, LAST_OF_CALL
from kvstrata.eventstore.history import durable
from kvstrata.eventstore.history.follower import Follower
from kvstrata.eventstore.log import read_events
from tests.face.support import LAYOUT, Place, request, serve

from .following import SMALL_SEGMENTS, agree, catch_up, follow, leave, values, work


def test_follows_a_living_engine(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        assert follower.layout == LAYOUT
        assert follower.params == cache.config.arena_params(LAYOUT)
        for number in range(5):
            work(cache, 8, 8 * number)
            agree(follower, cache)
            assert follower.tally.seqno == follower.position().seqno


def test_a_directory_may_come_later(place: Place) -> None:
    with follow(place) as follower:
        assert not follower.is_open
        assert follower.step() == 0
        position = follower.position()
        assert position.seqno == 0
        assert "no such directory" in position.error
        assert follower.status() is None
        for name in ("layout", "params", "arena", "tables", "tally", "tier_names"):
            with pytest.raises(ConfigError, match="none yet"):
                getattr(follower, name)
        with place.open() as cache:
            work(cache, 3)
            agree(follower, cache)


def test_only_durable_events_are_applied(place: Place) -> None:
    log = {"durability": "none", "sync_interval_ms": 500.0, "stall_limit_ms": 5000.0}
    with place.open(log=log) as cache, follow(place) as follower:
        cache.flush()
        before = cache.stats().last_seqno
        work(cache, 3)
        catch_up(follower)
        assert follower.position().seqno == before < cache.stats().last_seqno
        agree(follower, cache)


def test_whole_calls_in_small_steps(place: Place) -> None:
    with place.open() as cache:
        work(cache, 20)
        cache.flush()
        with follow(place) as follower:
            seen: list[npt.NDArray[np.void]] = []
            follower.add_listener(lambda events: seen.append(events.copy()))
            steps = 0
            while follower.step(100):
                steps += 1
                assert seen[-1]["flags"][-1] & LAST_OF_CALL
                assert len(seen[-1]) < 400
            assert steps > 5
            agree(follower, cache)
        told = np.concatenate(seen)
        assert np.array_equal(told, np.concatenate([*read_events(place.directory)]))


def test_listeners_hear_outside_the_lock(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        work(cache, 2)
        cache.flush()
        heard: list[bool] = []
        follower.add_listener(lambda events: heard.append(follower.lock.locked()))
        follower.add_listener(lambda events: heard.append(len(events) == follower.arena[32]))
        catch_up(follower)
        assert heard[:2] == [False, True]


@pytest.mark.parametrize("most", [1, 64, 1 << 16])
def test_follows_through_rotation(place: Place, most: int) -> None:
    with place.open(log=SMALL_SEGMENTS) as cache, follow(place) as follower:
        for number in range(4):
            work(cache, 30, 30 * number)
            cache.flush()
            catch_up(follower, most)
        assert follower.position().segment_id > 3
        agree(follower, cache)
        with follow(place) as later:
            agree(later, cache)
            assert later.position().segment_id == follower.position().segment_id


def test_several_followers_in_threads(place: Place) -> None:
    with place.open(log=SMALL_SEGMENTS) as cache:
        followers = [Follower(place.directory, shared_memory_root=place.shared) for _ in range(3)]
        for follower in followers:
            follower.start(0.002)
            follower.start(0.002)  # once is enough
        work(cache, 60)
        cache.flush()
        until_s = time.monotonic() + 20
        while time.monotonic() < until_s:
            if all(not one.position().lag_events for one in followers):
                break
            time.sleep(0.01)
        for follower in followers:
            follower.close()
            follower.close()
            assert np.array_equal(follower.arena, cache.arena)
        assert "kvstrata-follower" not in {one.name for one in threading.enumerate()}


def test_lag_grows_while_nobody_steps(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        agree(follower, cache)
        assert follower.position().replayed
        serve(cache, request("a"))
        cache.flush()
        first = follower.position()
        assert first.lag_events > 10
        time.sleep(0.02)
        assert follower.position().lag_seconds >= first.lag_seconds + 0.02
        agree(follower, cache)


def test_the_last_event_in_wall_time(place: Place) -> None:
    before_ns = time.time_ns()
    with place.open() as cache, follow(place) as follower:
        serve(cache, request("a"))
        agree(follower, cache)
        assert before_ns <= follower.position().event_time_ns <= time.time_ns()
        status = follower.status()
        assert status is not None
        assert status.durable == follower.position().seqno


@pytest.mark.parametrize("how", ["closed", "dead", "poisoned"])
def test_follows_through_a_restart(place: Place, how: str) -> None:
    with follow(place) as follower:
        for life in range(3):
            cache = place.open(log=SMALL_SEGMENTS)
            work(cache, 20, 20 * life)
            if life == 1:
                agree(follower, cache)
            if how == "closed":
                cache.close()
            elif how == "dead":
                assert cache.log is not None
                cache.flush()
                cache.log.close(clean=False)
            else:
                leave(cache)
        with place.open(log=SMALL_SEGMENTS) as cache:
            agree(follower, cache)
            assert follower.tally.totals["starts"] == 4
            assert follower.tally.totals["crashes"] == (0 if how == "closed" else 3)
            assert follower.position().restarts == 0
            with follow(place) as later:
                agree(later, cache)
                assert values(later.tally) == values(follower.tally)


def test_a_log_that_is_closed_is_read_to_its_end(place: Place) -> None:
    cache = place.open()
    work(cache, 5)
    cache.close()
    with follow(place) as follower:
        catch_up(follower)
        assert np.array_equal(follower.arena, cache.arena)
        assert follower.position().durable_seqno == cache.stats().last_seqno


def test_a_listener_that_fails_holds_nobody_up(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        heard: list[int] = []

        def failing(events: npt.NDArray[np.void]) -> None:
            raise RuntimeError("a test")

        follower.add_listener(failing)
        follower.add_listener(lambda events: heard.append(len(events)))
        work(cache, 2)
        agree(follower, cache)
        assert sum(heard) == follower.position().seqno


def test_nothing_is_read_after_close(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        agree(follower, cache)
        seqno = follower.position().seqno
        follower.close()
        work(cache, 2)
        cache.flush()
        assert follower.step() == 0
        assert follower.position().seqno == seqno
        assert follower.position().lag_events > 0
        assert follower.position().error == ""


def test_without_a_ring_the_files_say_what_is_durable(place: Place, tmp_path: Path) -> None:
    cache = place.open(log=SMALL_SEGMENTS)
    work(cache, 40)
    cache.close()
    with Follower(place.directory, shared_memory_root=tmp_path) as follower:
        catch_up(follower)
        assert np.array_equal(follower.arena, cache.arena)
        assert follower.status() is None


@pytest.mark.parametrize("closed", ["ring", "folder"])
def test_a_ring_of_another_user_is_as_if_there_were_none(
    place: Place, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with place.open(log=SMALL_SEGMENTS) as cache:
        work(cache, 40)
        cache.flush()
        with monkeypatch.context() as patched:
            if closed == "ring":
                patched.setattr(durable, "map_ring", refused)
            else:  # only that of the ring: the log directory is readable
                stat = os.stat
                patched.setattr(
                    os,
                    "stat",
                    lambda path, **more: (
                        refused() if Path(path).name == "ring" else stat(path, **more)
                    ),
                )
            with follow(place) as follower:
                catch_up(follower)
                assert follower.position().error == ""
                assert follower.position().seqno > 0
                assert follower.status() is None


def test_events_are_told_by_type(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        seen: list[npt.NDArray[np.void]] = []
        follower.add_listener(lambda events: seen.append(events.copy()))
        agree(follower, cache)
        assert seen[0].dtype == EVENT_DTYPE
