"""Who may do what: every route with no token, a wrong one, a viewer's and an operator's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from kvstrata.api.server.access import Access, Role
from kvstrata.api.server.gate import OPEN_PATHS
from kvstrata.api.server.routes import blocks, cache, events, health, observe, work
from kvstrata.core.errors import ConfigError
from tests.api.server.support import HERE, OPERATOR, TOKENS, VIEWER, Served, served
from tests.face.support import Place

OPERATORS_ONLY = {
    ("POST", "/v1/commands"),
    ("POST", "/v1/incidents"),
    ("POST", "/v1/incidents/{number}/acknowledge"),
    ("POST", "/v1/incidents/{number}/resolve"),
    ("POST", "/v1/incidents/{number}/notes"),
    ("GET", "/v1/audit"),
}
BODIES = {
    "/v1/commands": {"kind": "scrub"},
    "/v1/explain": {"tokens": [1], "model": "m"},
    "/v1/incidents": {"subject": "s", "what": "w"},
    "/v1/incidents/{number}/notes": {"text": "t"},
}
VALUES = {"group": "full", "page": "1", "key": "0" * 32, "name": "activity", "number": "1"}
ANSWERED = (200, 201, 202, 404)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from tests.eventstore.support import shared_corner

    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens"
    tokens.write_text(TOKENS)
    with shared_corner() as corner:
        (corner / "shared").mkdir()
        place = Place(corner / "log", corner / "shared")
        with served(place, folder, {"token_file": tokens, "stream_max_s": 0.05}) as found:
            yield found


def routes(api: Served) -> list[tuple[str, str]]:
    found = []
    for path, operations in api.app.openapi()["paths"].items():
        found += [(method.upper(), path) for method in operations]
    assert len(found) > 30
    return found


def ask(api: Served, method: str, path: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = path.format(**VALUES)
    return api.client.request(
        method, url, headers=headers, json=BODIES.get(path) if method == "POST" else None
    ).status_code


def test_every_route_with_every_kind_of_token(guarded: Served) -> None:
    for method, path in routes(guarded):
        is_open = path in OPEN_PATHS
        only = (method, path) in OPERATORS_ONLY
        assert (ask(guarded, method, path, None) == 401) is not is_open, (method, path)
        assert (ask(guarded, method, path, "w" * 24) == 401) is not is_open, (method, path)
        viewer = ask(guarded, method, path, VIEWER)
        assert (viewer == 403) is only, (method, path, viewer)
        operator = ask(guarded, method, path, OPERATOR)
        assert operator in ANSWERED, (method, path, operator)
        if not only:
            assert viewer in ANSWERED, (method, path, viewer)


def test_the_matrix_knows_every_route(guarded: Served) -> None:
    declared = {
        (method, route.path)
        for module in (blocks, cache, events, health, observe, work)
        for route in module.router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    assert declared == set(routes(guarded))
    assert declared >= OPERATORS_ONLY


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", f"Basic {OPERATOR}", OPERATOR, f"Bearer {OPERATOR}x", "Bearer \xff"],
)
def test_only_a_bearer_token_counts(guarded: Served, header: str) -> None:
    answer = guarded.client.get(
        "/v1/pools",
        headers={"Authorization": header.encode("latin-1")},  # type: ignore[dict-item]
    )
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_unknown_path_tells_strangers_nothing(guarded: Served) -> None:
    assert guarded.client.get("/v1/nothing").status_code == 401


def test_strangers_cannot_make_the_server_parse(guarded: Served) -> None:
    answer = guarded.client.post("/v1/explain", content=b"{" * 1000)
    assert answer.status_code == 401


def test_what_a_viewer_asked_for_in_vain_is_audited(guarded: Served) -> None:
    ask(guarded, "POST", "/v1/commands", VIEWER)
    bearer = {"Authorization": f"Bearer {OPERATOR}"}
    newest = guarded.client.get("/v1/audit", headers=bearer).json()["items"][0]
    assert (newest["who"], newest["role"], newest["outcome"]) == ("vera", "viewer", "forbidden")
    assert newest["action"] == "POST /v1/commands"


def test_mounted_below_another_app_it_is_guarded_the_same(guarded: Served) -> None:
    outer = FastAPI()
    outer.mount("/cache", guarded.app)
    with TestClient(outer, base_url=HERE) as client:
        bearer = {"Authorization": f"Bearer {VIEWER}"}
        assert client.get("/cache/healthz").status_code == 200
        assert client.get("/cache/").headers["content-type"].startswith("text/html")
        assert client.get("/cache/v1/pools").status_code == 401
        assert client.get("/cache/v1/pools", headers=bearer).status_code == 200
        wrong = client.get("/cache/v1/pools", params={"nothing": 1}, headers=bearer)
        assert wrong.status_code == 422
        refused = client.post("/cache/v1/commands", json={"kind": "scrub"}, headers=bearer)
        assert refused.status_code == 403
        assert refused.headers["content-type"] == "application/problem+json"


# the token file


def test_tokens_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(TOKENS)
    access = Access.read(file)
    found = access.who(f"Bearer {VIEWER}")
    assert found is not None
    assert (found.name, found.role) == ("vera", Role.VIEWER)
    assert access.who(f"bearer {OPERATOR}") is not None
    assert access.who(None) is None
    assert VIEWER not in repr(vars(access))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "at least one token"),
        ("# nothing\n", "at least one token"),
        ("viewer vera\n", "ROLE NAME TOKEN, found 2 words"),
        (f"root vera {VIEWER}\n", "the role viewer or operator"),
        (f"viewer ve/ra {VIEWER}\n", "a name of letters"),
        ("viewer vera short\n", "at least 16 characters, found 5"),
        (f"viewer a {VIEWER}\nviewer b {VIEWER}\n", "of one use each"),
        (f"viewer a {VIEWER}\nviewer a {OPERATOR}\n", "of one use each"),
    ],
)
def test_a_token_file_that_is_wrong_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(ConfigError, match=expected) as hit:
        Access.read(file)
    assert VIEWER not in str(hit.value)


def test_a_token_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Access.read(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="expected a readable text"):
        Access.read(tmp_path / "binary")


# without tokens


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8420"}, 202),
        ({"Host": "localhost"}, 202),
        ({"Host": "[::1]:8420"}, 202),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost:x]["}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:8420"}, 202),
    ],
)
def test_other_web_pages_cannot_use_a_reader_s_browser(
    quiet: Served, headers: dict[str, str], status: int
) -> None:
    answer = quiet.client.post("/v1/commands", json={"kind": "scrub"}, headers=headers)
    assert answer.status_code == status, answer.text
