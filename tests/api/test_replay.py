from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kvstrata import CacheConfig, CacheManager, InvariantViolation, LogConfig, Request
from kvstrata.api.replay import replaying
from kvstrata.api.replay.ledger import Ledger
from kvstrata.api.replay.newest import newest_events
from kvstrata.api.replay.turns import Turns
from kvstrata.api.traces import Trace, read_trace
from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import META_LAST_SEQNO
from kvstrata.eventstore.log import read_events

from .replays import BLOCK, FULL, HYBRID, PLENTY, random_lines, replayed, write_trace

if TYPE_CHECKING:
    from .conftest import CommandLine

KEYS = [
    "requests",
    "refused",
    "prompt_tokens",
    "hit_tokens",
    "saved_tokens",
    "hits",
    "recomputed_tokens",
    "evictions",
    "loads",
    "load_bytes",
    "stored_bytes",
    "stored_tokens",
    "events",
    "log_bytes",
    "run_requests",
    "manager_cpu_us_per_request",
    "stored_bytes_per_token",
    "recomputed_tokens_per_hit",
]
FIRST = list(range(300))
SAID = list(range(1000, 1020))
THEN = [*FIRST, *SAID, *range(2000, 2080)]
CHAT = [
    {"tokens": FIRST, "output": SAID, "session": "a"},
    {"tokens": THEN, "output": 1, "session": "a"},
    {"tokens": THEN, "output": 1, "session": "a"},
    {"tokens": list(range(5000, 5100)), "output": 3},
]
"""In blocks of 128: 320 tokens are kept of the first, so the second hits 256; the third hits 384,
for one of its 400 is always computed; the last hits nothing."""


