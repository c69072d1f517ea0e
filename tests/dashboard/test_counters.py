"""Counters are never negative and never fall, across crashes, replays and restarts of readers."""

from __future__ import annotations

from pathlib import Path

from kvstrata.dashboard.exporter import Exporter
from tests.face.support import Place, request, serve
from tests.history.following import SMALL_SEGMENTS, catch_up, followed, leave, work

from .scraping import Scrape, Series

LIVES = 6
OF_THE_PROCESS = (
    "kvcache_follower_",
    "kvcache_log_stalls_total",
    "kvcache_log_syncs_total",
    "kvcache_projection_digests_total",
    "kvcache_drift_total",
)
"""What begins anew with the process that reads, as docs/metrics.md says."""


class Watcher:
    """Scrapes, and holds each scrape against the one before."""

    def __init__(self) -> None:
        self.last: dict[Series, float] = {}
        self.num_seen = 0

    def look(self, exporter: Exporter, reader_is_new: bool = False) -> None:
        seen = Scrape.of(exporter).growing()
        assert all(value >= 0 for value in seen.values())
        for series, before in self.last.items():
            if reader_is_new and series[0].startswith(OF_THE_PROCESS):
                continue
            if series in seen:
                assert seen[series] >= before, (series, before, seen[series])
        self.last |= seen
        self.num_seen += 1


def test_counters_never_fall_while_engines_crash(place: Place) -> None:
    """One reader lives through crashes, clean ends and a log that rotates."""
    watcher = Watcher()
    place.open(log=SMALL_SEGMENTS).close()
    with followed(place) as follower:
        exporter = Exporter(follower)
        catch_up(follower)
        for life in range(LIVES):
            cache = place.open(log=SMALL_SEGMENTS)
            for part in range(4):
                work(cache, 8, 32 * life + 8 * part)
                cache.flush()
                follower.step(50)
                watcher.look(exporter)
            catch_up(follower)
            watcher.look(exporter)
            if life % 2:
                cache.close()
            else:
                leave(cache)
        place.open().close()
        catch_up(follower)
        watcher.look(exporter)
        seen = Scrape.of(exporter)
    assert watcher.num_seen == LIVES * 5 + 1
    assert seen["kvcache_engine_crashes_total"] == LIVES / 2
    assert seen["kvcache_engine_starts_total"] == LIVES + 2
    assert seen["kvcache_recovery_duration_seconds_count"] > 0
    assert seen["kvcache_log_syncs_total"] > 0


def test_counters_are_exact_when_the_reader_restarts(place: Place, tmp_path: Path) -> None:
    """With its memory the next reader goes on; without it, it counts the whole log again."""
    watcher = Watcher()
    for life, memory in enumerate([tmp_path / "tally", tmp_path / "tally", None, None]):
        cache = place.open()
        work(cache, 10, 10 * life)
        cache.flush()
        leave(cache)
        with followed(place, memory) as follower:
            exporter = Exporter(follower)
            watcher.look(exporter, reader_is_new=True)
            catch_up(follower)
            watcher.look(exporter)
            seen = Scrape.of(exporter)
            assert seen["kvcache_requests_total"] == 10 * (life + 1)
    assert seen["kvcache_engine_crashes_total"] == 3


def test_counts_of_the_status_page_go_on_over_incarnations(place: Place) -> None:
    found = []
    place.open().close()
    with followed(place) as follower:
        exporter = Exporter(follower)
        for _ in range(3):
            with place.open() as cache:
                serve(cache, request("one"))
                cache.flush()
                catch_up(follower)
                found.append(Scrape.of(exporter)["kvcache_log_syncs_total"])
    assert found == sorted(found)
    assert found[-1] > found[0] > 0
