"""One cell of the fault matrix: serve, plant a fault, serve again, and read what the log says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DeepseekV4ForCausalLM

from kvstrata import CacheConfig, CacheLayout, CacheManager, Kind, LogConfig, Plan, PoolSet, Request
from kvstrata.core.checks import LAYERS
from kvstrata.core.events import EVENT_DTYPE, EventType, Reason, decode_payload
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_GENERATION, PAGE_STATE, POOL_FIRST
from kvstrata.engines.transformers.calls import Call
from kvstrata.engines.transformers.engine import Engine, Generation
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model
from kvstrata.engines.transformers.stock import CallHistory, replay_stock
from kvstrata.eventstore.log import read_events
from tests.engines.helpers import same, tokens
from tests.eventstore.support import shared_corner

from .fault_matrix import FAULTS, KINDS, Donors, Page, newest_rows

__all__ = ["NO_FAULT", "Outcome", "Verdict", "layout", "run_cell"]

NO_FAULT = "none"
SLOTS = 40
NEW_TOKENS = 5
# The first prompt, of whole blocks, leaves checkpoints at 96 and at 112; the second resumes at 112.
FIRST, SECOND = 112, 126
# A text whose continuation, within these few tokens, every strong fault changes if it is not found.
TEXT, OTHER_TEXT = tokens(SECOND, seed=7), tokens(SECOND, seed=107)
WEIGHTS, OTHER_WEIGHTS = 3, 4
Verify = Literal["always", "never"]


@dataclass(frozen=True)
class Verdict:
    """What the log says of a page that failed validation."""

    group: str
    page: int
    reason: str
    layer: str

    @property
    def place(self) -> tuple[str, int]:
        """Group and page."""
        return self.group, self.page


@dataclass(frozen=True)
class Outcome:
    """What became of a hit on a page with a fault.

    Args:
        damaged: group and page of the fault.
        verdicts: every failed validation.
        fate: events of the damaged page from the fault on, until anything is computed again.
        resume_at: where the hit would have resumed.
        resumed_at: where it did.
        tokens_equal: whether the tokens are those of the stock cache fed the same calls.
        logits_equal: whether their logits are, in every bit.
    """

    damaged: tuple[str, int]
    verdicts: list[Verdict]
    fate: list[EventType]
    resume_at: int
    resumed_at: int
    tokens_equal: bool
    logits_equal: bool


def layout() -> CacheLayout:
    """The layout of the model of the matrix."""
    return layout_for_model(model_of(WEIGHTS))


@cache
def run_cell(kind: Kind, fault: str, verify_hits: Verify = "always") -> Outcome:
    """Plant a fault in the page of a kind that the next hit adopts, and serve that hit.

    Args:
        kind: of the page.
        fault: name of the fault, or NO_FAULT.
        verify_hits: whether hits are checked.
    """
    with one_thread(), _serving(model_of(WEIGHTS), TEXT, verify_hits) as stage:
        slot = stage.slot_of(kind)
        generation = stage.generation_of_sealed(kind, slot)
        resume_at = stage.plan().resume_at
        if fault != NO_FAULT:
            page = stage.page_of(kind, slot)
            before = page.bytes.clone()
            FAULTS[fault].plant(page, KINDS[kind], _donors(kind))
            assert not torch.equal(page.bytes, before), "the fault changes nothing in this page"
        planted = stage.manager.stats().last_seqno
        made, fed, calls = stage.serve(SECOND, NEW_TOKENS)
        stock = stock_logits(fed.tobytes(), calls)[-NEW_TOKENS:]
        events = stage.events_after(planted)
        return Outcome(
            damaged=(KINDS[kind].group, slot),
            verdicts=stage.verdicts(events),
            fate=stage.fate(events, kind, slot, generation),
            resume_at=resume_at,
            resumed_at=made.resumed_at,
            tokens_equal=made.tokens == stock.argmax(dim=-1).tolist(),
            logits_equal=same(made.logits, stock),
        )


class _Stage:
    """An engine with a log, which has served the first prompt."""

    def __init__(self, engine: Engine, text: NDArray[np.int32], directory: Path) -> None:
        self.engine = engine
        self.manager: CacheManager = engine.manager
        self._text = text
        self._directory = directory
        self._history = CallHistory()
        self.serve(FIRST, 1)

    def serve(
        self, length: int, new_tokens: int
    ) -> tuple[Generation, NDArray[np.int32], tuple[Call, ...]]:
        """Serve the beginning of the text.

        Returns:
            What it produced, all its tokens, and every call that its pages come from.
        """
        made = self.engine.generate(self._request(length), new_tokens)
        fed = np.concatenate([self._text[:length], np.array(made.tokens, np.int32)])
        return made, fed, tuple(self._history.add(fed, made.resumed_at, made.calls))

    def plan(self, max_resume: int | None = None) -> Plan:
        """What the second prompt would reuse."""
        return self.manager.match(self._request(SECOND, max_resume))

    def _request(self, length: int, max_resume: int | None = None) -> Request:
        prompt = self._text[:length]
        return Request(prompt, model="tiny", weights="tested", max_resume=max_resume)

    @property
    def pools(self) -> PoolSet:
        assert self.manager.pools is not None
        return self.manager.pools

    def slot_of(self, kind: Kind, blocks_before: int = 0) -> int:
        """The page of a kind that the second prompt would adopt, or one some blocks before it."""
        plan = self.plan()
        target = KINDS[kind]
        if not self.manager.layout.group(target.group).is_history:
            return self.manager.slots_of_image(plan.checkpoint[0])[target.group]
        block = int(plan.blocks[target.block - blocks_before, 0])
        number = self.manager.layout.group_id(target.group)
        return int(self.manager.tables.blocks.pages[block, number])

    def page_of(self, kind: Kind, slot: int) -> Page:
        plan = self.plan()
        group = self.manager.layout.group(KINDS[kind].group)
        return Page(self.pools, group.name, slot, newest_rows(group, plan.resume_at))

    def generation_of_sealed(self, kind: Kind, slot: int) -> int:
        number = self.manager.layout.group_id(KINDS[kind].group)
        row = self.manager.tables.pages[int(self.manager.tables.pools[number, POOL_FIRST]) + slot]
        assert row[PAGE_STATE] == PageState.SEALED
        return int(row[PAGE_GENERATION])

    def events_after(self, seqno: int) -> NDArray[np.void]:
        self.manager.flush()
        events = np.concatenate([np.zeros(0, EVENT_DTYPE), *read_events(self._directory)])
        return events[events["seqno"] > seqno]

    def fate(
        self, events: NDArray[np.void], kind: Kind, slot: int, generation: int
    ) -> list[EventType]:
        """Events of a page until the sequence begins, which is before anything is computed."""
        begun = events["seqno"][events["type"] == EventType.SEQUENCE_BEGUN].min()
        number = self.manager.layout.group_id(KINDS[kind].group)
        ours = (events["seqno"] < begun) & (events["group"] == number) & (events["page"] == slot)
        # A verdict is logged without the generation, with the page's own next event behind it.
        ours &= (events["generation"] == generation) | (
            events["type"] == EventType.VALIDATION_FAILED
        )
        return [EventType(int(event)) for event in events["type"][ours]]

    def verdicts(self, events: NDArray[np.void]) -> list[Verdict]:
        names = [group.name for group in self.manager.layout.groups]
        found = []
        for event in events[events["type"] == EventType.VALIDATION_FAILED]:
            number = int(decode_payload(event)["layer"])
            reason = Reason(int(event["reason"])).name
            layer = LAYERS.get(number, str(number))
            found.append(Verdict(names[int(event["group"])], int(event["page"]), reason, layer))
        return found


@contextmanager
def _serving(
    model: DeepseekV4ForCausalLM, text: NDArray[np.int32], verify_hits: Verify = "always"
) -> Iterator[_Stage]:
    with shared_corner() as corner:
        log = LogConfig(ring_events=4096, segment_bytes=1 << 20, shared_memory_root=corner)
        config = CacheConfig(
            slots={group.name: SLOTS for group in layout().groups},
            max_sequences=2,
            max_tokens_per_sequence=256,
            verify_hits=verify_hits,
            log=log,
        )
        with CacheManager.open(layout(), config, corner / "log", pools="shared") as manager:
            yield _Stage(Engine(model, manager), text, corner / "log")


@cache
def _donors(kind: Kind) -> Donors:
    """Copies of the pages that a fault puts in the place of the right one."""
    with _serving(model_of(WEIGHTS), OTHER_TEXT) as stage:
        other_request = _copy(stage, kind, stage.slot_of(kind))
    with _serving(model_of(OTHER_WEIGHTS), TEXT) as stage:
        other_version = _copy(stage, kind, stage.slot_of(kind))
    with _serving(model_of(WEIGHTS), TEXT) as stage:
        if stage.manager.layout.group(KINDS[kind].group).is_history:
            before = _copy(stage, kind, stage.slot_of(kind, blocks_before=1))
        else:
            before = _image_a_window_before(stage, kind)
    return Donors(before, other_request, other_version)


def _image_a_window_before(stage: _Stage, kind: Kind) -> Page:
    """The state of the same prompt, one window before the checkpoint that the hit adopts."""
    group = stage.manager.layout.group(KINDS[kind].group)
    end = stage.plan().resume_at - (group.window if kind is Kind.SWA else group.ratio)
    sequence = stage.manager.begin(stage.plan(max_resume=end))
    if sequence.position < end:
        stage.engine.forward(sequence, TEXT[sequence.position : end])
    page = _copy(stage, kind, stage.manager.image_slots(sequence)[group.name])
    sequence.cancel()
    return page


def _copy(stage: _Stage, kind: Kind, slot: int) -> Page:
    group = stage.manager.layout.group(KINDS[kind].group)
    pools = PoolSet.allocate(
        stage.manager.layout, {each.name: 2 for each in stage.manager.layout.groups}
    )
    pools.storage(group.name)[1] = stage.pools.storage(group.name)[slot]
    return Page(pools, group.name, 1, newest_rows(group, stage.plan().resume_at))


@cache
def model_of(seed: int) -> DeepseekV4ForCausalLM:
    return build_tiny_model(seed, torch.bfloat16)


@cache
def stock_logits(fed: bytes, calls: tuple[Call, ...]) -> Tensor:
    return replay_stock(model_of(WEIGHTS), np.frombuffer(fed, np.int32), calls)


@contextmanager
def one_thread() -> Iterator[None]:
    """Products of one shape split over threads by load would not be reproducible."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