def test_what_can_be_reckoned_by_hand(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    trace = write_trace(tmp_path / "chat.jsonl", *CHAT)
    options = ("--budget", "4GB", "--concurrency", "2", "--shared-memory-root", shared_root)
    found = kvstrata("replay", trace, *options, "--dir", tmp_path / "log", "--json")
    assert (found.code, found.err) == (0, "")
    totals = found.json
    assert list(totals) == KEYS
    assert totals.pop("manager_cpu_us_per_request") > 0
    segments = list((tmp_path / "log").rglob("*.seg"))
    stored = list(read_events(tmp_path / "log"))
    assert totals == {
        "requests": 4,
        "refused": 0,
        "prompt_tokens": 300 + 400 + 400 + 100,
        "hit_tokens": 256 + 384,
        "saved_tokens": 256 + 384,
        "hits": 2,
        "recomputed_tokens": 0,
        "evictions": 0,
        "loads": 0,
        "load_bytes": 0,
        "stored_bytes": 0,
        "stored_tokens": 0,
        "events": int(stored[-1]["seqno"][-1]),
        "log_bytes": sum(path.stat().st_size for path in segments),
        "run_requests": 4,
        "stored_bytes_per_token": None,
        "recomputed_tokens_per_hit": 0.0,
    }
    assert segments


def test_people_get_a_table(kvstrata: CommandLine, tmp_path: Path, shared_root: Path) -> None:
    long = {"tokens": [1] * 200_000}
    trace = write_trace(tmp_path / "[b]{chat}.jsonl", *CHAT, long)
    options = ("--budget", "1GB", "--concurrency", "2", "--shared-memory-root", shared_root)
    found = kvstrata("replay", trace, *options)
    assert (found.code, found.err) == (0, "")
    for line in (
        "requests       4 of 5, 1 do not fit the budget",
        "prompt tokens  1,200",
        "hit tokens     640 (53.3%)",
        "saved tokens   640 (53.3%)",
        "us a request",
    ):
        assert line in found.out


@pytest.mark.parametrize(("budget", "concurrency"), [("1GB", 64), ("0", 1), ("4GB", 1024)])
def test_a_budget_that_does_not_suffice_is_said_by_options(
    kvstrata: CommandLine, tmp_path: Path, budget: str, concurrency: int
) -> None:
    trace = write_trace(tmp_path / "chat.jsonl", *CHAT)
    options = ("--budget", budget, "--concurrency", concurrency, "--dir", tmp_path / "log")
    said = kvstrata.refuses("replay", trace, *options)
    assert "--budget: expected at least" in said
    assert f"for {concurrency} sequences" in said
    assert "raise the budget or lower --concurrency" in said
    assert not (tmp_path / "log").exists()


def prefix_model(trace: Trace) -> int:
    """Tokens hit, one request after another, by a cache that keeps every whole block."""
    texts: list[np.ndarray[Any, Any]] = []
    hits = 0
    turns = Turns(trace, 1)
    while (turn := turns.next()) is not None:
        request = turns.request(turn)
        prompt = request.prompt()
        best = 0
        for text in texts:
            most = min(len(text), len(prompt) - 1)
            same = text[:most] == prompt[:most]
            best = max(best, most if same.all() else int(np.argmin(same)))
        hits += best // BLOCK * BLOCK
        texts.append(np.concatenate([prompt, request.output()]))
        turns.ended(turn)
    return hits


@pytest.mark.parametrize("seed", range(6))
def test_hits_are_those_of_the_longest_common_prefixes(
    tmp_path: Path, shared_root: Path, seed: int
) -> None:
    trace = read_trace(write_trace(tmp_path / "trace.jsonl", *random_lines(seed)))
    found = replayed(trace, tmp_path / "log", shared_root)
    assert (found.requests, found.refused, found.evictions) == (40, 0, 0)
    assert found.hit_tokens == prefix_model(trace) > 0
    assert found.saved_tokens == found.hit_tokens
    assert found.prompt_tokens == sum(request.prompt_tokens for request in trace.requests())


@pytest.mark.parametrize("budget", [20_000, 1_000_000])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_saved_is_what_was_not_computed(
    tmp_path: Path,
    shared_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    budget: int,
    concurrency: int,
) -> None:
    """Ways by checkpoint, by computing again for state, and cold ones."""
    plans = []
    plain = CacheManager.begin

    def begin(self: CacheManager, plan: Any) -> Any:
        sequence = plain(self, plan)
        plans.append(sequence.plan)
        return sequence

    monkeypatch.setattr(CacheManager, "begin", begin)
    trace = write_trace(tmp_path / "trace.jsonl", *random_lines(7, requests=60))
    found = replayed(trace, tmp_path / "log", shared_root, HYBRID, budget, concurrency)
    assert found.requests == len(plans) == 60
    assert found.hit_tokens == sum(plan.reused_tokens for plan in plans)
    assert found.saved_tokens == sum(plan.resume_at for plan in plans)
    assert found.saved_tokens < found.hit_tokens
    assert {plan.source for plan in plans} == {"checkpoint", "replay", "cold"}


def test_evictions_are_pages_of_units(tmp_path: Path, shared_root: Path) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", *random_lines(3, requests=60))
    budget = 30 * FULL.block_bytes
    found = replayed(trace, tmp_path / "log", shared_root, budget=budget, concurrency=2)
    events = np.concatenate(list(read_events(tmp_path / "log")))
    freed = events[events["type"] == EventType.PAGE_FREED]
    assert found.evictions == np.count_nonzero(freed["reason"] == Reason.EVICTED) > 0


def test_requests_that_never_fit_are_refused_and_the_rest_is_served(
    tmp_path: Path, shared_root: Path
) -> None:
    blocks = 8
    most = blocks * BLOCK
    lines = [
        {"tokens": list(range(most - 1)), "output": 1, "session": 1},
        {"tokens": list(range(most)), "output": 1, "session": 1},
        {"tokens": list(range(most - 1)), "output": 2, "session": 1},
        {"tokens": list(range(most - 1)), "output": 1, "session": 1},
        {"tokens": list(range(100_000)), "output": 1},
    ]
    trace = write_trace(tmp_path / "trace.jsonl", *lines)
    budget = (blocks + 1) * FULL.block_bytes  # and the scratch page
    found = replayed(trace, tmp_path / "log", shared_root, budget=budget)
    assert (found.requests, found.refused) == (2, 3)
    assert found.prompt_tokens == 2 * (most - 1)
    assert found.hit_tokens == most - BLOCK


def test_where_nothing_fits_nothing_is_served(tmp_path: Path, shared_root: Path) -> None:
    trace = write_trace(tmp_path / "trace.jsonl", {"tokens": [1] * 100}, {"tokens": [1] * 200})
    found = replayed(trace, tmp_path / "log", shared_root, budget=3 * FULL.block_bytes)
    assert (found.requests, found.refused) == (0, 2)
    assert found.manager_cpu_us_per_request is None


def test_those_that_have_to_wait_are_served(tmp_path: Path, shared_root: Path) -> None:
    """Room for one request at a time, where many would run at once."""
    lines = [{"tokens": [number] * 20, "output": 12, "session": number} for number in range(12)]
    trace = write_trace(tmp_path / "trace.jsonl", *lines)
    budget = (8 + 1) * FULL.block_bytes
    found = replayed(trace, tmp_path / "log", shared_root, budget=budget, concurrency=12)
    assert (found.requests, found.refused) == (12, 0)
    events = np.concatenate(list(read_events(tmp_path / "log")))
    kinds = events["type"].tolist()
    assert kinds.count(EventType.ADMISSION_DEFERRED) == kinds.count(EventType.ADMISSION_GRANTED)
    assert kinds.count(EventType.ADMISSION_DEFERRED) == 11


def room(concurrency: int, blocks: int) -> int:
    """Bytes for so many blocks, and a third as much for checkpoints."""
    private = 2 * concurrency * HYBRID.image_bytes
    return private + HYBRID.block_bytes + HYBRID.image_bytes + blocks * HYBRID.block_bytes * 4 // 3


@pytest.mark.parametrize(
    ("seed", "concurrency", "ring"), [(1, 1, 512), (2, 3, 1024), (3, 16, 1 << 19)]
)
def test_what_is_read_live_is_what_the_log_says(
    tmp_path: Path,
    shared_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    concurrency: int,
    ring: int,
) -> None:
    """Also where the ring goes round many times."""
    monkeypatch.setattr(replaying, "RING_EVENTS", ring)
    trace = read_trace(write_trace(tmp_path / "trace.jsonl", *random_lines(seed, requests=60)))
    directory = tmp_path / "log"
    budget = room(concurrency, blocks=40)
    found = replayed(trace, directory, shared_root, HYBRID, budget, concurrency)
    assert found.requests == 60
    assert found.events > 1500
    assert found.evictions > 0
    batches = list(read_events(directory))
    events = np.concatenate(batches)
    begun = events[events["type"] == EventType.SEQUENCE_BEGUN][0]
    ledger = Ledger(Turns(trace, concurrency), HYBRID, begun.tobytes()[48:])
    for batch in batches:
        ledger.read(batch)
    assert ledger.is_closed
    assert ledger.seqno == found.events
    for name in ("requests", "prompt_tokens", "hit_tokens", "saved_tokens", "evictions"):
        assert getattr(ledger, name) == getattr(found, name)


def test_events_that_were_overwritten_are_never_counted(shared_root: Path, tmp_path: Path) -> None:
    """They would be others by then."""
    log = LogConfig(ring_events=512, shared_memory_root=shared_root)
    config = CacheConfig(budget_bytes=PLENTY, max_sequences=1, log=log)
    with CacheManager.open(FULL, config, tmp_path / "log") as cache:
        request = Request(np.arange(1200), model="attention")
        sequence = cache.begin(cache.match(request))
        for _ in range(8):
            cache.reserve([sequence.id], [150]).commit()
        head = int(cache.arena[META_LAST_SEQNO])
        assert head > 512
        (*_, last) = newest_events(cache, head - 512)
        assert last["seqno"][-1] == head
        with pytest.raises(InvariantViolation, match="overwritten"):
            next(newest_events(cache, head - 513))


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_turns_go_round_the_open_sessions(
    tmp_path: Path, shared_root: Path, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    """The next request of a session only after its answer; a new session when one is through."""
    begun: list[int] = []
    plain = Request.__post_init__

    def noted(self: Request) -> None:
        plain(self)
        if len(self.tokens) > 1:
            begun.append(int(self.tokens[0]))

    monkeypatch.setattr(Request, "__post_init__", noted)
    lines = [
        {"tokens": [10 * session + place] * 2, "output": 3, "session": session}
        for place in range(2)
        for session in range(4)
    ]
    trace = write_trace(tmp_path / "trace.jsonl", *lines)
    replayed(trace, tmp_path / "log", shared_root, concurrency=concurrency)
    assert (
        begun
        == {
            1: [0, 1, 10, 11, 20, 21, 30, 31],
            2: [0, 10, 1, 11, 20, 30, 21, 31],
            5: [0, 10, 20, 30, 1, 11, 21, 31],
        }[concurrency]
    )
