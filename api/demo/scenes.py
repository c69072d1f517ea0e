"""The demo's scenes: reuse, a crash, flipped bytes, and flipped bytes where nobody checks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

from kvstrata import InvariantViolation, Kind
from kvstrata.core.checks import LAYERS
from kvstrata.core.events import EventType, Reason, decode_payload
from kvstrata.eventstore.log import read_events

from ..directories import LogDirectory
from . import messages as m
from .dialogue import Conversation, conversations, system_prompt
from .process import EngineProcess
from .report import (
    FAULT_KINDS,
    ControlFault,
    CrashResult,
    FaultResult,
    NegativeControl,
    RequestResult,
)
from .stage import NUM_NEW_TOKENS, Answer, Stage

__all__ = ["control", "crash", "faults", "reuse"]

_TURNS = 2
_DECODED_BEFORE_CRASH = 12


class _Verdict(NamedTuple):
    """What the log says of a page that failed validation."""

    group: str
    page: int
    layer: str
    reason: str


def reuse(stage: Stage, talks: Sequence[Conversation]) -> list[RequestResult]:
    """Several conversations take turns.

    Returns:
        The requests: the system prompt first, then each turn of each conversation.

    Mutates: the conversations.
    """
    with stage.screen.bars() as bars:
        answers = [stage.prime(bars)]
        answers += [stage.ask(talk, bars) for _ in range(_TURNS) for talk in talks]
        return [answer.result() for answer in answers]


def crash(stage: Stage, talks: Sequence[Conversation], heir: EngineProcess) -> CrashResult:
    """Kill the engine in the middle of a step; another process takes its directory over.

    Args:
        stage: its engine dies; the heir takes its place.
        talks: the first one's turn is cut off and asked again, then each other takes a turn.
        heir: a process that has opened nothing yet.

    Mutates: the stage and the conversations.
    """
    screen = stage.screen
    talk = talks[0]
    prompt = talk.prompt()
    with screen.bars() as bars:
        # The prompt takes two steps, since one has to end where a checkpoint is taken.
        command = m.Serve(prompt, NUM_NEW_TOKENS, stop_in_step=2 + _DECODED_BEFORE_CRASH)
        on_step = bars.add(talk.label, len(prompt) + NUM_NEW_TOKENS)
        steps = stage.engine.kill_inside_step(command, on_step)
    committed, in_flight = steps[:-1], steps[-1:]
    where = in_flight[0].start
    screen.say(f"killed process {stage.engine.pid} inside the step at position {where:,}")
    within = [step for step in committed if step.start + step.num_tokens <= len(prompt)]
    stage.witness.follow(prompt, within)
    stage.engine = heir
    with screen.waiting("restarting the engine on the same directory"):
        recovery = heir.open(stage.settings.opening)
    if recovery is None:
        raise InvariantViolation("crash: expected a recovery, found none")
    with screen.bars() as bars:
        answers = [stage.ask(talk, bars) for talk in talks]
        found = [answer.result() for answer in answers]
    return CrashResult(
        events_replayed=recovery.log.events_replayed,
        seconds=recovery.log.seconds,
        pages_kept=recovery.pages_kept,
        pages_lost=sum(recovery.pages_lost.values()),
        pages_lost_by_fate=recovery.pages_lost,
        sequences_ended=recovery.sequences_ended,
        steps_in_flight=len(in_flight),
        hit_tokens_after=sum(request.resumed_at for request in found),
        identical=all(request.identical for request in found),
        requests=found,
    )


def faults(stage: Stage, talks: Sequence[Conversation]) -> list[FaultResult]:
    """Flip a byte in a page of each kind, each time in what one conversation would resume from.

    Args:
        stage: the engine checks every hit.
        talks: as many as kinds.

    Mutates: the conversations.
    """
    served: list[tuple[m.Place, Answer, list[_Verdict]]] = []
    with stage.screen.bars() as bars:
        for name, talk in zip(FAULT_KINDS, talks, strict=True):
            place = stage.engine.find(Kind[name], talk.prompt())
            before = len(_verdicts(stage))
            stage.engine.flip(place)
            answer = stage.ask(talk, bars)
            served.append((place, answer, _verdicts(stage)[before:]))
        return [_fault(place, answer.result(), verdicts) for place, answer, verdicts in served]


def _fault(place: m.Place, request: RequestResult, verdicts: list[_Verdict]) -> FaultResult:
    expected = _Verdict(place.group, place.page, "bytes", Reason.CHECKSUM_MISMATCH.name)
    return FaultResult(
        kind=place.kind.name,
        group=place.group,
        page=place.page,
        layer=verdicts[0].layer if verdicts else "",
        reason=verdicts[0].reason if verdicts else "",
        caught=verdicts == [expected],
        would_resume_at=place.resume_at,
        resumed_at=request.resumed_at,
        identical=request.identical,
    )


def _verdicts(stage: Stage) -> list[_Verdict]:
    """Every failed validation that the log tells of, as any other reader of it sees them."""
    stage.engine.flush()
    directory = stage.settings.directory
    names = LogDirectory.read(directory).group_names
    found = []
    for batch in read_events(directory):
        for event in batch[batch["type"] == EventType.VALIDATION_FAILED]:
            number = int(decode_payload(event)["layer"])
            layer = LAYERS.get(number, str(number))
            reason = Reason(int(event["reason"])).name
            found.append(_Verdict(names[int(event["group"])], int(event["page"]), layer, reason))
    return found


def control(stage: Stage) -> NegativeControl:
    """Flip the same bytes where nobody checks: the comparison must come out false.

    The engine opens a cache of its own, without a log, so that no damage stays behind.

    Args:
        stage: its engine closes the cache it has.
    """
    opening = replace(stage.settings.opening, directory=None, tier=None, verify_hits="never")
    stage.engine.open(opening)
    prompt = conversations()[0].prompt()
    resume_at = len(system_prompt())
    command = m.Serve(prompt, NUM_NEW_TOKENS, max_resume=resume_at)
    damaged: list[tuple[m.Place, Future[bool]]] = []
    with stage.screen.bars() as bars:
        unharmed = [stage.prime(bars).identical, stage.serve(command, "undamaged", bars)[1]]
        for name in FAULT_KINDS:
            place = stage.engine.find(Kind[name], prompt, resume_at)
            stage.engine.flip(place)
            damaged.append((place, stage.serve(command, f"damaged {name}", bars)[1]))
            stage.engine.flip(place)
        unharmed.append(stage.serve(command, "repaired", bars)[1])
        found = [
            ControlFault(place.kind.name, place.group, place.page, identical.result())
            for place, identical in damaged
        ]
        unharmed_identical = all(identical.result() for identical in unharmed)
    return NegativeControl(
        verify_hits=opening.verify_hits,
        identical=any(fault.identical for fault in found),
        unharmed_identical=unharmed_identical,
        faults=found,
    )
