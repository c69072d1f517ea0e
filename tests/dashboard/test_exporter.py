"""What is scraped is what the engine did, whole, closed in its labels, and cheap."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest

from kvstrata import CacheConfig, CacheManager, LogConfig, preset
from kvstrata.core.events import EventType, Reason
from kvstrata.dashboard.exporter import CONTENT_TYPE, Exporter, render
from kvstrata.dashboard.metrics import LABELS, METRICS, metric_of_series
from kvstrata.eventstore.history.follower import Follower
from kvstrata.eventstore.history.totals import NumericSample
from tests.face.support import LAYOUT, Place, prefill, request, serve, tokens_of
from tests.face.tiered import corner
from tests.history.following import catch_up, follow, work
from tests.services import need
from tests.system.seven_groups import WANTED, filled, flip, slot_of

from .scraping import Scrape


def scraped(follower: Follower, cache: CacheManager) -> Scrape:
    """A scrape of all that the engine did so far."""
    cache.flush()
    catch_up(follower)
    return Scrape.of(Exporter(follower))


def test_pages_and_units_are_the_manager_s_own_count(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        work(cache, 30)
        running = [prefill(cache, request(f"running {number}")) for number in range(2)]
        lease = cache.lease(cache.match(request("running 0")))
        seen, stats = scraped(follower, cache), cache.stats()
        for pool in stats.pools:
            kind = LAYOUT.group(pool.group).kind.name.lower()
            labels = {"pool": pool.group, "kind": kind}
            found = {
                state: seen["kvcache_pool_pages", {**labels, "state": state}]
                for state in pool.pages
            }
            assert found == pool.pages
            assert seen["kvcache_pool_capacity_pages", labels] == pool.slots - 1
            assert sum(found.values()) == pool.slots - 1
        for unit, counts in (("block", stats.blocks), ("checkpoint", stats.images)):
            uses = {
                use: seen["kvcache_units", {"unit": unit, "use": use}]
                for use in ("free", "idle", "held")
            }
            assert uses["free"] == counts["free"]
            assert uses["idle"] == counts["idle"]
            assert sum(uses.values()) == counts["total"]
            assert seen["kvcache_indexed_units", {"unit": unit}] == counts["indexed"]
        assert seen["kvcache_sequences"] == stats.sequences == 2
        assert seen["kvcache_leases"] == stats.leases == 1
        by_type = seen.by("kvcache_events_total", "type")
        assert {kind: count for kind, count in by_type.items() if count} == stats.events
        lease.release()
        for sequence in running:
            sequence.finish()


def test_tokens_have_one_source_each(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        for length in (64, 64, 80):
            serve(cache, request("one", length))
        sequence = prefill(cache, request("two", 70))
        suspended = sequence.suspend()
        cache.resume(suspended, tokens_of("two", 71)).cancel()
        seen = scraped(follower, cache)
    sources = seen.by("kvcache_source_tokens_total", "source")
    assert set(sources) == set(LABELS["source"].values)
    assert sum(sources.values()) == seen["kvcache_prompt_tokens_total"]
    assert sources["suspended"] > 0
    lookups, hits = (
        seen.by(f"kvcache_{name}_tokens_total", "source") for name in ("lookup", "hit")
    )
    assert lookups["device"] == seen["kvcache_prompt_tokens_total"] - sources["suspended"]
    assert lookups["tier"] == lookups["device"] - hits["device"]
    assert hits["device"] == sources["device"] > 0
    assert seen["kvcache_requests_total"] == 5


def test_every_metric_is_there_and_no_label_is_open(place: Place) -> None:
    with (
        filled(place) as cache,
        Follower(place.directory, shared_memory_root=place.shared) as follower,
    ):
        flip(cache, "c4", slot_of(cache, WANTED, "c4"))
        serve(cache, WANTED)
        cache.scrub(1 << 30)
        cache.mark_dirty("c4.index", [slot_of(cache, WANTED, "c4.index", 0)])
        cache.flush()
        catch_up(follower)
        follower.tally.numeric[0, 1] = NumericSample(3, 1, 0.5, 0.9, 1e-3)
        follower.tally.tier_failures[1, Reason.STORE_FAILED] = 2
        exporter = Exporter(follower)
        seen = Scrape.of(exporter)
        families = {family.name for family in exporter.collect()}
    stems = {name.removesuffix("_total") for name in METRICS}
    assert {name.removesuffix("_total") for name in families} == stems
    empty = {
        name for name, metric in METRICS.items() if not set(metric.series_names) & seen.names()
    }
    assert empty == {"kvcache_tier_objects"}, "there is no tier"
    for name, labels in seen.series:
        assert {label for label, _ in labels} - {"le"} == set(metric_of_series(name).labels)
        for label, value in labels:
            if label != "le" and LABELS[label].values:
                assert value in LABELS[label].values, (name, label, value)
    mismatch = {"pool": "c4", "kind": "compressed", "layer": "bytes", "reason": "checksum_mismatch"}
    assert seen["kvcache_validation_failures_total", mismatch] == 1
    index = {"pool": "c4.index", "kind": "indexer"}
    assert seen["kvcache_index_lag_pages", index] == 1
    assert seen["kvcache_dirtied_pages_total", index] == 1
    failed = {"tier": "tier1", "reason": "store_failed"}
    assert seen["kvcache_tier_failures_total", failed] == 2
    sampled = {"pool": "c4", "kind": "compressed", "model_layer": "1"}
    assert seen["kvcache_numeric_samples_total", {**sampled, "result": "equal"}] == 2
    assert seen["kvcache_numeric_cosine_similarity", sampled] == 0.9


def test_a_tier_that_is_named_as_the_pools_has_another_label() -> None:
    """Two series of one name and labels would have the whole scrape refused."""
    with corner() as place:
        tiers = place.tiers("device", "unknown", "disk")
        with place.opened(tiers=tiers, pools=None) as cache:
            log, shared = place.root / "log", place.root / "shared"
            with Follower(log, shared_memory_root=shared) as follower:
                seen = scraped(follower, cache)
    assert set(seen.by("kvcache_tier_bytes", "tier")) == {"device", "tier1", "tier2", "disk"}
    assert set(seen.by("kvcache_tier_objects", "tier")) == {"tier1", "tier2", "disk"}


def test_an_index_for_another_mapping_lags(place: Place) -> None:
    with (
        filled(place) as cache,
        Follower(place.directory, shared_memory_root=place.shared) as follower,
    ):
        index = {"pool": "c4.index", "kind": "indexer"}
        assert scraped(follower, cache)["kvcache_index_lag_pages", index] == 0
        cache.register_mapping("c4", "another version")
        sealed = sum(
            count
            for pool in cache.stats().pools
            if pool.group == "c4.index"
            for state, count in pool.pages.items()
            if state.startswith("sealed")
        )
        assert scraped(follower, cache)["kvcache_index_lag_pages", index] == sealed > 0


def test_promtool_finds_nothing_to_lint(place: Place) -> None:
    promtool = shutil.which("promtool") or need("promtool", "prometheus")
    with place.open() as cache, follow(place) as follower:
        work(cache, 5)
        cache.flush()
        catch_up(follower)
        text = render(follower)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_before_there_is_a_log_no_engine_is_up(place: Place) -> None:
    with follow(place) as follower:
        exporter = Exporter(follower)
        seen = Scrape.of(exporter)
        assert seen["kvcache_engine_up"] == 0
        assert seen["kvcache_follower_failed"] == 1
        assert "kvcache_requests_total" not in seen.names()
        with place.open() as cache:
            serve(cache, request("first"))
            cache.flush()
            catch_up(follower)
            seen = Scrape.of(exporter)
            assert seen["kvcache_engine_up"] == 1
            assert seen["kvcache_requests_total"] == 1
            assert seen["kvcache_follower_failed"] == 0


def test_an_engine_closed_in_order_says_so(place: Place) -> None:
    place.open().close()
    with follow(place) as follower:
        catch_up(follower)
        seen = Scrape.of(Exporter(follower))
    assert (seen["kvcache_engine_up"], seen["kvcache_log_closed"]) == (0, 1)


def test_a_follower_that_has_not_caught_up_shows_no_counts(place: Place) -> None:
    """They would be lower than what was shown before it was started."""
    with place.open() as cache:
        work(cache, 20)
        cache.flush()
        with follow(place) as follower:
            exporter = Exporter(follower)
            follower.step(10)
            seen = Scrape.of(exporter)
            assert "kvcache_requests_total" not in seen.names()
            assert seen["kvcache_follower_lag_events"] > 0
            catch_up(follower)
            assert Scrape.of(exporter)["kvcache_requests_total"] == 20


def test_a_scrape_is_one_moment_while_the_follower_works(place: Place) -> None:
    """Pages sum to the pools and sources to the prompts, whatever is applied meanwhile."""
    with place.open() as cache, follow(place) as follower:
        serve(cache, request("first"))
        cache.flush()
        catch_up(follower)
        follower.start(0.0005)
        exporter = Exporter(follower)
        for number in range(40):
            work(cache, 2, 2 * number)
            seen = Scrape.of(exporter)
            pages = seen.by("kvcache_pool_pages", "pool")
            assert pages == seen.by("kvcache_pool_capacity_pages", "pool")
            sources = seen.by("kvcache_source_tokens_total", "source")
            assert sum(sources.values()) == seen["kvcache_prompt_tokens_total"]


def test_it_serves_a_registry_of_another_s(place: Place) -> None:
    with place.open() as cache, follow(place) as follower:
        serve(cache, request("one"))
        cache.flush()
        catch_up(follower)
        registry = CollectorRegistry()
        registry.register(Exporter(follower))
        assert b"kvcache_requests_total 1.0" in generate_latest(registry)
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


def test_a_scrape_of_a_large_cache_is_cheap_and_small(tmp_path: Path) -> None:
    """100k blocks of the seven groups of a published model, every series that can be."""
    layout = preset("deepseek-v4-flash")
    slots = {group.name: 100_001 for group in layout.history_groups}
    slots |= {group.name: 2001 for group in layout.state_groups}
    shared = Path("/dev/shm") / f"kvstrata-tests-{tmp_path.name}-{time.monotonic_ns()}"
    shared.mkdir()
    try:
        log = LogConfig(shared_memory_root=shared, ring_events=1 << 15)
        config = CacheConfig(slots=slots, max_sequences=64, stored_keys=65_536, log=log)
        with (
            CacheManager.open(layout, config, shared / "log") as cache,
            Follower(shared / "log", shared_memory_root=shared) as follower,
        ):
            for number in range(40):
                wanted = request("x", 8, tokens=tokens_of(f"text {number}", 4096))
                serve(cache, wanted)
            scraped(follower, cache)
            _fill(follower)
            exporter = Exporter(follower)
            took_s = []
            for _ in range(5):
                began_s = time.thread_time()
                text = exporter.render()
                took_s.append(time.thread_time() - began_s)
    finally:
        shutil.rmtree(shared)
    assert len(Scrape.read(text.decode()).series) <= 2000
    assert min(took_s) < 0.05, took_s


def _fill(follower: Follower) -> None:
    """Every series that this layout can have, and tables in which looking takes longest."""
    layout, tally = follower.layout, follower.tally
    for number, group in enumerate(layout.groups):
        for layer in group.layers:
            tally.numeric[number, layer] = NumericSample(2, 1, 0.1, 0.9, 1e-3)
    tally.counts[EventType.PAGE_DIRTIED, 2, 0] = 1
    tally.tier_failures[1:5, int(Reason.OBJECT_MISSING) : int(Reason.TIER_DOWN) + 1] = 1
    follower.tables.stored[1:, 0] = np.int64(0b1111) | np.int64(0b1111 << 8)
