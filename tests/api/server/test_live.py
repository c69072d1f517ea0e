"""The server itself, on a socket: tails, slow clients, and the command that runs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvstrata import CacheManager
from kvstrata.api.server import serving
from kvstrata.api.server.serving import open_server
from kvstrata.api.server.settings import ServerSettings
from kvstrata.core.errors import ConfigError
from tests.api.server.support import OPERATOR, TOKENS, work
from tests.face.support import Place, request, serve
from tests.processes import KVSTRATA


@dataclass
class Live:
    """An engine, and a server beside it that listens."""

    place: Place
    cache: CacheManager
    url: str
    port: int
    app: Any


@contextmanager
def live(place: Place, folder: Path, **settings: Any) -> Iterator[Live]:
    given = {"port": 0, "catalogue": f"sqlite:///{folder / 'catalogue.sqlite'}"} | settings
    with place.open("private") as cache:
        work(cache)
        cache.flush()
        with open_server(place.directory, ServerSettings(**given), place.shared) as server:
            ports: list[int] = []
            listens = threading.Event()

            def says(port: int) -> None:
                ports.append(port)
                listens.set()

            # Signals are the main thread's; uvicorn leaves them alone on others.
            thread = threading.Thread(target=server.run, args=(says,), daemon=True)
            thread.start()
            assert listens.wait(30)
            url = f"http://127.0.0.1:{ports[0]}"
            try:
                yield Live(place, cache, url, ports[0], server.app)
            finally:
                server.stop()
                thread.join(30)
                assert not thread.is_alive()


def events_of(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    seqno = 0
    for line in lines:
        if line.startswith("id: "):
            seqno = int(line[4:])
        elif line.startswith("data: "):
            found.append(json.loads(line[6:]))
            assert found[-1]["seqno"] == seqno
            if len(found) == count:
                break
    return found


def test_a_tail_begins_behind_the_last_event_that_was_seen(place: Place, tmp_path: Path) -> None:
    with live(place, tmp_path) as here:
        headers = {"Last-Event-ID": "5"}
        with httpx.stream("GET", f"{here.url}/v1/events/stream", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            found = events_of(answer.iter_lines(), 10)
        assert [event["seqno"] for event in found] == list(range(6, 16))


def test_a_tail_shows_what_happens_next_and_only_once_it_is_durable(
    place: Place, tmp_path: Path
) -> None:
    with live(place, tmp_path) as here:
        assert here.cache.log is not None
        url = f"{here.url}/v1/events/stream?type=SEQUENCE_BEGUN"
        with httpx.stream("GET", url, timeout=30) as answer:
            time.sleep(0.3)
            serve(here.cache, request("next", 40))
            [event] = events_of(answer.iter_lines(), 1)
        assert event["type"] == "SEQUENCE_BEGUN"
        assert event["seqno"] <= here.cache.log.status().durable


def test_a_tail_behind_an_event_of_another_log_begins_with_the_next_one(
    place: Place, tmp_path: Path
) -> None:
    with live(place, tmp_path) as here:
        url, headers = f"{here.url}/v1/events/stream", {"Last-Event-ID": "999999999999999"}
        with httpx.stream("GET", url, headers=headers, timeout=10) as answer:
            time.sleep(0.3)
            serve(here.cache, request("next", 40))
            here.cache.flush()
            found = events_of(answer.iter_lines(), 3)
        first = found[0]["seqno"]
        assert [event["seqno"] for event in found] == [first, first + 1, first + 2]


def test_there_are_so_many_tails_and_no_more(place: Place, tmp_path: Path) -> None:
    with live(place, tmp_path, max_streams=1) as here:
        url = f"{here.url}/v1/events/stream"
        with httpx.stream("GET", url, headers={"Last-Event-ID": "0"}) as answer:
            lines = answer.iter_lines()  # held on to: the connection ends with it
            assert events_of(lines, 1)
            assert httpx.get(url).status_code == 429
        deadline_s = time.monotonic() + 10
        while True:  # the place is given back once the server sees that the client left
            with httpx.stream("GET", url, headers={"Last-Event-ID": "0"}) as answer:
                if answer.status_code == 200:
                    break
            assert time.monotonic() < deadline_s
            time.sleep(0.05)


def test_a_tail_ends_after_a_while(place: Place, tmp_path: Path) -> None:
    with live(place, tmp_path, stream_max_s=0.3) as here:
        answer = httpx.get(f"{here.url}/v1/events/stream", headers={"Last-Event-ID": "0"})
        assert answer.text.count("data: ") == here.cache.stats().last_seqno


def test_clients_that_say_nothing_are_let_go(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_HEADER_TIMEOUT_S", 0.3)
    with live(place, tmp_path) as here:
        silent = [socket.create_connection(("127.0.0.1", here.port)) for _ in range(50)]
        for number, each in enumerate(silent):
            if number % 2:
                each.sendall(b"GET /v1/pools HTTP/1.1\r\nHost: 127.0.0.1\r\n")  # never ended
        assert httpx.get(f"{here.url}/healthz").status_code == 200
        for each in silent:
            each.settimeout(10)
            assert each.recv(1000) == b""  # the server has ended it
            each.close()


def test_a_body_that_never_comes_is_408(place: Place, tmp_path: Path) -> None:
    with live(place, tmp_path, body_timeout_s=0.2) as here:
        with socket.create_connection(("127.0.0.1", here.port)) as slow:
            slow.sendall(
                b"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
            )
            slow.settimeout(10)
            assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert httpx.get(f"{here.url}/v1/pools").status_code == 200


def test_clients_that_do_not_read_hold_nobody_up(place: Place, tmp_path: Path) -> None:
    with live(place, tmp_path) as here:
        deaf = [socket.create_connection(("127.0.0.1", here.port)) for _ in range(10)]
        for each in deaf:
            each.sendall(
                b"GET /v1/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: 0\r\n\r\n"
            )
        before = here.cache.stats().last_seqno
        for number in range(5):
            serve(here.cache, request(f"goes on {number}", 60))
        assert here.cache.stats().last_seqno > before
        began_s = time.monotonic()
        assert httpx.get(f"{here.url}/v1/blocks").status_code == 200
        assert time.monotonic() - began_s < 2
        for each in deaf:
            each.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\xff\xfe junk\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 1_000_000,
        b"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
)
def test_what_is_no_request_is_4xx(place: Place, tmp_path: Path, junk: bytes) -> None:
    with live(place, tmp_path, body_timeout_s=1.0) as here:
        with socket.create_connection(("127.0.0.1", here.port)) as other:
            other.sendall(junk)
            other.settimeout(15)
            answer = other.recv(1000)
        assert answer[:10] == b"HTTP/1.1 4" or answer == b"", answer
        assert httpx.get(f"{here.url}/healthz").status_code == 200


def test_an_address_that_is_taken_is_said(place: Place, tmp_path: Path) -> None:
    with live(place, tmp_path) as here:
        settings = ServerSettings(port=here.port, catalogue=f"sqlite:///{tmp_path / 'other'}")
        with (
            open_server(place.directory, settings, place.shared) as second,
            pytest.raises(ConfigError, match="expected to listen on"),
        ):
            second.run()


def test_the_command_serves_until_it_is_told_to_end(place: Place, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    with place.open("private") as cache:
        work(cache)
        cache.flush()
        command = [
            *KVSTRATA,
            *("serve", str(place.directory), "--port", "0", "--token-file", str(tokens)),
            *("--shared-memory-root", str(place.shared), "--json"),
            *("--catalogue", f"sqlite:///{tmp_path / 'catalogue.sqlite'}"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                said = json.loads(process.stdout.readline())
                assert said["has_log"]
                bearer = {"Authorization": f"Bearer {OPERATOR}"}
                assert httpx.get(said["url"] + "v1/pools").status_code == 401
                deadline_s = time.monotonic() + 30
                while httpx.get(said["url"] + "readyz").status_code != 200:
                    assert time.monotonic() < deadline_s
                    time.sleep(0.05)
                found = httpx.get(said["url"] + "v1/pools", headers=bearer)
                assert found.json()["items"][0]["pages"]["SEALED"] > 0
            finally:
                os.kill(process.pid, signal.SIGTERM)
            assert process.wait(30) in (0, -signal.SIGTERM)


def test_the_command_refuses_another_address_without_tokens(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from kvstrata.api.cli import app

    found = CliRunner().invoke(app, ["serve", str(tmp_path), "--host", "0.0.0.0"])
    assert found.exit_code == 2
    assert "give --token-file" in found.stderr


def test_a_log_that_comes_later_is_waited_for(place: Place, tmp_path: Path) -> None:
    settings = ServerSettings(port=0, catalogue=f"sqlite:///{tmp_path / 'catalogue.sqlite'}")
    with open_server(place.directory, settings, place.shared) as server:
        ports: list[int] = []
        thread = threading.Thread(target=server.run, args=(ports.append,), daemon=True)
        thread.start()
        deadline_s = time.monotonic() + 30
        while not ports:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        url = f"http://127.0.0.1:{ports[0]}"
        assert httpx.get(f"{url}/readyz").status_code == 503
        assert httpx.get(f"{url}/v1/pools").status_code == 503
        with place.open("private") as cache:
            work(cache)
            cache.flush()
            while httpx.get(f"{url}/v1/sequences").status_code != 200:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            while not httpx.get(f"{url}/v1/sequences").json()["items"]:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            answer = httpx.get(f"{url}/v1/events", params={"limit": 1}).json()
            assert answer["items"][0]["seqno"] == 1
        server.stop()
        thread.join(30)
    assert (place.directory.parent / "log.follower").is_file()


def test_where_nothing_may_be_written_counts_are_not_kept(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    place.open().close()
    settings = ServerSettings(catalogue=f"sqlite:///{tmp_path / 'catalogue.sqlite'}")
    with open_server(place.directory, settings, place.shared) as server:
        while server.follower.step():
            pass
    assert not (place.directory.parent / "log.follower").exists()
