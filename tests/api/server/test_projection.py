"""Answers equal the projection: random histories, folded here by a model of its own."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvstrata import CacheManager, KvstrataError
from kvstrata.core.events import PAGE_EVENTS_END, EventType, decode_payload
from kvstrata.core.states import PageState
from kvstrata.eventstore.log import read_events
from tests.api.server.support import Served, served
from tests.face.support import Place, prefill, request, serve

GROUPS = ("full", "swa")
PAGES = {"full": 39, "swa": 19}


@dataclass
class Page:
    """What the events say of one page."""

    state: str = "FREE"
    generation: int = 0
    key: str | None = None
    checksum: str | None = None
    owner: int | None = None
    changed_seqno: int = 0
    unit: int = 0


def fold(directory: Path) -> tuple[dict[tuple[str, int], Page], dict[int, int]]:
    """Pages by group and slot, and prompts of running sequences by id: by the log alone."""
    pages = {(group, slot): Page() for group in GROUPS for slot in range(1, PAGES[group] + 1)}
    running: dict[int, int] = {}
    for event in (event for batch in read_events(directory) for event in batch):
        kind, said = int(event["type"]), decode_payload(event)
        if kind < PAGE_EVENTS_END:
            page = pages[GROUPS[int(event["group"])], int(event["page"])]
            page.state = PageState(int(event["state"])).name
            page.generation = int(event["generation"])
            page.changed_seqno = int(event["seqno"])
            if kind == EventType.PAGE_RESERVED:
                page.owner, page.unit = int(said["owner"]), int(said["unit"])
            elif kind == EventType.PAGE_SEALED:
                page.key, page.owner = str(said["key"]), None
                page.checksum = f"{int(said['checksum']):016x}"
            if page.state == "FREE":
                page.key = page.checksum = page.owner = None
        elif kind == EventType.SEQUENCE_BEGUN:
            running[int(said["sequence"])] = int(said["position"])
        elif kind in (EventType.SEQUENCE_FINISHED, EventType.SEQUENCE_SUSPENDED):
            del running[int(said["sequence"])]
    return pages, running


class Player:
    """Plays a random history on an engine."""

    def __init__(self, cache: CacheManager, seed: int) -> None:
        self._cache = cache
        self._random = random.Random(seed)
        self._running: list[Any] = []
        self._leases: list[Any] = []

    def play(self, num_moves: int) -> None:
        moves = (
            self._serve, self._serve, self._begin, self._begin, self._decode, self._decode,
            self._finish, self._cancel, self._fork, self._lease, self._release, self._damage,
        )  # fmt: skip
        for _ in range(num_moves):
            try:
                self._random.choice(moves)()
            except KvstrataError:
                continue  # no room, or not now: part of a history

    def _wanted(self) -> Any:
        return request(f"text {self._random.randrange(5)}", self._random.randrange(1, 140))

    def _serve(self) -> None:
        serve(self._cache, self._wanted(), self._random.randrange(3))

    def _begin(self) -> None:
        self._running.append(prefill(self._cache, self._wanted()))

    def _pop(self, things: list[Any]) -> Any:
        return things.pop(self._random.randrange(len(things))) if things else None

    def _decode(self) -> None:
        if self._running:
            sequence = self._random.choice(self._running)
            self._cache.reserve([sequence.id], [1]).commit(tokens=[7])

    def _finish(self) -> None:
        sequence = self._pop(self._running)
        if sequence is not None:
            sequence.finish()

    def _cancel(self) -> None:
        sequence = self._pop(self._running)
        if sequence is not None:
            sequence.cancel()

    def _fork(self) -> None:
        if self._running:
            self._running.append(self._random.choice(self._running).fork())

    def _lease(self) -> None:
        self._leases.append(self._cache.lease(self._cache.match(self._wanted())))

    def _release(self) -> None:
        lease = self._pop(self._leases)
        if lease is not None:
            lease.release()

    def _damage(self) -> None:
        if self._cache.pools is not None:
            slot = self._random.randrange(1, 40)
            self._cache.pools.storage("full")[slot, 0] += 1
            self._cache.scrub(1 << 20)


def check_pages(api: Served) -> None:
    pages, running = fold(api.place.directory)
    every_state = [state.name for state in PageState]
    rows = api.every("/v1/blocks", state=every_state, limit=13)
    assert len(rows) == len(pages)
    for row in rows:
        page = pages[row["group"], row["page"]]
        found = (row["state"], row["generation"], row["checksum"], row["sequence"])
        checksum = page.checksum if page.state == "SEALED" else None
        assert found == (page.state, page.generation, checksum, page.owner), row
        assert row["changed_seqno"] == page.changed_seqno
        assert row["key"] == page.key, row
    counted = Counter((group, page.state) for (group, _), page in pages.items())
    for pool in api.get("/v1/pools")["items"]:
        for state, count in pool["pages"].items():
            assert count == counted[pool["group"], state], (pool["group"], state)
    found_running = {row["id"]: row["prompt_tokens"] for row in api.every("/v1/sequences")}
    assert found_running == running


def check_segments(api: Served) -> None:
    """A segment's pages, and who holds each, are those of the listing."""
    rows = api.every("/v1/blocks")
    for key in sorted({row["key"] for row in rows if row["is_indexed"]})[:20]:
        segment = api.get(f"/v1/segments/{key}")
        side_by_side = [
            (page["group"], page["page"])
            for unit in (segment["block"], segment["checkpoint"])
            if unit
            for page in unit["pages"]
        ]
        listed = [(r["group"], r["page"]) for r in rows if r["key"] == key and r["is_indexed"]]
        assert sorted(side_by_side) == sorted(listed)
    held: Counter[tuple[str, int]] = Counter()
    for holder in (*api.every("/v1/sequences"), *api.every("/v1/leases")):
        for row in api.every("/v1/blocks", sequence=holder["id"]):
            held[row["group"], row["page"]] += 1
    for row in rows:
        details = api.get(f"/v1/blocks/{row['group']}/{row['page']}")
        assert len(details["holders"]) == held[row["group"], row["page"]], details


@pytest.mark.parametrize("seed", range(6))
def test_answers_equal_the_events_folded(seed: int, place: Place) -> None:
    with tempfile.TemporaryDirectory() as folder, served(place, Path(folder), busy=False) as api:
        player = Player(api.cache, seed)
        for _ in range(4):
            player.play(15)
            api.catch_up()
            check_pages(api)
        check_segments(api)
