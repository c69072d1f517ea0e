"""What each route says of a small engine that has done a little of everything."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kvstrata.core.events import Reason
from kvstrata.core.quarantine import quarantine
from tests.api.server.support import Served
from tests.face.commanded import key_of
from tests.face.support import LAYOUT, prefill, request, serve


def test_the_layout_is_the_engines(quiet: Served) -> None:
    found = quiet.get("/v1/layout")
    assert found["digest"] == LAYOUT.digest().hex()
    assert [group["name"] for group in found["groups"]] == ["full", "swa"]
    assert found["groups"][0]["kind"] == "COMPRESSED"
    assert found["sizes"]["slots"] == {"full": 40, "swa": 20}


def test_pools_count_their_pages(quiet: Served) -> None:
    for pool in quiet.get("/v1/pools")["items"]:
        assert sum(pool["pages"].values()) == pool["num_pages"]
        counted = quiet.cache.stats().pools[0 if pool["group"] == "full" else 1].pages
        assert pool["pages"]["FREE"] == counted["free"]
        assert pool["pages"]["SEALED"] == counted["sealed_idle"] + counted["sealed_pinned"]


def test_a_page_shows_its_morphology(quiet: Served) -> None:
    [sequence] = quiet.get("/v1/sequences")["items"]
    rows = quiet.every("/v1/blocks", sequence=sequence["id"])
    assert {row["group"] for row in rows} == {"full", "swa"}
    [open_page] = [row for row in rows if row["group"] == "full" and row["state"] == "OPEN"]
    found = quiet.get(f"/v1/blocks/full/{open_page['page']}")
    assert found["entries"] == 50 % 16
    assert found["entries_when_full"] == 16
    assert found["awaiting"] == "compression"
    assert found["sequence"] == sequence["id"]
    assert found["holders"] == [{"kind": "sequence", "id": sequence["id"]}]
    assert found["unit"]["state"] == "building"
    sealed = next(row for row in rows if row["group"] == "full" and row["state"] == "SEALED")
    found = quiet.get(f"/v1/blocks/full/{sealed['page']}")
    assert found["awaiting"] is None
    assert found["stamp"]["abi"] == found["reader"]["abi"] == registered_abi(quiet)
    assert found["key"] == sealed["key"]
    assert found["unit"]["num_sealed_pages"] == len(found["unit"]["pages"]) == 1
    assert found["checksum"] == sealed["checksum"]
    assert 0 <= found["age_s"] < 600


def registered_abi(api: Served) -> int:
    abi: int = api.get("/v1/pools")["items"][0]["reader"]["abi"]
    return abi


def test_a_ring_shows_its_head(quiet: Served) -> None:
    row = quiet.every("/v1/blocks", group="swa", state="OPEN")[0]
    found = quiet.get(f"/v1/blocks/swa/{row['page']}")
    assert found["ring_rows"] == 15 + 4
    assert found["window_tokens"] == 16
    assert found["ring_head"] is not None
    assert found["unit"]["kind"] == "image"


def test_a_segment_has_all_groups_side_by_side(quiet: Served) -> None:
    key = key_of(quiet.cache, request("text", 100), 2)
    found = quiet.get(f"/v1/segments/{key}")
    assert found["block"]["pages"][0]["group"] == "full"
    assert found["block"]["parent_key"] == key_of(quiet.cache, request("text", 100), 1)
    assert found["children"] == [key_of(quiet.cache, request("text", 100), 3)]
    assert found["block_tiers"] == ["device"]
    assert found["checkpoint_tiers"] == (["device"] if found["checkpoint"] else [])
    end = quiet.get(f"/v1/segments/{key_of(quiet.cache, request('text', 100), 6)}")
    assert [page["group"] for page in end["checkpoint"]["pages"]] == ["swa"]
    answer = quiet.client.get("/v1/segments/" + "0" * 32)
    assert answer.status_code == 404


def test_sequences_and_leases_are_listed(quiet: Served) -> None:
    [sequence] = quiet.get("/v1/sequences")["items"]
    assert sequence["prompt_tokens"] == 50
    assert sequence["state"] == "running"
    assert sequence["num_blocks"] == 4
    [lease] = quiet.get("/v1/leases")["items"]
    assert lease["held_for"] == "engine"
    assert lease["num_blocks"] == 3


def test_blocks_can_be_asked_for_in_many_ways(quiet: Served) -> None:
    everything = quiet.every("/v1/blocks")
    assert {row["state"] for row in everything} >= {"SEALED", "OPEN"}
    assert not [row for row in everything if row["state"] == "FREE"]
    assert len(quiet.every("/v1/blocks", state="FREE")) + len(everything) == 39 + 19
    only = quiet.every("/v1/blocks", kind="SWA")
    assert {row["group"] for row in only} == {"swa"}
    assert quiet.every("/v1/blocks", kind="SWA", group="full") == []
    assert _but_age(quiet.every("/v1/blocks", tier="device")) == _but_age(everything)
    key = key_of(quiet.cache, request("text", 100), 2)
    assert {row["key"] for row in quiet.every("/v1/blocks", key=key)} == {key}
    assert quiet.every("/v1/blocks", key="0" * 32) == []
    assert quiet.every("/v1/blocks", sequence=12345) == []
    assert quiet.client.get("/v1/blocks", params={"tier": "nowhere"}).status_code == 404
    assert quiet.client.get("/v1/blocks", params={"group": "none"}).status_code == 404
    assert quiet.client.get("/v1/blocks", params={"state": "LOST"}).status_code == 422


def _but_age(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{**row, "age_s": None} for row in rows]


def test_blocks_can_be_asked_for_by_age(api: Served) -> None:
    everything = len(api.every("/v1/blocks"))
    assert len(api.every("/v1/blocks", max_age_s=3600)) == everything
    assert api.every("/v1/blocks", min_age_s=3600) == []
    time.sleep(0.3)
    serve(api.cache, request("young", 40))
    api.catch_up()
    young = api.every("/v1/blocks", max_age_s=0.25)
    assert 0 < len(young) < everything
    assert all(row["age_s"] < 1 for row in young)


def test_a_page_has_a_history(quiet: Served) -> None:
    row = next(row for row in quiet.every("/v1/blocks", group="full") if row["key"])
    found = quiet.every(f"/v1/blocks/full/{row['page']}/history", limit=2)
    assert [event["type"] for event in found][-1] == "PAGE_RESERVED"
    assert "PAGE_SEALED" in {event["type"] for event in found}
    seqnos = [event["seqno"] for event in found]
    assert seqnos == sorted(seqnos, reverse=True)
    assert seqnos[0] == row["changed_seqno"]
    assert all(event["page"] == row["page"] for event in found)


def test_events_come_in_order_and_once(quiet: Served) -> None:
    last = quiet.get("/v1/events", limit=1)["durable_seqno"]
    found = quiet.every("/v1/events", limit=7)
    assert [event["seqno"] for event in found] == list(range(1, last + 1))
    some = quiet.every("/v1/events", type="SEQUENCE_BEGUN", limit=1)
    assert len(some) == 4
    assert {event["type"] for event in some} == {"SEQUENCE_BEGUN"}
    after = quiet.get("/v1/events", after=last - 2)["items"]
    assert [event["seqno"] for event in after] == [last - 1, last]
    assert quiet.client.get("/v1/events", params={"type": "NOTHING"}).status_code == 404


def test_the_end_of_events_can_be_asked_again(api: Served) -> None:
    last = api.get("/v1/events", limit=1)["durable_seqno"]
    end = api.get("/v1/events", after=last)
    assert end["items"] == []
    serve(api.cache, request("more", 40))
    api.catch_up()
    more = api.get("/v1/events", cursor=end["next"])["items"]
    assert more[0]["seqno"] == last + 1


def test_failures_are_counted_and_shown(api: Served) -> None:
    sequence = prefill(api.cache, request("bad", 40))
    slot = int(api.cache.block_slots(sequence, "full")[0])
    sequence.finish()
    assert api.cache.pools is not None
    api.cache.pools.storage("full")[slot, 0] += 1
    serve(api.cache, request("bad", 40))
    api.catch_up()
    found = api.get("/v1/failures")
    assert found["counts"] == [
        {"layer": 0, "reason": "CHECKSUM_MISMATCH", "group": "full", "count": 1}
    ]
    [event] = found["items"]
    assert (event["type"], event["group"], event["page"]) == ("VALIDATION_FAILED", "full", slot)


def test_what_an_operator_withdrew_is_shown_too(api: Served) -> None:
    call = api.cache._call
    row = next(row for row in api.every("/v1/blocks", group="full", state="SEALED"))
    words = np.array([int(Reason.OPERATOR), 0, 0, 0], dtype=np.int64)
    call.run(quarantine, call.arena, call.ring, 0, row["page"], row["generation"], words)
    api.catch_up()
    assert api.get("/v1/failures")["counts"][0]["reason"] == "OPERATOR"
    assert api.client.get("/metrics").status_code == 200


def test_drift_tells_of_tables_bytes_and_numbers(api: Served) -> None:
    api.cache.log_digest()
    api.cache.scrub(1 << 20)
    api.catch_up()
    found = api.get("/v1/drift")
    assert found["projection"]["num_equal"] >= 1
    assert found["projection"]["found"] == []
    assert found["bytes"]["scrubbed_pages"] > 0
    api.follower.arena[40] += 1  # a table's word changed behind the log
    api.cache.log_digest()
    api.cache.flush()
    api.follower.step()
    drift = api.get("/v1/drift")["projection"]
    assert drift["num_different"] >= 1
    assert drift["found"][0]["last_seqno"] >= drift["found"][0]["first_seqno"] > 0


def test_admission_and_recovery_are_told(quiet: Served) -> None:
    assert quiet.get("/v1/admission")["num_requests"] == 4
    found = quiet.get("/v1/recovery")
    assert found["position"]["lag_events"] == 0
    assert found["status"]["incarnation"] == 1
    assert found["status"]["is_writer_alive"]
    assert [event["type"] for event in found["events"]][-1] == "MANAGER_OPENED"


def test_the_log_lists_its_files(quiet: Served) -> None:
    quiet.app.state.keeper.look()
    found = quiet.get("/v1/log")
    assert found["segments"][0]["first_seqno"] == 1
    assert found["segments"][-1]["is_here"]
    assert found["log_id"] == quiet.get("/v1/layout")["log_id"]


def test_queries_can_be_asked(quiet: Served) -> None:
    names = {query["name"] for query in quiet.get("/v1/queries")["items"]}
    assert "failures" in names
    for name in sorted(names):
        query = next(one for one in quiet.get("/v1/queries")["items"] if one["name"] == name)
        answer = quiet.client.get(f"/v1/queries/{name}")
        assert answer.status_code in (200, 422), answer.text
        if answer.status_code == 200:
            assert answer.json()["columns"] == query["columns"]
    assert quiet.client.get("/v1/queries/nothing").status_code == 404
    assert quiet.client.get("/v1/queries/activity", params={"nothing": 1}).status_code == 422


def test_why_a_prompt_hits_is_explained_and_its_tokens_are_nowhere(
    quiet: Served, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = request("text", 100)
    tokens = wanted.tokens.tolist()
    found = quiet.client.post("/v1/explain", json={"tokens": tokens, "model": "m"}).json()
    assert found["resume_at"] == quiet.cache.match(wanted).resume_at
    assert found["prompt_tokens"] == 100
    same = quiet.client.post("/v1/explain", json={"tokens": tokens}).json()
    assert same["resume_at"] == found["resume_at"]
    cold = quiet.client.post("/v1/explain", json={"tokens": tokens, "model": "x"}).json()
    assert cold["resume_at"] == 0
    secret = 987654
    bad = quiet.client.post("/v1/explain", json={"tokens": [secret, "x", -secret], "model": "m"})
    assert bad.status_code == 422
    assert str(secret) not in bad.text
    assert str(secret) not in caplog.text


def test_metrics_are_those_of_the_exporter(quiet: Served) -> None:
    text = quiet.client.get("/metrics").text
    assert "kvcache_pool_pages{" in text
    for pool in quiet.get("/v1/pools")["items"]:
        assert f'pool="{pool["group"]}"' in text


def test_it_is_well_and_ready(quiet: Served) -> None:
    assert quiet.get("/healthz") == {"status": "ok"}
    assert quiet.get("/readyz")["is_ready"]


def test_every_alert_s_runbook_is_served(quiet: Served) -> None:
    from kvstrata.dashboard.alerts import ALERTS, runbook

    for name in ALERTS:
        answer = quiet.client.get(f"/runbooks/{name}")
        assert answer.status_code == 200
        assert answer.text == runbook(name)
    assert quiet.client.get("/runbooks/Nothing").status_code == 404
