"""A small engine, a follower of its log, and the API over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from kvstrata import CacheManager
from kvstrata.api.server.app import create_app
from kvstrata.api.server.settings import ServerSettings
from kvstrata.eventstore.history.catalogue import CatalogueCommands
from kvstrata.eventstore.history.follower import Follower
from tests.face.support import Place, prefill, request, serve

HERE = "http://127.0.0.1:8420"
VIEWER, OPERATOR = "v" * 24, "o" * 24
TOKENS = f"# roles, names, tokens\nviewer vera {VIEWER}\noperator otto {OPERATOR}  # night shift\n"


@dataclass
class Served:
    """An engine and the API over its log."""

    place: Place
    cache: CacheManager
    follower: Follower
    app: FastAPI
    client: TestClient
    catalogue_url: str

    def get(self, path: str, **parameters: Any) -> Any:
        """A good answer, as JSON."""
        answer = self.client.get(path, params=parameters or None)
        assert answer.status_code == 200, (path, parameters, answer.status_code, answer.text)
        return answer.json()

    def catch_up(self) -> None:
        """Let the follower apply everything that the engine has done."""
        self.cache.flush()
        while self.follower.step():
            pass
        assert self.follower.position().error == ""

    def every(self, path: str, **parameters: Any) -> list[Any]:
        """All rows of a listing, page by page."""
        items: list[Any] = []
        cursor: str | None = None
        while True:
            more = {"cursor": cursor} if cursor else {}
            answer = self.get(path, **parameters, **more)
            items += answer["items"]
            cursor = answer.get("next")
            if not cursor or not answer["items"]:
                return items

    def take_commands(self) -> None:
        """Let the engine follow the catalogue."""
        self.cache.follow_commands(
            CatalogueCommands(self.catalogue_url, self.place.directory), 0.01
        )


def work(cache: CacheManager) -> None:
    """Something of everything: finished, shared, running, leased."""
    serve(cache, request("text", 100), 3)
    serve(cache, request("text", 70))
    serve(cache, request("other", 60))
    prefill(cache, request("third", 50))
    cache.lease(cache.match(request("text", 64)))


@contextmanager
def served(
    place: Place, folder: Path, settings: dict[str, Any] | None = None, *, busy: bool = True
) -> Iterator[Served]:
    """Open an engine with pools, let it work, and serve what its log says."""
    url = f"sqlite:///{folder / 'catalogue.sqlite'}"
    given = ServerSettings(
        **({"catalogue": url, "requests_per_s": 1e6, "burst": 1_000_000} | (settings or {}))
    )
    with place.open("private") as cache:
        if busy:
            work(cache)
        cache.flush()
        with Follower(place.directory, shared_memory_root=place.shared) as follower:
            while follower.step():
                pass
            app = create_app(follower, given, place.shared)
            with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
                yield Served(place, cache, follower, app, client, url)
