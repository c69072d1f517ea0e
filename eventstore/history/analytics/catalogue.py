"""The queries: one ``.sql`` file each, and here what may be set, what it gives, what it reads."""

from typing import Final

from kvstrata.core.events import PAGE_EVENTS_END, EventType

from .query import Column, Feed, Parameter, Query

__all__ = ["queries"]

_LAST: Final = Parameter(
    "last_s", "float", 0.0, "Only what happened in so many seconds before the last event; 0: all."
)
_BUCKET: Final = Parameter(
    "bucket_s", "int", 60, "Seconds that a row's events happened in.", least=1, most=1e7
)
_GROUP: Final = Parameter("group", "text", "", "Only this group; empty: all.")
_TIME: Final = Column("time", "time", "Where the stretch of time begins.")
_OF_GROUP: Final = (
    Column("group", "name", "Of the layout."),
    Column("kind", "name", "Of the group."),
)
_REASON: Final = Column("reason", "name", "Why.")
_E = EventType
_OF_PAGES: Final = tuple(kind for kind in EventType if kind < PAGE_EVENTS_END)


def queries() -> tuple[Query, ...]:
    """Every query, by name."""
    found = (*_of_pages(), *_of_requests(), *_of_faults(), *_of_transfers())
    return tuple(sorted(found, key=lambda query: query.name))


def _of_pages() -> tuple[Query, ...]:
    pages, size = Column("pages", "1", "Pages."), Column("bytes", "bytes", "Of those pages.")
    return (
        Query(
            "page_states",
            "Pages by state over time",
            (_BUCKET, _LAST, _GROUP),
            (
                _TIME,
                *_OF_GROUP,
                Column("state", "name", "Of the pages, at the end of the stretch."),
                pages,
                size,
            ),
            Feed(_OF_PAGES, ("group", "page", "state"), knows_pages=True),
        ),
        Query(
            "pages",
            "The state of every page now",
            (_GROUP, Parameter("state", "text", "", "Only pages of this state; empty: all.")),
            (
                *_OF_GROUP,
                Column("page", "1", "Slot in the group's pool."),
                Column("state", "name", "After the last durable event."),
                Column("generation", "1", "Of the page."),
                Column("seqno", "1", "Of the event that told it last."),
                Column("time", "time", "Of that event; empty where the log no longer holds it."),
            ),
            Feed(_OF_PAGES, ("group", "page", "state", "generation"), knows_pages=True),
        ),
        Query(
            "page_history",
            "Every event of one page",
            (Parameter("page", "int", 1, "Slot in the group's pool.", least=1), _GROUP, _LAST),
            (
                Column("time", "time", "Of the event."),
                Column("seqno", "1", "Of the event."),
                Column("group", "name", "Of the layout."),
                Column("type", "name", "What happened."),
                Column("state", "name", "After the event."),
                Column("generation", "1", "Of the page."),
                _REASON,
                Column("references", "1", "Of the page's block or image, after the event."),
            ),
            Feed(
                _OF_PAGES,
                ("group", "page", "state", "generation", "reason", "references"),
                equal=("page",),
            ),
        ),
        Query(
            "evictions",
            "Evicted pages, and their age since they were sealed",
            (_BUCKET, _LAST),
            (
                _TIME,
                *_OF_GROUP,
                pages,
                size,
                Column("age_p50", "seconds", "Half of them were no older."),
                Column("age_p90", "seconds", "Nine of ten were no older."),
                Column("age_max", "seconds", "The oldest one's."),
            ),
            Feed((_E.PAGE_SEALED, _E.PAGE_FREED), ("group", "page", "reason")),
        ),
    )


