"""The demo's scene of the fifth kind, DISK: pages lost, a prefix resumed from a folder, damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kvstrata import InvariantViolation, Request
from kvstrata.core.events import EventType, Reason, decode_payload
from kvstrata.core.keys import words_key
from kvstrata.eventstore.log import place_of, read_events
from kvstrata.tiers.checking import describe
from kvstrata.tiers.format import Fault, ObjectId
from kvstrata.tiers.local import LocalStore
from kvstrata.tiers.schema import parse_name
from kvstrata.tiers.store import StoredObject

from . import messages as m
from .dialogue import Conversation
from .places import flip_stored
from .report import DiskResult
from .screen import Bars
from .stage import Answer, Stage

__all__ = ["disk"]


def disk(stage: Stage, talk: Conversation) -> DiskResult:
    """Store what is sealed, lose the pages, go on from the folder, and flip a byte there.

    Args:
        stage: its engine is restarted twice, each time without the memory of its pages.
        talk: takes two turns. Its last one must not have computed a block again that was good: the
            index keeps the first, and what two requests computed by different steps differs by
            rounding.

    Mutates: the conversation, and the folder.
    """
    engine, settings = stage.engine, stage.settings
    with stage.screen.waiting("storing in a folder what is sealed"):
        engine.open(replace(settings.opening, spill="seal"))
        stored = engine.settle().stored
    pages_lost = _restart_without_pages(stage)
    with stage.screen.bars() as bars:
        resumed = stage.ask(talk, bars)
        read = engine.settle().read
        _restart_without_pages(stage)
        name, would_resume_at, reasons, recomputed = _damaged(stage, talk, bars)
        is_aside = any((settings.tier / "quarantine").iterdir())
        return DiskResult(
            stored_objects=stored,
            pages_lost=pages_lost,
            read_objects=read,
            resumed=resumed.result(),
            object=name,
            reason=", ".join(reasons),
            caught=reasons == [Reason.CHECKSUM_MISMATCH.name] and is_aside,
            would_resume_at=would_resume_at,
            recomputed=recomputed.result(),
        )


def _restart_without_pages(stage: Stage) -> int:
    """As when the host went down: log and folder are there, the pages' memory is not.

    Returns:
        Pages lost.
    """
    settings = stage.settings
    for pool in place_of(settings.directory, settings.shared_memory_root).pools.iterdir():
        pool.unlink()
    recovery = stage.engine.open(replace(settings.opening, spill="seal"))
    if recovery is None:
        raise InvariantViolation("disk: expected a recovery, found none")
    return sum(recovery.pages_lost.values())


def _damaged(stage: Stage, talk: Conversation, bars: Bars) -> tuple[str, int, list[str], Answer]:
    """Flip a byte in the last block that the next turn would load.

    Returns:
        Name of the object, where the turn would have resumed, as what it was found, the answer.
    """
    engine, settings = stage.engine, stage.settings
    prompt = talk.prompt()
    would_resume_at = engine.match(prompt).resume_at
    store = LocalStore(settings.tier)
    stored = _block_at(store, prompt, would_resume_at, f"seed-{settings.seed}")
    before = len(_reasons(settings.directory))
    fault = flip_stored(store, stored)
    if fault is not None:
        raise InvariantViolation(f"disk: expected a whole object, found {fault.detail}")
    answer = stage.ask(talk, bars)
    engine.flush()
    found = _reasons(settings.directory)[before:]
    digits = Path(stored.name).stem
    reasons = [reason if key == digits else f"{reason} of {key}" for key, reason in found]
    return stored.name, would_resume_at, reasons, answer


def _block_at(store: LocalStore, prompt: m.Tokens, end: int, weights: str) -> StoredObject:
    """The stored block of a prompt that ends at a position."""
    for stored in store.objects():
        told = describe(store, stored)
        if isinstance(told, Fault) or told.header.position != end:
            continue
        keys = Request(prompt, model="demo", weights=weights).keys(told.block_tokens)
        wanted = ObjectId(words_key(*keys[end // told.block_tokens - 1].tolist()), False)
        named = parse_name(stored.name)
        if named is not None and named[1] == wanted:
            return stored
    raise InvariantViolation(f"disk: expected a stored block that ends at {end}, found none")


def _reasons(directory: Path) -> list[tuple[str, str]]:
    """Every object that the log says failed: its key, and why."""
    return [
        (str(decode_payload(event)["key"]), Reason(int(event["reason"])).name)
        for batch in read_events(directory)
        for event in batch[batch["type"] == EventType.OBJECT_FAILED]
    ]
