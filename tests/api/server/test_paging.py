"""Cursor pages: every row once while the log grows, and no other cursor than one's own."""

from __future__ import annotations

import pytest

from kvstrata.api.server.cursors import decode_cursor, encode_cursor
from kvstrata.api.server.problems import Problem
from tests.api.server.support import Served
from tests.face.support import request, serve


def test_every_page_is_given_once_while_the_log_grows(api: Served) -> None:
    steady = {(row["group"], row["page"]) for row in api.every("/v1/blocks") if row["references"]}
    seen: list[tuple[str, int]] = []
    cursor: str | None = None
    number = 0
    while True:
        answer = api.get("/v1/blocks", limit=3, **({"cursor": cursor} if cursor else {}))
        seen += [(row["group"], row["page"]) for row in answer["items"]]
        serve(api.cache, request(f"grows {number}", 90))
        api.catch_up()
        number += 1
        cursor = answer["next"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen))
    assert steady <= set(seen)
    assert number > 5


def test_every_event_is_given_once_while_the_log_grows(api: Served) -> None:
    seen: list[int] = []
    answer = api.get("/v1/events", limit=10)
    for number in range(40):
        seen += [event["seqno"] for event in answer["items"]]
        if number < 5:
            serve(api.cache, request(f"grows {number}", 40))
            api.catch_up()
        elif not answer["items"]:
            break
        answer = api.get("/v1/events", limit=10, cursor=answer["next"])
    assert seen == list(range(1, answer["durable_seqno"] + 1))


def test_a_cursor_of_another_question_is_refused(quiet: Served) -> None:
    cursor = quiet.get("/v1/blocks", limit=1)["next"]
    for path, parameters in (
        ("/v1/blocks", {"group": "swa"}),
        ("/v1/blocks", {"state": "SEALED"}),
        ("/v1/events", {}),
        ("/v1/sequences", {}),
        ("/v1/failures", {}),
        ("/v1/commands", {}),
        ("/v1/incidents", {}),
        ("/v1/audit", {}),
        ("/v1/tiers/objects", {}),
        ("/v1/blocks/full/1/history", {}),
    ):
        answer = quiet.client.get(path, params={**parameters, "cursor": cursor})
        assert answer.status_code == 409, path
        assert "begin without a cursor" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("cursor", "status"),
    [("x", 422), ("", 422), ("A" * 22, 409), ("é" * 22, 422), ("A" * 5000, 422), ("../../x", 422)],
)
def test_a_cursor_that_is_none_is_refused(quiet: Served, cursor: str, status: int) -> None:
    answer = quiet.client.get("/v1/blocks", params={"cursor": cursor})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("place", [0, 1, 2**40, 2**63 - 1])
def test_a_cursor_comes_back_as_it_was(place: int) -> None:
    cursor = encode_cursor(place, "question")
    assert decode_cursor(cursor, "question") == place
    with pytest.raises(Problem):
        decode_cursor(cursor, "another")
    for index in range(len(cursor) - 1):
        changed = cursor[:index] + ("A" if cursor[index] != "A" else "B") + cursor[index + 1 :]
        with pytest.raises(Problem):
            decode_cursor(changed, "question")


def test_limits_are_kept(quiet: Served) -> None:
    assert quiet.client.get("/v1/blocks", params={"limit": 0}).status_code == 422
    assert quiet.client.get("/v1/blocks", params={"limit": 1001}).status_code == 422
    assert len(quiet.get("/v1/blocks", limit=2)["items"]) == 2


def test_a_cursor_made_up_beyond_all_rows_is_refused(quiet: Served) -> None:
    log_id = quiet.get("/v1/log")["log_id"]
    for place in (2**63, 2**64 - 1):
        made_up = encode_cursor(place, f"{log_id} commands None")
        assert quiet.client.get("/v1/commands", params={"cursor": made_up}).status_code == 409