def _of_requests() -> tuple[Query, ...]:
    resumed = ("resume_at", "reused", "loaded", "prompt", "kept", "source")
    return (
        Query(
            "hits",
            "Where the tokens of prompts came from",
            (_BUCKET, _LAST),
            (
                _TIME,
                Column("requests", "1", "That began."),
                Column("hits", "1", "Of them, that reused anything."),
                Column("prompt_tokens", "tokens", "Of their prompts."),
                Column("device_tokens", "tokens", "That lay on the device."),
                Column("tier_tokens", "tokens", "That were loaded from a lower tier."),
                Column("suspended_tokens", "tokens", "Their own, from before they were suspended."),
                Column("computed_tokens", "tokens", "The rest."),
                Column("recomputed_tokens", "tokens", "Of the rest, for want of state alone."),
                Column("hit_ratio", "1", "Tokens not computed, to tokens of prompts."),
            ),
            Feed((_E.REQUEST_RESUMED,), resumed),
        ),
        Query(
            "resume_lengths",
            "How far requests resumed and reused pages",
            (_LAST,),
            (
                Column("at_least", "tokens", "Lengths from here,"),
                Column("below", "tokens", "to here."),
                Column("source", "name", "What the request resumed on."),
                Column("resumes", "1", "Requests that resumed at so many tokens."),
                Column("hits", "1", "Requests that reused pages of so many tokens."),
            ),
            Feed((_E.REQUEST_RESUMED,), resumed),
        ),
        Query(
            "admission",
            "What admission said, and waits",
            (_BUCKET, _LAST),
            (
                _TIME,
                Column("decision", "name", "granted (after a wait), deferred or denied."),
                _REASON,
                Column("decisions", "1", "So many times; a request may be deferred often."),
                Column("requests", "1", "Different requests among them."),
                Column("wait_p50", "seconds", "Half waited no longer, or were to wait no longer."),
                Column("wait_p90", "seconds", "Nine of ten did."),
                Column("wait_max", "seconds", "The longest."),
                Column("waiting", "1", "Requests that waited then, at most."),
                Column("load_bytes", "bytes", "To copy or load before they compute."),
            ),
            Feed(
                (_E.ADMISSION_GRANTED, _E.ADMISSION_DEFERRED, _E.ADMISSION_DENIED),
                ("reason", "ticket", "wait_us", "waiting", "load_bytes"),
            ),
        ),
    )


def _of_faults() -> tuple[Query, ...]:
    return (
        Query(
            "failures",
            "Failed validations by layer, reason and kind",
            (_BUCKET, _LAST),
            (
                _TIME,
                Column("layer", "name", "Of validation; object: of an object of a lower tier."),
                _REASON,
                Column("kind", "name", "Of the page's group; DISK of an object."),
                Column("group", "name", "Of the layout."),
                Column("tier", "1", "Where it lay; 0 is the device."),
                Column("failures", "1", "So many."),
            ),
            Feed((_E.VALIDATION_FAILED, _E.OBJECT_FAILED), ("group", "tier", "reason", "layer")),
        ),
        Query(
            "drift",
            "Drift over time, of numbers, bytes and tables",
            (_BUCKET, _LAST),
            (
                _TIME,
                Column("drift", "name", "numeric, byte or projection."),
                *(_OF_GROUP[1], _OF_GROUP[0]),
                Column("layer", "1", "Of the model, of numeric drift."),
                Column("checked", "1", "Pages, or slices of the tables whose digest was logged."),
                Column("drifted", "1", "Of them, that differed."),
                Column("max_abs", "1", "Largest difference of an element, of numeric drift."),
                Column("cosine", "1", "Smallest cosine, of numeric drift."),
            ),
            Feed(
                (_E.NUMERIC_DRIFT, _E.SCRUBBED, _E.SLICE_DIGEST, _E.DIVERGENCE_REPORTED),
                ("group", "reason", "layer", "max_abs", "cosine", "pages", "bad"),
            ),
        ),
        Query(
            "recoveries",
            "Recoveries after a crash: what they kept and lost",
            (_LAST,),
            (
                Column("time", "time", "When it began."),
                Column("seqno", "1", "Of the event that says so."),
                Column("bytes_trusted", "1", "Whether sealed pages kept their bytes."),
                Column("kept", "pages", "Sealed pages still good; empty where it never ended."),
                Column("lost", "pages", "Pages lost."),
                Column("duration", "seconds", "Of clearing up; replay is before it."),
            ),
            Feed((_E.RECOVERY_BEGUN, _E.RECOVERY_ENDED), ("bytes_trusted", "kept", "lost")),
        ),
    )


def _of_transfers() -> tuple[Query, ...]:
    return (
        Query(
            "transfers",
            "Loads from lower tiers and spills to them",
            (_BUCKET, _LAST),
            (
                _TIME,
                Column("direction", "name", "load or spill."),
                Column("reason", "name", "Why it fell short; NONE where it did not."),
                Column("transfers", "1", "That ended."),
                Column("objects", "1", "Blocks and checkpoints."),
                Column("bytes", "bytes", "Of those objects."),
                Column("duration_p50", "seconds", "Half took no longer."),
                Column("duration_p90", "seconds", "Nine of ten took no longer."),
                Column("duration_max", "seconds", "The longest."),
            ),
            Feed((_E.LOAD_ENDED, _E.SPILL_ENDED), ("reason", "objects", "num_bytes", "micros")),
        ),
        Query(
            "activity",
            "Events by type and reason",
            (_BUCKET, _LAST),
            (
                _TIME,
                Column("type", "name", "What happened."),
                _REASON,
                Column("events", "1", "So many."),
            ),
            Feed(tuple(EventType), ("reason",)),
        ),
    )
