"""Each query answers what its words say, over events chosen one by one."""

from collections.abc import Iterator

import pytest

from kvstrata.core.arena import ArenaParams
from kvstrata.core.events import EventType as E
from kvstrata.core.events import Reason, ResumeSource
from tests.core.cases import CASES
from tests.eventstore.support import shared_corner

from .support import Story

LAYOUT = CASES["index"].layout
"""Groups c4, c4.index, swa and c4.tail."""
PARAMS: ArenaParams = CASES["index"].params


@pytest.fixture
def story() -> Iterator[Story]:
    with shared_corner() as corner:
        yield Story(corner, LAYOUT, PARAMS)


def test_failures_by_minute_layer_reason_and_kind(story: Story) -> None:
    mismatch = {"reason": Reason.CHECKSUM_MISMATCH, "group": 2, "page": 1}
    for at_s in (1, 2, 61):
        story.at(at_s, E.VALIDATION_FAILED, mismatch, layer=0)
    stale = {"reason": Reason.INDEX_STALE, "group": 1, "page": 1}
    story.at(62, E.VALIDATION_FAILED, stale, layer=1)
    story.at(63, E.OBJECT_FAILED, {"reason": Reason.OBJECT_TRUNCATED, "tier": 1})
    story.at(64, E.SCRUBBED, pages=1)
    words = ("time", "layer", "reason", "kind", "tier", "failures")
    assert [tuple(row[word] for word in words) for row in story.ask("failures")] == [
        (0, "bytes", "CHECKSUM_MISMATCH", "SWA", 0, 2),
        (60, "LCM block", "INDEX_STALE", "INDEXER", 0, 1),
        (60, "bytes", "CHECKSUM_MISMATCH", "SWA", 0, 1),
        (60, "object", "OBJECT_TRUNCATED", "DISK", 1, 1),
    ]
    assert [row["failures"] for row in story.ask("failures", last_s=2.5)] == [1, 1]
    assert [row["time"] for row in story.ask("failures", bucket_s="1")] == [1, 2, 61, 62, 63]


def test_hits_by_source_add_up_to_the_prompts(story: Story) -> None:
    story.at(1, E.REQUEST_RESUMED, prompt=1000, source=ResumeSource.COLD)
    story.at(
        2,
        E.REQUEST_RESUMED,
        prompt=2000,
        resume_at=1500,
        reused=1600,
        loaded=200,
        kept=300,
        source=ResumeSource.REPLAY,
    )
    (row,) = story.ask("hits")
    assert row == {
        "time": 0,
        "requests": 2,
        "hits": 1,
        "prompt_tokens": 3000,
        "device_tokens": 1000,
        "tier_tokens": 200,
        "suspended_tokens": 300,
        "computed_tokens": 1500,
        "recomputed_tokens": 100,
        "hit_ratio": 0.5,
    }
    sources = ("device_tokens", "tier_tokens", "suspended_tokens", "computed_tokens")
    assert sum(row[name] for name in sources) == row["prompt_tokens"]


def test_lengths_in_powers_of_two(story: Story) -> None:
    lengths = ((0, 0, 0), (1, 1, 1), (1023, 1024, 3), (1024, 1024, 2), (1024, 1025, 3))
    for resume_at, reused, source in lengths:
        story.at(
            1, E.REQUEST_RESUMED, prompt=4096, resume_at=resume_at, reused=reused, source=source
        )
    assert [tuple(row.values()) for row in story.ask("resume_lengths")] == [
        (0, 1, "cold", 1, 1),
        (1, 2, "history", 1, 1),
        (512, 1024, "replay", 1, 0),
        (1024, 2048, "checkpoint", 1, 1),
        (1024, 2048, "replay", 1, 2),
    ]


