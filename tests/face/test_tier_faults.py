"""Whatever is wrong with a stored object: never a wrong byte, always a reason, and life goes on."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kvstrata import CacheManager
from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import META_REPLAY_TOKENS
from kvstrata.tiers.format import Header, ObjectId, Schema, encode
from kvstrata.tiers.store import StoreFault
from tests.cases.support import check_hit, compute, opened, prefill, readable
from tests.face.tiered import (
    LAYOUT,
    SIZE,
    Corner,
    begun,
    corner,
    failed,
    hook,
    peek,
    served,
    settled,
    stored,
    text,
    tiering_of,
    told,
)

BLOCKS = 9
PROMPT = text(("p", BLOCKS * SIZE + 3))
"""Nine blocks and a checkpoint behind the ninth."""
BAD = 8
"""The object that is damaged is the eighth block's, or the checkpoint's."""


@dataclass(frozen=True)
class Fault:
    """A damage, what is to be told of it, and whether the object is set aside."""

    damage: Callable[[Path, Schema], None]
    reason: str
    is_aside: bool = True


def cut(length: int) -> Callable[[Path, Schema], None]:
    return lambda path, _: os.truncate(path, length)


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path, Schema], None]:
    return lambda path, _: put(path, change(path.read_bytes()))


def put(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def another_key(path: Path, _: Schema) -> None:
    others = [one for one in path.parent.parent.rglob(f"*{path.suffix}") if one != path]
    put(path, others[0].read_bytes() if others else b"")


def written_with(**changes: object) -> Callable[[Path, Schema], None]:
    """As an engine with another schema would have written it, under this name."""

    def damage(path: Path, schema: Schema) -> None:
        put(path, forged(path, schema, replace(schema, **changes)))  # type: ignore[arg-type]

    return damage


def with_part(**changes: object) -> Callable[[Path, Schema], None]:
    """The same with another first group."""

    def damage(path: Path, schema: Schema) -> None:
        kind = "checkpoints" if path.suffix == ".checkpoint" else "blocks"
        first, *rest = getattr(schema, kind)
        other = replace(schema, **{kind: (replace(first, **changes), *rest)})
        put(path, forged(path, schema, other))

    return damage


def forged(path: Path, mine: Schema, other: Schema) -> bytes:
    """An object of the same pages whose header says another schema; all its checks agree."""
    identity = ObjectId(bytes.fromhex(path.stem), path.suffix == ".checkpoint")
    sizes = [part.page_bytes for part in other.parts(identity.is_checkpoint)]
    pages = path.read_bytes()[mine.header_bytes(identity.is_checkpoint) : -16]
    sums = tuple(range(len(sizes)))
    first, last = encode(other, Header(identity, bytes(16), 64, sums))
    return first + pages.ljust(sum(sizes), b"\0")[: sum(sizes)] + last


def a_folder(path: Path, _: Schema) -> None:
    path.unlink()
    path.mkdir()


FAULTS = {
    "empty": Fault(cut(0), "OBJECT_TRUNCATED"),
    "one byte": Fault(cut(1), "OBJECT_TRUNCATED"),
    "cut inside the header": Fault(cut(100), "OBJECT_TRUNCATED"),
    "cut inside a page": Fault(edited(lambda data: data[: len(data) // 2 + 60]), "OBJECT_TRUNCATED"),
    "a byte short": Fault(edited(lambda data: data[:-1]), "OBJECT_TRUNCATED"),
    "a byte more": Fault(edited(lambda data: data + b"\0"), "OBJECT_TOO_LONG"),
    "twice": Fault(edited(lambda data: data + data), "OBJECT_TOO_LONG"),
    "zeros": Fault(edited(lambda data: bytes(len(data))), "OBJECT_HEADER"),
    "zeros from the header on": Fault(
        edited(lambda data: data[:384].ljust(len(data), b"\0")), "OBJECT_TRAILER"
    ),
    "zeros in a page": Fault(
        edited(lambda data: data[:-80] + bytes(64) + data[-16:]), "CHECKSUM_MISMATCH"
    ),
    "zeros at its end": Fault(edited(lambda data: data[:-16] + bytes(16)), "OBJECT_TRAILER"),
    "another layout": Fault(written_with(layout=b"another layout!!"), "OBJECT_LAYOUT"),
    "another dtype": Fault(with_part(abi=b"float8, not bf16"), "ABI_MISMATCH"),
    "another mapping": Fault(with_part(version=7), "COMPRESSOR_VERSION"),
    "another kind": Fault(with_part(kind="INDEXER"), "OBJECT_LAYOUT"),
    "a folder": Fault(a_folder, "OBJECT_NOT_A_FILE"),
    "a link to nowhere": Fault(
        lambda path, _: (path.unlink(), path.symlink_to("nowhere"))[0], "OBJECT_NOT_A_FILE"
    ),
    "gone": Fault(lambda path, _: path.unlink(), "OBJECT_MISSING", is_aside=False),
}
each_kind = pytest.mark.parametrize("kind", ["block", "checkpoint"])


@contextmanager
def damaged(kind: str) -> Iterator[tuple[Corner, Path]]:
    """A stored prompt, whose pages are lost; and the file that is to be damaged."""
    with corner() as place:
        stored(place, PROMPT)
        assert (len(place.files(suffix=".block")), len(place.files(suffix=".checkpoint"))) == (BLOCKS, 1)
        yield place, place.file_of(PROMPT, BAD if kind == "block" else BLOCKS, kind)


def uninterrupted() -> dict[str, bytes]:
    """What the pages hold where one cache computed all of the prompt."""
    with opened(LAYOUT, 40, 24, with_bytes=True) as cache:
        return readable(cache, prefill(cache, PROMPT))


def resumes_at(cache: CacheManager, kind: str) -> int:
    """Where a request resumes without the object: a window before the end of what is whole."""
    whole = (BAD - 1 if kind == "block" else BLOCKS) * SIZE
    return (whole - cache.arena.item(META_REPLAY_TOKENS)) // SIZE * SIZE


def check_served(cache: CacheManager, kind: str) -> None:
    """The request begins, colder; what it ends up with is what an uninterrupted cache has."""
    sequence = begun(cache, PROMPT)
    assert sequence.plan.resume_at == resumes_at(cache, kind)
    assert sequence.plan.source == "replay"
    compute(cache, sequence)
    assert readable(cache, sequence) == uninterrupted()
    sequence.finish()
    cache.check_integrity()


@each_kind
@pytest.mark.parametrize("name", FAULTS)
def test_a_damaged_object(name: str, kind: str) -> None:
    fault = FAULTS[name]
    with damaged(kind) as (place, path), place.opened() as cache:
        whole = path.read_bytes()
        fault.damage(path, tiering_of(cache).objects.schema())
        check_served(cache, kind)
        check_told(cache, fault, path)
        assert len(place.aside()) == fault.is_aside
        served(cache, PROMPT)
        settled(cache)
        if kind == "block":  # what a checkpoint holds outside its window may differ
            assert path.read_bytes() == whole
        assert path.stat().st_size == len(whole)
        check_found_again(place)


def check_told(cache: CacheManager, fault: Fault, path: Path) -> None:
    (event,) = told(cache, EventType.OBJECT_FAILED)
    assert (event["reason"], event["tier"], event["key"]) == (fault.reason, 1, path.stem)
    (ended,) = told(cache, EventType.LOAD_ENDED)
    assert ended["reason"] == fault.reason
    (removed,) = told(cache, EventType.OBJECT_REMOVED)
    assert (removed["reason"], removed["tiers"], removed["key"]) == (fault.reason, 0, path.stem)
    assert cache.validator.failures == {(0, fault.reason, "disk"): 1}


def check_found_again(place: Corner) -> None:
    """All of it loads again in the next engine."""
    with place.opened("another") as cache:
        assert peek(cache, PROMPT) == BLOCKS * SIZE
        assert failed(cache) == []


@each_kind
def test_another_keys_object_under_its_name(kind: str) -> None:
    fault = Fault(another_key, "OBJECT_KEY")
    with corner() as place:
        stored(place, PROMPT, text(("q", BLOCKS * SIZE + 3)))
        path = place.file_of(PROMPT, BAD if kind == "block" else BLOCKS, kind)
        with place.opened() as cache:
            another_key(path, tiering_of(cache).objects.schema())
            check_served(cache, kind)
            check_told(cache, fault, path)
            assert len(place.aside()) == 1


@each_kind
@pytest.mark.parametrize(
    ("reason", "is_outage"),
    [
        (Reason.OBJECT_FORBIDDEN, False),
        (Reason.OBJECT_UNREADABLE, False),
        (Reason.OBJECT_MISSING, False),
    ],
)
def test_a_store_that_does_not_give_one_object(reason: Reason, is_outage: bool, kind: str) -> None:
    """It is forgotten, left where it lies, and the request does without."""
    with damaged(kind) as (place, path), place.opened() as cache:
        name = str(path.relative_to(place.root / "disk" / "objects"))

        def refuse(asked_for: str) -> None:
            if asked_for == name:
                raise StoreFault(reason, f"{name}: refused", is_outage)

        hook(cache).hooks["read"] = refuse
        check_served(cache, kind)
        check_told(cache, Fault(cut(0), reason.name), path)
        assert path.exists()
        assert place.aside() == []


def test_no_permission_is_told_apart() -> None:
    """EACCES of the machine itself, which root never meets."""
    with damaged("block") as (place, path), place.opened() as cache:
        from kvstrata.tiers.local_files import Files

        class Locked(Files):
            def open(self, found: Path, *flags: int) -> int:
                if found == path:
                    raise PermissionError(13, "Permission denied")
                return super().open(found, *flags)

        tiering_of(cache).tierset().tiers[0].store._files = Locked()
        check_served(cache, "block")
        check_told(cache, Fault(cut(0), "OBJECT_FORBIDDEN"), path)


def test_deleted_between_match_and_load() -> None:
    """The plan says it is stored; when it is begun all of it has gone."""
    with damaged("block") as (place, path), place.opened() as cache:
        from tests.cases.support import asked

        plan = cache.match(asked(PROMPT))
        assert (plan.source, plan.resume_at) == ("stored", BLOCKS * SIZE)
        for one in place.files():
            one.unlink()
        sequence = begun(cache, PROMPT)
        assert sequence.plan.resume_at == 0
        assert set(failed(cache)) == {"OBJECT_MISSING"}
        compute(cache, sequence)
        assert readable(cache, sequence) == uninterrupted()
        sequence.finish()
        settled(cache)
        assert len(place.files()) == BLOCKS + 1
        check_hit(cache, begun(cache, PROMPT))
        cache.check_integrity()
        assert path.exists()
