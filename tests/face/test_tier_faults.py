"""Whatever is wrong with a stored object: never a wrong byte, always a reason, and life goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager
from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import META_REPLAY_TOKENS
from kvstrata.tiers.local_files import Files
from kvstrata.tiers.store import StoreFault
from tests.cases.support import asked, check_hit, compute, opened, prefill, readable
from tests.face.damaged_objects import FAULTS, Fault, another_key, cut
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


each_kind = pytest.mark.parametrize("kind", ["block", "checkpoint"])


@contextmanager
def damaged(kind: str) -> Iterator[tuple[Corner, Path]]:
    """A stored prompt, whose pages are lost; and the file that is to be damaged."""
    with corner() as place:
        stored(place, PROMPT)
        assert (len(place.files(suffix=".block")), len(place.files(suffix=".checkpoint"))) == (
            BLOCKS,
            1,
        )
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
    "reason", [Reason.OBJECT_FORBIDDEN, Reason.OBJECT_UNREADABLE, Reason.OBJECT_MISSING]
)
def test_a_store_that_does_not_give_one_object(reason: Reason, kind: str) -> None:
    """It is forgotten, left where it lies, and the request does without."""
    with damaged(kind) as (place, path), place.opened() as cache:
        name = str(path.relative_to(place.root / "disk" / "objects"))

        def refuse(asked_for: str) -> None:
            if asked_for == name:
                raise StoreFault(reason, f"{name}: refused")

        hook(cache).hooks["read"] = refuse
        check_served(cache, kind)
        check_told(cache, Fault(cut(0), reason.name), path)
        assert path.exists()
        assert place.aside() == []


def test_no_permission_is_told_apart() -> None:
    """EACCES of the machine itself, which root never meets."""
    with damaged("block") as (place, path), place.opened() as cache:

        class Locked(Files):
            def open(self, found: Path, *flags: int) -> int:
                if found == path:
                    raise PermissionError(13, "Permission denied")
                return super().open(found, *flags)

            def read_whole(self, paths: list[str], *_: Any) -> Any:
                return np.zeros(len(paths), dtype=np.bool_)

        tiering_of(cache).tierset().tiers[0].store._files = Locked()
        check_served(cache, "block")
        check_told(cache, Fault(cut(0), "OBJECT_FORBIDDEN"), path)


def test_deleted_between_match_and_load() -> None:
    """The plan says it is stored; when it is begun all of it has gone."""
    with damaged("block") as (place, path), place.opened() as cache:
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
