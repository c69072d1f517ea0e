"""Acting on verdicts: what is bad is logged, withdrawn from the index, and never hit again."""

import numpy as np

from kvstrata.core.arena import Tables
from kvstrata.core.events import EventType, Reason
from kvstrata.core.layout import CacheLayout
from kvstrata.core.quarantine import quarantine
from kvstrata.core.room import STALE
from kvstrata.core.states import PageState
from kvstrata.core.words import PAGE_GENERATION, PAGE_STATE, POOL_FIRST, POOL_SLOTS

from .caller import CoreCaller, zeros
from .validating import Verdict

__all__ = ["withdraw"]


def withdraw(
    call: CoreCaller, layout: CacheLayout, verdicts: list[Verdict], tables: Tables
) -> bool:
    """Log every verdict and quarantine the pages that failed.

    Args:
        call: runs compiled calls.
        layout: the layout.
        verdicts: of one plan.
        tables: the tables the verdicts are about.

    Returns:
        Whether anything was withdrawn: then the request is to be planned anew. Where not, groups
        as a whole cannot be read now, or tables are broken: nothing must be reused.
    """
    done = False
    for verdict in verdicts:
        number = layout.group_id(verdict.group)
        page = verdict.slot
        if 0 < page < int(tables.pools[number, POOL_SLOTS]):
            row = tables.pages[int(tables.pools[number, POOL_FIRST]) + page]
            if row[PAGE_STATE] == PageState.SEALED and row[PAGE_GENERATION] == verdict.generation:
                done |= _quarantine(call, number, verdict)
                continue
            if verdict.layer == 0:
                continue  # the page has changed since its bytes were looked at
        payload = zeros(4)
        payload[:2] = verdict.expected, verdict.found
        payload[2] = verdict.layer << 32
        payload[3] = verdict.position
        slot = max(page, 0)
        reason = int(Reason[verdict.reason])
        call.note(EventType.VALIDATION_FAILED, payload, reason, number, slot)
    return done


def _quarantine(call: CoreCaller, group: int, verdict: Verdict) -> bool:
    reason = int(Reason[verdict.reason])
    words = np.array([reason, verdict.layer, verdict.expected, verdict.found], dtype=np.int64)
    code = call.run(
        quarantine, call.arena, call.ring, group, verdict.slot, verdict.generation, words
    )
    call.drain_limbo(code)
    return code != STALE
