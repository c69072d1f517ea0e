"""A Prometheus, an Alertmanager and a webhook, started for the tests."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstrata.dashboard.alerts import JOB, TimeScale, alerting_rules, recording_rules
from tests.processes import free_port
from tests.services import need

SCALE = TimeScale(1 / 120, least_window_s=5.0, evaluation="500ms")
SCRAPE = "1s"
START_S = 30.0
STOP_S = 10.0


def programs() -> dict[str, str]:
    """Where Prometheus and Alertmanager are."""
    found = {}
    for name, packages in {
        "prometheus": ("prometheus",),
        "alertmanager": ("prometheus-alertmanager", "alertmanager"),
    }.items():
        path = next((path for path in map(shutil.which, packages) if path is not None), None)
        if path is None:
            need(name.capitalize(), packages[0])
        found[name] = path
    return found


def until(what: str, holds: Callable[[], bool], timeout_s: float = 30.0) -> float:
    """Wait for something; the seconds it took."""
    began_s = time.monotonic()
    while not holds():
        if time.monotonic() - began_s > timeout_s:
            pytest.fail(f"expected {what} within {timeout_s:.0f} s, found it not")
        time.sleep(0.05)
    return time.monotonic() - began_s


class Webhook:
    """What Alertmanager told: by alert, whether it fires."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.told: list[dict[str, Any]] = []
        self._server: ThreadingHTTPServer | None = None

    def take(self, message: dict[str, Any]) -> None:
        for alert in message["alerts"]:
            self.told.append(alert)
            self.states[alert["labels"]["alertname"]] = alert["status"]

    def is_firing(self, name: str) -> bool:
        return self.states.get(name) == "firing"

    def has_fired(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.told if alert["status"] == "firing"}


@contextmanager
def serving(handle: Callable[[BaseHTTPRequestHandler], bytes], port: int) -> Iterator[None]:
    """A small server on a thread: ``handle`` gives the answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = handle(self)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):  # who asked did not wait
                self.wfile.write(answer)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Prometheus:
    """Asks a running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def now(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def over(self, expression: str, since_s: float) -> list[dict[str, Any]]:
        """The series that an expression had at any time since."""
        found: list[dict[str, Any]] = self.get(
            "query_range",
            query=expression,
            start=f"{since_s}",
            end=f"{time.time()}",
            step="500ms",
        )["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


@contextmanager
def stack(folder: Path, target_port: int) -> Iterator[tuple[Prometheus, Webhook]]:
    """Both servers, scraping one target, with the rules on a short scale of time."""
    where = programs()
    ports = {name: free_port() for name in ("webhook", "alertmanager", "prometheus")}
    webhook = Webhook()

    def take(request: BaseHTTPRequestHandler) -> bytes:
        webhook.take(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        return b""

    _write_configuration(folder, target_port, ports)
    alertmanager = [
        where["alertmanager"],
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
        "--cluster.listen-address=",
    ]
    prometheus = [
        where["prometheus"],
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
        "--rules.alert.resend-delay=500ms",
        "--query.lookback-delta=3s",
    ]
    with (
        serving(take, ports["webhook"]),
        _running(alertmanager, folder / "alertmanager.log", ports["alertmanager"]),
        _running(prometheus, folder / "prometheus.log", ports["prometheus"]),
    ):
        yield Prometheus(f"http://127.0.0.1:{ports['prometheus']}"), webhook


def _write_configuration(folder: Path, target_port: int, ports: dict[str, int]) -> None:
    receiver = {
        "name": "webhook",
        "webhook_configs": [
            {"url": f"http://127.0.0.1:{ports['webhook']}/", "send_resolved": True}
        ],
    }
    route = {
        "receiver": "webhook",
        "group_by": ["..."],
        "group_wait": "100ms",
        "group_interval": "500ms",
        "repeat_interval": "1h",
    }
    documents = {
        "alertmanager.yml": {"route": route, "receivers": [receiver]},
        "prometheus.yml": {
            "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCALE.evaluation},
            "rule_files": ["recording.yml", "alerting.yml"],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [f"127.0.0.1:{ports['alertmanager']}"]}]}
                ]
            },
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "scrape_timeout": SCRAPE,
                    "static_configs": [{"targets": [f"127.0.0.1:{target_port}"]}],
                }
            ],
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(yaml.safe_dump(document), encoding="utf-8")
    (folder / "recording.yml").write_text(recording_rules(SCALE), encoding="utf-8")
    (folder / "alerting.yml").write_text(alerting_rules(SCALE), encoding="utf-8")


@contextmanager
def _running(command: list[str], log: Path, port: int) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until(f"{command[0]} to be ready", lambda: _is_ready(process, log, port), START_S)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(process: subprocess.Popen[bytes], log: Path, port: int) -> bool:
    if process.poll() is not None:
        pytest.fail(f"expected a server, found that it ended:\n{log.read_text()}")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
