"""Small schemas, whole objects, stores and servers: what the tests of the tiers share."""

import os
import struct
import sys
import threading
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crc32c import crc32c
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from kvstrata.core.checksum import checksum_bytes
from kvstrata.core.events import Reason
from kvstrata.tiers.format import (
    TRAILER_BYTES,
    Fault,
    Header,
    ObjectId,
    Part,
    Schema,
    decode,
    encode,
)
from kvstrata.tiers.store import Store

BUCKET = "kvstrata-tests"


def part(group: int, kind: str, page_bytes: int, version: int = 0) -> Part:
    """A part whose ABI digest is made of its group's number."""
    return Part(group, f"group{group}", kind, page_bytes, bytes([0xA0 + group]) * 16, version)


SCHEMA = Schema(
    layout=bytes(range(16)),
    block_tokens=128,
    blocks=(part(0, "COMPRESSED", 192, version=7), part(1, "INDEXER", 64)),
    checkpoints=(part(2, "SWA", 128), part(3, "TAIL", 64)),
)


def key_of(number: int) -> bytes:
    """A key of which both halves differ from those of other numbers."""
    return struct.pack(">QQ", number * 0x9E3779B97F4A7C15 & (1 << 64) - 1, number)


def block_id(number: int) -> ObjectId:
    return ObjectId(key_of(number), is_checkpoint=False)


def checkpoint_id(number: int) -> ObjectId:
    return ObjectId(key_of(number), is_checkpoint=True)


def pages_of(schema: Schema, identity: ObjectId) -> list[bytes]:
    """Pages that no other object has, without a zero byte."""
    return [
        bytes(1 + (identity.key[15] * 31 + each.group * 7 + at * 3) % 255 for at in range(size))
        for each in schema.parts(identity.is_checkpoint)
        for size in (each.page_bytes,)
    ]


@dataclass(frozen=True)
class Whole:
    """An object as it would be stored."""

    header: bytes
    pages: list[bytes]
    trailer: bytes

    @property
    def parts(self) -> list[memoryview]:
        return [memoryview(each) for each in (self.header, *self.pages, self.trailer)]

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)


def header_of(schema: Schema, identity: ObjectId) -> Header:
    parent = bytes(16) if identity.is_checkpoint else key_of(4096)
    checksums = tuple(checksum_bytes(page) for page in pages_of(schema, identity))
    return Header(identity, parent, 3 * schema.block_tokens, checksums)


def make_object(identity: ObjectId, schema: Schema = SCHEMA) -> Whole:
    header, trailer = encode(schema, header_of(schema, identity))
    return Whole(header, pages_of(schema, identity), trailer)


def put_object(store: Store, identity: ObjectId, schema: Schema = SCHEMA) -> bool:
    return store.put(schema.object_name(identity), make_object(identity, schema).parts)


def buffers_of(schema: Schema, is_checkpoint: bool) -> list[memoryview]:
    """Empty buffers for header, pages and trailer."""
    sizes = [
        schema.header_bytes(is_checkpoint),
        *(each.page_bytes for each in schema.parts(is_checkpoint)),
        TRAILER_BYTES,
    ]
    return [memoryview(bytearray(size)) for size in sizes]


def load(store: Store, identity: ObjectId, schema: Schema = SCHEMA) -> Header | Fault:
    """Read and check an object as the tiers do; a store's fault is raised."""
    parts = buffers_of(schema, identity.is_checkpoint)
    store.read(schema.object_name(identity), parts)
    found = decode(schema, identity, parts[0], parts[-1])
    if isinstance(found, Fault):
        return found
    of = schema.parts(identity.is_checkpoint)
    for each, page, expected in zip(of, parts[1:-1], found.checksums, strict=True):
        computed = checksum_bytes(page)
        if computed != expected:
            reason = Reason.CHECKSUM_MISMATCH
            return Fault(reason, each.group, expected, computed, f"page of {each.name}")
    return found


def reseal(header: bytes) -> tuple[bytes, bytes]:
    """A forger's header and trailer: whatever the header says, all CRCs agree."""
    crc = crc32c(header[:-4])
    (object_bytes,) = struct.unpack_from("<Q", header, 16)
    return header[:-4] + struct.pack("<I", crc), struct.pack("<4sIQ", b"KVST", crc, object_bytes)


def path_of(root: Path, identity: ObjectId, schema: Schema = SCHEMA) -> Path:
    """Where a local store keeps an object."""
    return root / "objects" / schema.object_name(identity)


def fork(work: Callable[[], None]) -> int:
    """Run something in a child process that shares nothing but files; its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def join(pid: int) -> int:
    """Exit status of a child, minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_in_child(work: Callable[[], None]) -> None:
    assert join(fork(work)) == 0


class QuietHandler(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, type: str, message: str, *args: object) -> None:
        pass


class S3Server:
    """A bucket on loopback that can be stopped and started again, keeping what it holds.

    One request is answered at a time: moto looks whether a key is there and stores it in two
    steps, so that of two conditional puts at once both could succeed, as on S3 they cannot.
    """

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.Lock()
        self.port = 0
        self.start()
        bucket = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(bucket, timeout=30).close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = make_server(
            "127.0.0.1", self.port, self._answer, threaded=True, request_handler=QuietHandler
        )
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        with self._one_at_a_time:
            return list(self._app(environ, start_response))


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server; what earlier ones of this process held is still there: use a prefix of your own."""
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()


def s3_environment(endpoint: str) -> dict[str, str]:
    """What to put into the environment of a process that uses the server."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }
