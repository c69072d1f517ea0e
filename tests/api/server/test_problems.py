"""Errors: one shape for all, limits that hold, and a server that goes on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kvstrata.api.server.gate import Buckets
from kvstrata.api.server.settings import ServerSettings
from kvstrata.core.errors import ConfigError
from tests.api.server.support import HERE, Served, served
from tests.face.support import Place


def check_problem(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == status
    assert found["type"].startswith("urn:kvstrata:problem:")
    assert found["title"]
    assert set(found) <= {"type", "title", "status", "detail", "errors"}
    return str(found["detail"])


def test_every_error_has_one_shape(quiet: Served) -> None:
    client = quiet.client
    check_problem(client.get("/nothing"), 404)
    check_problem(client.get("/v1/pools/"), 404)
    check_problem(client.get("/v1/blocks/full/40"), 404)
    check_problem(client.get("/v1/commands/9"), 404)
    answer = client.put("/v1/pools")
    check_problem(answer, 405)
    assert answer.headers["allow"] == "GET"
    check_problem(client.get("/v1/blocks", params={"limit": "many"}), 422)
    check_problem(client.post("/v1/commands", content=b"{"), 422)
    check_problem(client.post("/v1/commands", json={"kind": "explode"}), 422)
    check_problem(client.post("/v1/commands", json={"kind": "scrub", "more": 1}), 422)
    check_problem(client.get("/v1/blocks", params={"cursor": "A" * 22}), 409)


def test_what_fails_inside_is_500_and_tells_nothing(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr("kvstrata.api.server.views.summaries.pools", fail)
    answer = api.client.get("/v1/pools")
    check_problem(answer, 500)
    assert "secret" not in answer.text
    assert api.get("/healthz") == {"status": "ok"}
    assert api.follower.lock.acquire(timeout=1)  # nobody holds the tables still
    api.follower.lock.release()


def test_a_catalogue_that_is_away_is_503_and_the_rest_goes_on(place: Place, tmp_path: Path) -> None:
    away = f"postgresql+psycopg://ann:secret@/none?host={tmp_path}"
    with served(place, tmp_path, {"catalogue": away}) as api:
        for path in ("/v1/commands", "/v1/incidents", "/v1/audit"):
            detail = check_problem(api.client.get(path), 503)
            assert "start the server, or correct the URL" in detail
            assert "secret" not in detail
        check_problem(api.client.post("/v1/commands", json={"kind": "scrub"}), 503)
        assert api.get("/v1/pools")["items"]
        assert api.get("/v1/log")["segments"]
        api.app.state.keeper.look()
        assert "correct the URL" in api.app.state.keeper.error


def test_a_catalogue_that_hangs_holds_up_nobody_else(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, goes_on = api.app.state.server.catalogue, threading.Event()
    rows = place.get().commands.rows

    def hang(*arguments: Any) -> Any:
        assert goes_on.wait(30)
        return rows(*arguments)

    monkeypatch.setattr(place.get().commands, "rows", hang)
    with ThreadPoolExecutor(60) as pool:
        stuck = [pool.submit(api.client.get, "/v1/commands") for _ in range(50)]
        refused = list(islice(as_completed(stuck, timeout=20), 34))
        assert [one.result().status_code for one in refused] == [503] * 34
        assert api.get("/v1/pools")["items"]
        goes_on.set()
        assert sum(one.result().status_code == 200 for one in stuck) == 16


@pytest.mark.parametrize("size", [1 << 16, 1 << 24])
def test_a_body_that_is_too_large_is_413(place: Place, tmp_path: Path, size: int) -> None:
    with served(place, tmp_path, {"max_body_bytes": 1 << 15}) as api:
        check_problem(api.client.post("/v1/explain", content=b"[" * size), 413)

        def chunks() -> Any:
            for _ in range(64):
                yield b" " * 4096

        check_problem(api.client.post("/v1/explain", content=chunks()), 413)
        assert api.get("/healthz") == {"status": "ok"}


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"tokens": ' + b"[" * 500_000,
        b'{"tokens": [1e999], "model": "m"}',
        b'{"tokens": [' + b"9" * 100_000 + b'], "model": "m"}',
        b'{"tokens": [NaN], "model": "m"}',
        b'{"tokens": [1], "model": "\\ud800"}',
        b'{"tokens": [1], "model": "m", "tokens": [-1]}',
        b"\xff\xfe",
    ],
)
def test_bodies_that_are_meant_ill_are_4xx(quiet: Served, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = quiet.client.post("/v1/explain", content=body, headers=headers)
    check_problem(answer, answer.status_code)
    assert 400 <= answer.status_code < 500, answer.text


def test_a_prompt_that_is_too_long_is_413(place: Place, tmp_path: Path) -> None:
    with served(place, tmp_path, {"max_explain_tokens": 10}) as api:
        answer = api.client.post("/v1/explain", json={"tokens": [1] * 11, "model": "m"})
        assert "at most 10, found 11" in check_problem(answer, 413)


def test_too_many_requests_are_429(place: Place, tmp_path: Path) -> None:
    with served(place, tmp_path, {"requests_per_s": 0.01, "burst": 3}) as api:
        assert [api.client.get("/healthz").status_code for _ in range(4)] == [200, 200, 200, 429]
        answer = api.client.get("/healthz")
        check_problem(answer, 429)
        assert int(answer.headers["retry-after"]) > 1


def test_buckets_fill_again_and_forget_the_oldest() -> None:
    buckets = Buckets(per_s=2.0, burst=2)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.5) == 0.0
    for number in range(20_000):
        buckets.take(str(number), 1.0)
    assert len(buckets._left) == 10_000


def test_commands_that_nobody_takes_do_not_pile_up(place: Place, tmp_path: Path) -> None:
    with served(place, tmp_path, {"max_waiting_commands": 2}) as api:
        statuses = [
            api.client.post("/v1/commands", json={"kind": "scrub"}).status_code for _ in range(3)
        ]
        assert statuses == [202, 202, 429]


def test_queries_do_not_pile_up(api: Served) -> None:
    state = api.app.state.server
    assert all(state.queries.acquire(blocking=False) for _ in range(state.settings.max_queries))
    check_problem(api.client.get("/v1/queries/activity"), 429)
    state.queries.release(state.settings.max_queries)
    api.get("/v1/queries/activity")


@pytest.mark.parametrize(
    "path",
    [
        "/../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/v1/blocks/..%2f..%2fetc/1",
        "/v1/blocks/full/..%2f1",
        "/v1/blocks/full/%00",
        "/v1/queries/..%2fstart",
        "/v1/queries/__init__",
        "/v1/segments/%2e%2e",
        "/v1/segments/" + "a" * 10_000,
        "/v1/commands/-1",
        "/v1/commands/9999999999999999999999",
        "/v1/blocks/full/99999999999999999999",
        "/page.html",
        "/static/../page.py",
    ],
)
def test_no_path_leads_out(quiet: Served, path: str) -> None:
    answer = quiet.client.get(path)
    assert answer.status_code in (404, 422), answer.text
    assert "root:" not in answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_before_there_is_a_log_it_is_not_ready(tmp_path: Path) -> None:
    from fastapi.testclient import TestClient

    from kvstrata.api.server.app import create_app
    from kvstrata.eventstore.history.follower import Follower

    with Follower(tmp_path / "none", shared_memory_root=tmp_path) as follower:
        app = create_app(follower, ServerSettings())
        with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code == 503
            assert client.get("/").status_code == 200
            for path, operations in app.openapi()["paths"].items():
                if path.startswith("/v1/") and "get" in operations:
                    url = path.format(group="full", page=1, key="0" * 32, name="x", number=1)
                    assert client.get(url).status_code in (404, 503), path


# settings


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "example.org", "::", ""])
def test_another_address_needs_tokens(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a loopback address"):
        ServerSettings(host=host)
    ServerSettings(host=host, token_file=tmp_path)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "[::1]"])
def test_the_loopback_needs_none(host: str) -> None:
    assert ServerSettings(host=host).host == host


@pytest.mark.parametrize(
    "setting",
    [
        {"port": -1},
        {"port": 70_000},
        {"max_body_bytes": 0},
        {"burst": 0},
        {"max_limit": 0},
        {"scan_events": 0},
        {"max_explain_tokens": 0},
        {"max_streams": 0},
        {"max_queries": 0},
        {"query_memory_mb": 0},
        {"max_waiting_commands": 0},
        {"requests_per_s": 0.0},
        {"body_timeout_s": 0.0},
        {"stream_max_s": 0.0},
        {"ready_lag_s": 0.0},
    ],
)
def test_settings_that_cannot_be_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        ServerSettings(**setting)
