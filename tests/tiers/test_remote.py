"""A bucket as a store: credentials, servers that fail, hang, go away and come back."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import Reason
from kvstrata.tiers.format import Header
from kvstrata.tiers.remote import RemoteStore
from kvstrata.tiers.store import StoreFault

from .support import (
    BUCKET,
    SCHEMA,
    S3Server,
    block_id,
    buffers_of,
    load,
    make_object,
    put_object,
    s3_environment,
    s3_server,
)

NAME = SCHEMA.object_name(block_id(1))
SHORT_S = 0.4
# What a test machine may add to a bound.
SLACK_S = 4.0


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this machine's variables nor its profiles."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def use(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in s3_environment(endpoint).items():
        monkeypatch.setenv(name, value)


def open_remote(timeout_s: float = 30.0, retries: int = 3, bucket: str = BUCKET) -> RemoteStore:
    return RemoteStore(f"s3://{bucket}/{uuid.uuid4().hex}", timeout_s, retries)


def faulty(call: Callable[[], object]) -> StoreFault:
    with pytest.raises(StoreFault) as caught:
        call()
    return caught.value


def calls_of(store: RemoteStore) -> dict[str, Callable[[], object]]:
    return {
        "put": lambda: put_object(store, block_id(1)),
        "read": lambda: store.read(NAME, buffers_of(SCHEMA, is_checkpoint=False)),
        "size": lambda: store.size(NAME),
        "objects": lambda: list(store.objects()),
        "head": lambda: store.head_bytes(NAME, 8),
        "delete": lambda: store.delete(NAME),
        "aside": lambda: store.set_aside(NAME),
    }


def test_a_server_that_stops_is_an_outage_and_one_that_returns_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_server() as server:
        use(monkeypatch, server.endpoint)
        store = open_remote(timeout_s=5.0, retries=1)
        assert put_object(store, block_id(1))
        server.stop()
        for call in calls_of(store).values():
            begun_s = time.monotonic()
            fault = faulty(call)
            assert (fault.reason, fault.is_outage) == (Reason.STORE_FAILED, True)
            assert time.monotonic() - begun_s < 5.0 + SLACK_S
        server.start()
        assert isinstance(load(store, block_id(1)), Header)
        assert put_object(store, block_id(2))


def test_keys_with_prefixes_stay_apart(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, server.endpoint)
    first, second = open_remote(), open_remote()
    assert put_object(first, block_id(1))
    assert second.size(NAME) is None
    assert put_object(second, block_id(1))


def test_a_bad_object_is_kept_under_quarantine(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, server.endpoint)
    store = open_remote()
    put_object(store, block_id(1))
    store.set_aside(NAME)
    root = RemoteStore(f"s3://{BUCKET}")
    prefix = store.url.removeprefix(root.url + "/")
    kept = bytes(root._store.get(f"{prefix}/quarantine/{NAME}").bytes())
    assert kept == make_object(block_id(1)).data


def test_listings_pass_over_strangers(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, server.endpoint)
    store = open_remote()
    put_object(store, block_id(1))
    for stranger in ("objects/README", f"objects/{SCHEMA.namespace}/x", "objects-of-others/x"):
        store._store.put(stranger, b"x")
    assert [found.name for found in store.objects()] == [NAME]
    assert [found.name for found in store.objects(SCHEMA.namespace)] == [NAME]


def test_more_objects_than_a_page_of_a_listing(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing's stream is read on until it ends."""
    monkeypatch.setattr("kvstrata.tiers.remote._LISTED_AT_ONCE", 2)
    use(monkeypatch, server.endpoint)
    store = open_remote()
    for number in range(5):
        put_object(store, block_id(number))
    expected = {SCHEMA.object_name(block_id(number)) for number in range(5)}
    assert {found.name for found in store.objects()} == expected


def test_a_bucket_that_is_not_there(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, server.endpoint)
    calls = calls_of(open_remote(bucket="nowhere"))
    for name in ("put", "read", "objects", "head", "aside"):
        fault = faulty(calls[name])
        assert (fault.reason, fault.is_outage) == (Reason.STORE_FAILED, True), name
        assert "\n" not in str(fault)


class Server(BaseHTTPRequestHandler):
    """Answers everything in one bad way."""

    protocol_version = "HTTP/1.1"
    status = 500
    status_of_head = 0
    code = ""
    pause_s = 0.0
    is_cut = False
    num_requests = 0

    def answer(self) -> None:
        type(self).num_requests += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(self.pause_s)
        body = f"<Error><Code>{self.code}</Code></Error>".encode() if self.code else b""
        is_head = self.command == "HEAD"
        self.send_response((is_head and self.status_of_head) or self.status)
        self.send_header("ETag", '"x"')
        self.send_header("Connection", "close")
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        num_bytes = len(make_object(block_id(1)).data)
        self.send_header("Content-Length", str(num_bytes if self.is_cut else len(body)))
        self.end_headers()
        if not is_head:
            with suppress(BrokenPipeError):  # the caller waits no more
                self.wfile.write(b"half" if self.is_cut else body)
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def bad_server(**behaviour: object) -> Iterator[tuple[str, type[Server]]]:
    verbs = {f"do_{verb}": Server.answer for verb in ("GET", "PUT", "HEAD", "POST", "DELETE")}
    handler = type("Bad", (Server,), verbs | behaviour)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


ANSWERS = [
    (500, "InternalError", Reason.STORE_FAILED, True),
    (503, "SlowDown", Reason.STORE_FAILED, True),
    (400, "InvalidRequest", Reason.STORE_FAILED, True),
    (403, "AccessDenied", Reason.OBJECT_FORBIDDEN, False),
    (403, "InvalidAccessKeyId", Reason.OBJECT_FORBIDDEN, True),
    (401, "", Reason.OBJECT_FORBIDDEN, True),
]


@pytest.mark.parametrize(("status", "code", "reason", "is_outage"), ANSWERS)
def test_bad_answers(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, reason: Reason, is_outage: bool
) -> None:
    with bad_server(status=status, code=code) as (endpoint, _):
        use(monkeypatch, endpoint)
        calls = calls_of(open_remote(timeout_s=5.0, retries=1))
        for name in ("put", "read", "head"):
            fault = faulty(calls[name])
            assert (fault.reason, fault.is_outage) == (reason, is_outage), (name, fault)
            assert code in str(fault)


def test_retries_are_as_many_as_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with bad_server() as (endpoint, handler):
        use(monkeypatch, endpoint)
        for retries in (0, 2):
            handler.num_requests = 0
            faulty(calls_of(open_remote(timeout_s=30.0, retries=retries))["read"])
            assert handler.num_requests == 1 + retries


@pytest.mark.parametrize("name", ["put", "read", "size", "objects", "head"])
def test_a_server_that_hangs_is_a_time_out(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with bad_server(pause_s=1.5) as (endpoint, _):
        use(monkeypatch, endpoint)
        begun_s = time.monotonic()
        fault = faulty(calls_of(open_remote(timeout_s=SHORT_S))[name])
        assert (fault.reason, fault.is_outage) == (Reason.STORE_TIMEOUT, True)
        assert time.monotonic() - begun_s < 2 * SHORT_S + SLACK_S


def test_an_answer_cut_in_its_middle_is_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    with bad_server(status=200, is_cut=True) as (endpoint, _):
        use(monkeypatch, endpoint)
        fault = faulty(calls_of(open_remote(timeout_s=5.0, retries=0))["read"])
        assert (fault.reason, fault.is_outage) == (Reason.STORE_FAILED, True)


def test_two_puts_in_conflict_are_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """409: the service decided for neither, and nothing is there; no reason to close the tier."""

    with bad_server(status=409, status_of_head=404) as (endpoint, _):
        use(monkeypatch, endpoint)
        fault = faulty(calls_of(open_remote(timeout_s=5.0, retries=0))["put"])
        assert (fault.reason, fault.is_outage) == (Reason.STORE_FAILED, False)


def test_a_profile_is_used(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        f"[profile lab]\nendpoint_url = {server.endpoint}\nregion = us-east-1\n"
        "aws_access_key_id = id\naws_secret_access_key = secret\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert put_object(open_remote(), block_id(1))


@pytest.mark.parametrize(
    ("timeout_s", "retries"), [(0.0, 3), (-1.0, 3), (float("nan"), 3), (30.0, -1)]
)
def test_bad_settings_are_refused(timeout_s: float, retries: int) -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        RemoteStore(f"s3://{BUCKET}", timeout_s, retries)


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "s3://bucket/prefix?x=1"])
def test_bad_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        RemoteStore(url)


def test_opening_asks_nothing_of_the_bucket() -> None:
    assert RemoteStore("s3://bucket/some/prefix/").url == "s3://bucket/some/prefix"
