"""What every store promises, whatever it is made of."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvstrata.core.errors import StoreError
from kvstrata.core.events import Reason
from kvstrata.tiers.format import MAX_HEADER_BYTES, Description, Header, read_any
from kvstrata.tiers.store import Store, StoreFault, open_store

from .support import (
    BUCKET,
    SCHEMA,
    S3Server,
    block_id,
    buffers_of,
    checkpoint_id,
    header_of,
    load,
    make_object,
    put_object,
    s3_environment,
    s3_server,
)

NAME = SCHEMA.object_name(block_id(1))
DATA = make_object(block_id(1)).data
# One that is larger than a chunk of a remote read, in parts that chunks do not respect.
LARGE = [bytes([number]) * (700_001 + number) for number in range(5)]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["local", "remote"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    url = str(tmp_path / "store")
    if request.param == "remote":
        server: S3Server = request.getfixturevalue("server")
        for name, value in s3_environment(server.endpoint).items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/{uuid.uuid4().hex}/tier"
    store = open_store(url, timeout_s=30.0)
    yield store
    store.close()


def reason_of(call: Callable[[], object]) -> Reason:
    with pytest.raises(StoreFault) as caught:
        call()
    assert not caught.value.is_outage, "it is this object's fault"
    return caught.value.reason


def test_what_was_put_is_read(store: Store) -> None:
    for identity in (block_id(1), checkpoint_id(1)):
        assert put_object(store, identity) is True
        assert load(store, identity) == header_of(SCHEMA, identity)
        assert store.size(SCHEMA.object_name(identity)) == len(make_object(identity).data)


def test_every_byte_comes_back_in_its_part(store: Store) -> None:
    assert store.put(NAME, LARGE)
    parts = [memoryview(bytearray(len(part))) for part in LARGE]
    store.read(NAME, parts)
    assert parts == LARGE
    # Other cuts, one of them empty, of the same bytes.
    whole = bytearray(sum(map(len, LARGE)))
    view = memoryview(whole)
    store.read(NAME, [view[:1], view[1:1], view[1:1_500_000], view[1_500_000:]])
    assert whole == b"".join(LARGE)


def test_buffers_of_any_kind_are_put(store: Store) -> None:
    words = memoryview(bytearray(range(64))).cast("Q", [2, 4])
    assert store.put(NAME, [b"bytes", bytearray(b"array"), memoryview(b""), words])
    found = memoryview(bytearray(74))
    store.read(NAME, [found])
    assert found == b"bytesarray" + bytes(range(64))


def test_buffers_of_words_are_filled(store: Store) -> None:
    store.put(NAME, [bytes(range(64))])
    words = memoryview(bytearray(64)).cast("Q", [2, 4])
    store.read(NAME, [words])
    assert words.tobytes() == bytes(range(64))


def test_nothing_is_overwritten(store: Store) -> None:
    assert put_object(store, block_id(1)) is True
    assert put_object(store, block_id(1)) is False
    assert store.put(NAME, [b"other bytes"]) is False
    assert load(store, block_id(1)) == header_of(SCHEMA, block_id(1))


def test_one_of_many_writers_wins(store: Store) -> None:
    barrier = threading.Barrier(4)
    for number in range(5):
        name = SCHEMA.object_name(block_id(number))
        results: list[tuple[bool, int]] = []

        def write(writer: int, name: str = name, results: list[tuple[bool, int]] = results) -> None:
            barrier.wait()
            results.append((store.put(name, [bytes([writer]) * 1000]), writer))

        writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        winners = [writer for won, writer in results if won]
        assert (len(results), len(winners)) == (4, 1)
        found = memoryview(bytearray(1000))
        store.read(name, [found])
        assert found == bytes(winners) * 1000


def test_what_is_not_there(store: Store) -> None:
    parts = buffers_of(SCHEMA, is_checkpoint=False)
    assert store.size(NAME) is None
    assert store.delete(NAME) is False
    assert list(store.objects()) == []
    store.set_aside(NAME)
    assert reason_of(lambda: store.read(NAME, parts)) is Reason.OBJECT_MISSING
    assert reason_of(lambda: store.head_bytes(NAME, 8)) is Reason.OBJECT_MISSING


def test_objects_of_another_size_are_refused(store: Store) -> None:
    parts = buffers_of(SCHEMA, is_checkpoint=False)
    store.put(NAME, [DATA[:-1]])
    assert reason_of(lambda: store.read(NAME, parts)) is Reason.OBJECT_TRUNCATED
    store.delete(NAME)
    store.put(NAME, [DATA, b"x"])
    assert reason_of(lambda: store.read(NAME, parts)) is Reason.OBJECT_TOO_LONG
    store.delete(NAME)
    store.put(NAME, [b""])
    assert reason_of(lambda: store.read(NAME, parts)) is Reason.OBJECT_TRUNCATED


def test_the_head_is_enough_for_tools(store: Store) -> None:
    put_object(store, block_id(1))
    head = store.head_bytes(NAME, MAX_HEADER_BYTES)
    assert head == DATA, "shorter than was asked for"
    assert store.head_bytes(NAME, 320) == DATA[:320]
    found = read_any(head)
    assert isinstance(found, Description)
    assert found.namespace == SCHEMA.namespace


def test_the_head_of_an_empty_object(store: Store) -> None:
    store.put(NAME, [b""])
    assert store.size(NAME) == 0
    assert store.head_bytes(NAME, 8) == b""


def test_deleting(store: Store) -> None:
    put_object(store, block_id(1))
    put_object(store, block_id(2))
    assert store.delete(NAME) is True
    assert store.delete(NAME) is False
    assert store.size(NAME) is None
    assert isinstance(load(store, block_id(2)), Header)
    assert put_object(store, block_id(1)) is True


def test_setting_aside(store: Store) -> None:
    store.put(NAME, [b"bad"])
    store.set_aside(NAME)
    assert store.size(NAME) is None
    assert list(store.objects()) == []
    assert put_object(store, block_id(1)) is True
    assert isinstance(load(store, block_id(1)), Header)


def test_listing(store: Store) -> None:
    before_s = time.time() - 2
    identities = [block_id(number) for number in range(12)] + [checkpoint_id(3)]
    for identity in identities:
        put_object(store, identity)
    other = "0" * 32 + "/ab/ab" + "0" * 30 + ".block"
    store.put(other, [b"of another engine"])
    found = {stored.name: stored for stored in store.objects()}
    expected = {SCHEMA.object_name(identity): identity for identity in identities}
    assert set(found) == {other, *expected}
    assert {stored.name for stored in store.objects(SCHEMA.namespace)} == set(expected)
    assert [stored.name for stored in store.objects("0" * 32)] == [other]
    assert list(store.objects("1" * 32)) == []
    for name, identity in expected.items():
        assert found[name].num_bytes == len(make_object(identity).data)
        assert before_s <= found[name].modified_s <= time.time() + 2


BAD_NAMES = [
    "",
    "../" * 3 + "etc/passwd",
    f"{SCHEMA.namespace}/../{NAME[33:]}",
    f"/{NAME}",
    f"{NAME}/",
    f"{NAME}\n",
    f"{NAME}x",
    NAME.upper(),
    NAME.replace(".block", ".tmp"),
    NAME.replace(".block", ""),
    NAME.replace("/", "//", 1),
    NAME.replace("/", "\0", 1),
    f"{SCHEMA.namespace}/ff/{'00' * 16}.block",
    f"{SCHEMA.namespace[:-1]}g/00/{'00' * 16}.block",
    f"{SCHEMA.namespace}/\u0661\u0661/{chr(0x661) * 32}.block",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_other_names_are_refused_before_anything_is_done(store: Store, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.put(name, [b"x"]),
        lambda: store.read(name, [memoryview(bytearray(1))]),
        lambda: store.size(name),
        lambda: store.head_bytes(name, 1),
        lambda: store.delete(name),
        lambda: store.set_aside(name),
        lambda: store.claim(name, 0).__enter__(),
    ]
    assert [reason_of(call) for call in calls] == [Reason.OBJECT_KEY] * len(calls)
    assert list(store.objects()) == []


def test_a_claim_is_a_context(store: Store) -> None:
    with store.claim(NAME, 0) as mine:
        assert mine is True
        assert put_object(store, block_id(1)), "a claim's holder may do what others may"
    with store.claim(NAME, 0) as mine:
        assert mine is True


def test_there_is_nothing_to_collect(store: Store) -> None:
    put_object(store, block_id(1))
    assert store.collect(older_than_s=0) == 0
    assert isinstance(load(store, block_id(1)), Header)


def test_a_fault_is_a_store_error(store: Store) -> None:
    with pytest.raises(StoreError, match=NAME):
        store.head_bytes(NAME, 8)


def test_the_url_opens_the_same_store(store: Store) -> None:
    put_object(store, block_id(1))
    again = open_store(store.url)
    assert again.url == store.url
    assert isinstance(load(again, block_id(1)), Header)
    again.close()
