"""The calls that runbooks name are answered by the API; what they post is what it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from kvstrata.api.server.models.work import CommandRequest, ExplainRequest
from kvstrata.dashboard.alerts import ALERTS, runbook, runbook_url
from kvstrata.eventstore.history.analytics import queries
from tests.api.server.support import HERE, Served, served
from tests.eventstore.support import shared_corner
from tests.face.support import Place, request

RUNS = sorted(
    {
        step.run
        for alert in ALERTS.values()
        for step in (*alert.runbook.diagnosis, *alert.runbook.mitigation)
        if step.run
    }
)
GETS = [run.removeprefix("GET ") for run in RUNS if run.startswith("GET ")]
POSTS = [run.removeprefix("POST ") for run in RUNS if run.startswith("POST ")]
QUERIES = [run.split()[3] for run in RUNS if run.startswith("kvstrata query DIR ")]
NUMBERS = {"PAGE": "3", "GENERATION": "1", "FIRST": "1", "LAST": "9"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        place = Place(corner / "log", corner / "shared")
        with served(place, Path(tmp_path_factory.mktemp("catalogue"))) as found:
            yield found


def test_there_are_calls_of_every_kind() -> None:
    assert len(GETS) >= 10
    assert len(POSTS) >= 5
    assert len(QUERIES) >= 5


@pytest.mark.parametrize("call", GETS)
def test_a_call_is_answered(api: Served, call: str) -> None:
    block = int(api.cache.match(request("text", 64)).blocks[0, 0])
    page = int(api.cache.tables.blocks.pages[block, 0])
    path = call.replace("GROUP", "full").replace("/PAGE", f"/{page}")
    answer = api.client.get(path)
    assert answer.status_code == 200, answer.text


def test_the_api_serves_the_runbooks_that_alerts_lead_to(api: Served) -> None:
    for name in ALERTS:
        address = runbook_url(name, HERE + "/runbooks")
        answer = api.client.get(address.removeprefix(HERE))
        assert answer.status_code == 200
        assert answer.text == runbook(name)


@pytest.mark.parametrize("call", POSTS)
def test_a_command_is_one_that_the_api_takes(call: str) -> None:
    path, _, body = call.partition(" ")
    for word, number in NUMBERS.items():
        body = body.replace(f" {word}", f" {number}")
    body = body.replace("GROUP", "full").replace("KEY", "0" * 32)
    kind = {"/v1/commands": CommandRequest, "/v1/explain": ExplainRequest}[path]
    posted = json.loads(body)
    taken = TypeAdapter(kind).validate_python(posted)
    assert taken.model_dump(mode="json", exclude_unset=True) == posted


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_one_that_there_is(name: str) -> None:
    assert name in {query.name for query in queries()}