def test_admission_says_who_waited_and_for_what(story: Story) -> None:
    for wait_s in (1, 2, 6):
        story.at(
            3, E.ADMISSION_DEFERRED, {"reason": Reason.BLOCKS}, ticket=5, wait_us=wait_s * 1e6,
            waiting=wait_s,
        )  # fmt: skip
    story.at(4, E.ADMISSION_GRANTED, ticket=5, wait_us=2_500_000, load_bytes=77)
    story.at(65, E.ADMISSION_DENIED, {"reason": Reason.DEADLINE}, ticket=6)
    rows = story.ask("admission")
    assert [(row["time"], row["decision"], row["reason"]) for row in rows] == [
        (0, "deferred", "BLOCKS"),
        (0, "granted", "NONE"),
        (60, "denied", "DEADLINE"),
    ]
    assert (rows[0]["decisions"], rows[0]["requests"], rows[0]["waiting"]) == (3, 1, 6)
    assert (rows[0]["wait_p50"], rows[0]["wait_max"]) == (2.0, 6.0)
    assert (rows[1]["wait_max"], rows[1]["load_bytes"]) == (2.5, 77)


def test_drift_of_all_three_kinds(story: Story) -> None:
    for max_abs, reason in ((0.25, Reason.NONE), (4.0, Reason.DRIFTED)):
        head = {"group": 0, "page": 3, "reason": reason}
        story.at(1, E.NUMERIC_DRIFT, head, max_abs=max_abs, cosine=1 - max_abs / 8, layer=1)
    story.at(2, E.SCRUBBED, pages=10, bytes=100, bad=1)
    story.at(3, E.SCRUBBED, pages=10, bytes=100, bad=0)
    story.at(5, E.DIVERGENCE_REPORTED, first=1, last=3)
    columns = ("drift", "kind", "layer", "checked", "drifted", "max_abs", "cosine")
    assert [tuple(row[name] for name in columns) for row in story.ask("drift")] == [
        ("byte", "", None, 20, 1, None, None),
        ("numeric", "COMPRESSED", 1, 2, 1, 4.0, 0.5),
        ("projection", "", None, 0, 1, None, None),
    ]


def test_recoveries_that_ended_and_one_that_did_not(story: Story) -> None:
    story.at(1, E.RECOVERY_BEGUN, bytes_trusted=1)
    story.at(1.5, E.RECOVERY_ENDED, kept=7, lost=2)
    story.at(90, E.RECOVERY_BEGUN)
    rows = story.ask("recoveries")
    assert [(row["bytes_trusted"], row["kept"], row["lost"]) for row in rows] == [
        (True, 7, 2),
        (False, None, None),
    ]
    assert rows[0]["duration"] == pytest.approx(0.5)
    assert rows[1]["duration"] is None


def test_transfers_by_direction_and_outcome(story: Story) -> None:
    story.at(1, E.LOAD_ENDED, objects=2, num_bytes=100, micros=1_000_000)
    story.at(2, E.LOAD_ENDED, objects=1, num_bytes=50, micros=3_000_000)
    story.at(3, E.LOAD_ENDED, {"reason": Reason.LOAD_DEADLINE}, objects=0)
    columns = ("direction", "reason", "transfers", "objects", "bytes", "duration_p50")
    assert [tuple(row[name] for name in columns) for row in story.ask("transfers")] == [
        ("load", "LOAD_DEADLINE", 1, 0, 0, 0.0),
        ("load", "NONE", 2, 3, 150, 2.0),
    ]


def test_events_are_counted_by_type(story: Story) -> None:
    story.at(0, E.SEQUENCE_BEGUN, sequence=(1 << 16) + 1, row=1, position=4)
    story.at(1, E.SCRUBBED, pages=1)
    assert [(row["type"], row["events"]) for row in story.ask("activity")] == [
        ("SEQUENCE_BEGUN", 1),
        ("SCRUBBED", 1),
    ]
    assert story.ask("page_history", page=1) == []
    assert story.ask("evictions") == []


def test_nothing_has_happened(story: Story) -> None:
    story.at(0, E.SCRUBBED)
    for query in ("failures", "hits", "admission", "evictions", "recoveries", "transfers"):
        assert story.ask(query) == []
    assert len(story.ask("pages")) == sum(PARAMS.slots.values()) - len(PARAMS.slots)
