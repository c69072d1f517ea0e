"""Commands over HTTP, through the catalogue and the engine, and back; incidents; the keeper."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import PAGE_GENERATION, POOL_FIRST
from kvstrata.eventstore.commands import CommandKind
from tests.api.server.support import Served
from tests.face.commanded import key_of
from tests.face.support import prefill, request, serve


def ask(api: Served, kind: str, once: str | None = None, **arguments: Any) -> dict[str, Any]:
    headers = {} if once is None else {"Idempotency-Key": once}
    answer = api.client.post("/v1/commands", json={"kind": kind, **arguments}, headers=headers)
    assert answer.status_code in (200, 202), answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/commands/{found['id']}"
    return found


def carried_out(api: Served, number: int) -> dict[str, Any]:
    deadline_s = time.monotonic() + 60
    while True:
        found: dict[str, Any] = api.get(f"/v1/commands/{number}")
        if found["state"] not in ("pending", "taken"):
            api.catch_up()
            return found
        assert time.monotonic() < deadline_s, api.cache.commands_status()
        api.cache.apply_completions()
        time.sleep(0.005)


def test_a_command_goes_to_the_engine_and_back(api: Served) -> None:
    row = next(r for r in api.every("/v1/blocks", group="full", state="SEALED") if r["is_indexed"])
    asked = ask(api, "quarantine", group="full", page=row["page"])
    assert asked["state"] == "pending"
    assert asked["arguments"]["generation"] == row["generation"]
    api.take_commands()
    done = carried_out(api, asked["id"])
    assert (done["state"], done["changed"]) == ("done", 1)
    [event] = api.get("/v1/events", after=done["ended_seqno"] - 1, limit=1)["items"]
    assert event["type"] == "COMMAND_ENDED"
    assert event["payload"]["command"] == asked["id"]
    after = api.get(f"/v1/blocks/full/{row['page']}")
    assert after["state"] in ("QUARANTINED", "FREE")
    trace = [(e["who"], e["action"]) for e in api.get("/v1/audit")["items"]]
    assert trace[:2] == [("engine 1", "quarantine"), ("local", "quarantine")]


def test_every_kind_can_be_asked_for(api: Served) -> None:
    api.take_commands()
    key = key_of(api.cache, request("other", 60), 1)
    arguments: dict[str, dict[str, Any]] = {
        "quarantine": {"group": "full", "page": 1},
        "unquarantine": {"group": "full", "page": 1},
        "drop_prefix": {"key": key},
        "pin": {"key": key},
        "unpin": {"key": key},
        "scrub": {"max_bytes": 1000},
        "snapshot": {},
        "drain": {"drain": False},
        "report_divergence": {"first_seqno": 1, "last_seqno": 2},
    }
    assert set(arguments) == {kind.name.lower() for kind in CommandKind}
    for kind, given in arguments.items():
        assert carried_out(api, ask(api, kind, **given)["id"])["state"] in ("done", "refused")
    assert len(api.every("/v1/commands", limit=2)) == len(arguments)


def test_the_same_key_asks_once(api: Served) -> None:
    first = ask(api, "scrub", once="monday")
    assert ask(api, "scrub", once="monday")["id"] == first["id"]
    conflict = api.client.post(
        "/v1/commands", json={"kind": "drain"}, headers={"Idempotency-Key": "monday"}
    )
    assert conflict.status_code == 409


def test_a_page_asked_for_under_a_key_is_the_one_that_is_there_now(api: Served) -> None:
    row = next(r for r in api.every("/v1/blocks", group="full", state="SEALED") if r["is_indexed"])
    page = {"group": "full", "page": row["page"]}
    first = ask(api, "quarantine", once="tuesday", **page)
    assert first["arguments"]["generation"] == row["generation"]
    with api.follower.lock:  # it holds something else by the time it is asked for again
        tables = api.follower.tables
        first_page = int(tables.pools[api.cache.layout.group_id("full"), POOL_FIRST])
        tables.pages[first_page + row["page"], PAGE_GENERATION] += 1
    assert ask(api, "quarantine", once="tuesday", **page) == first
    for other in ({"page": row["page"] + 1}, {"generation": row["generation"] + 1}):
        body = {"kind": "quarantine", **page, **other}
        answer = api.client.post("/v1/commands", json=body, headers={"Idempotency-Key": "tuesday"})
        assert answer.status_code == 409


def test_what_the_pool_does_not_have_cannot_be_asked_for(api: Served) -> None:
    for body in (
        {"kind": "quarantine", "group": "none", "page": 1},
        {"kind": "quarantine", "group": "full", "page": 4000},
    ):
        assert api.client.post("/v1/commands", json=body).status_code == 404


# incidents


def test_an_incident_is_worked_on(api: Served) -> None:
    answer = api.client.post("/v1/incidents", json={"subject": "rack 3", "what": "fans are loud"})
    assert answer.status_code == 201
    number = answer.json()["id"]
    assert answer.headers["location"] == f"/v1/incidents/{number}"
    assert api.client.post(f"/v1/incidents/{number}/acknowledge").json()["state"] == "acknowledged"
    noted = api.client.post(f"/v1/incidents/{number}/notes", json={"text": "replaced"})
    assert noted.status_code == 201
    assert [note["text"] for note in noted.json()["notes"]] == ["replaced"]
    assert api.client.post(f"/v1/incidents/{number}/resolve").json()["resolved_by"] == "local"
    assert api.client.post(f"/v1/incidents/{number}/acknowledge").status_code == 409
    assert api.get("/v1/incidents", state="open")["items"] == []
    assert api.get("/v1/incidents", kind="manual")["items"][0]["id"] == number
    assert api.client.post("/v1/incidents/99/notes", json={"text": "x"}).status_code == 404


def test_bytes_that_drifted_open_an_incident(api: Served) -> None:
    sequence = prefill(api.cache, request("bad", 40))
    slot = int(api.cache.block_slots(sequence, "full")[0])
    sequence.finish()
    assert api.cache.pools is not None
    api.cache.pools.storage("full")[slot, 0] += 1
    api.cache.scrub(1 << 20)
    api.catch_up()
    api.app.state.keeper.look()
    [incident] = api.get("/v1/incidents", kind="byte_drift")["items"]
    assert (incident["subject"], incident["state"]) == ("full", "open")
    assert f"full page {slot}" in incident["what"]
    api.app.state.keeper.look()
    assert len(api.get("/v1/incidents")["items"]) == 1


def test_tables_that_drifted_open_an_incident_and_tell_the_engine(api: Served) -> None:
    api.follower.arena[40] += 1
    api.cache.log_digest()
    api.cache.flush()
    api.follower.step()
    api.app.state.keeper.look()
    incident = api.get("/v1/incidents", kind="projection_drift")["items"][0]
    assert incident["opened_by"] == "drift"
    commands = api.get("/v1/commands")["items"]
    assert {command["kind"] for command in commands} == {"report_divergence"}
    assert commands[0]["who"] == "follower"
    api.take_commands()
    assert carried_out(api, commands[0]["id"])["state"] == "done"
    [event] = api.get("/v1/events", type="DIVERGENCE_REPORTED")["items"]
    assert event["reason"] == "DRIFTED"


def test_numbers_that_drifted_open_an_incident(api: Served) -> None:
    words = np.zeros(4, dtype=np.int64)
    words[0] = np.array([0.5]).view(np.int64)[0]
    words[1] = np.array([0.99]).view(np.int64)[0]
    words[2] = 1 | 16 << 32
    words[3] = np.array([0.01]).view(np.int64)[0]
    api.cache._call.note(EventType.NUMERIC_DRIFT, words, int(Reason.DRIFTED), 0, 5)
    api.catch_up()
    api.app.state.keeper.look()
    [incident] = api.get("/v1/incidents", kind="numeric_drift")["items"]
    assert incident["subject"] == "full layer 1"
    assert "more than the tolerance of 0.01" in incident["what"]
    assert api.get("/v1/drift")["numeric"][0]["num_drifted"] == 1


def test_a_log_that_is_not_kept_opens_an_incident(api: Served) -> None:
    assert api.cache.log is not None
    api.cache.log.end_epoch("a test")
    api.app.state.keeper.look()
    [incident] = api.get("/v1/incidents", kind="log")["items"]
    assert incident["subject"] == "unlogged"
    assert api.get("/v1/recovery")["status"]["is_unlogged"]


def test_what_is_found_while_the_catalogue_is_away_is_not_lost(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvstrata.core.errors import StoreError

    state = api.app.state.server

    def away() -> None:
        raise StoreError("the database is away")

    sequence = prefill(api.cache, request("bad", 40))
    slot = int(api.cache.block_slots(sequence, "full")[0])
    sequence.finish()
    assert api.cache.pools is not None
    api.cache.pools.storage("full")[slot, 0] += 1
    with monkeypatch.context() as patch:
        patch.setattr(state.catalogue, "get", away)
        api.cache.scrub(1 << 20)
        serve(api.cache, request("bad", 40))
        api.catch_up()
        api.app.state.keeper.look()
        assert api.app.state.keeper.error == "the database is away"
    api.app.state.keeper.look()
    assert len(api.get("/v1/incidents", kind="byte_drift")["items"]) == 1
