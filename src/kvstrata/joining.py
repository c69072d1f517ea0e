"""Joining a prefix that another sequence is computing now: wait for it, do not compute it twice."""

import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import Deferred
from kvstrata.core.events import EventType, Reason
from kvstrata.core.index import find_unit
from kvstrata.core.planner import rates_of
from kvstrata.core.steps import NUM_CAPTURES, STEP_CAPTURES, STEP_PENDING, STEP_POSITION
from kvstrata.core.words import HOLDER_ID, HOLDER_KIND, HOLDER_SEQUENCE, HOLDER_TAINTED

from .caller import CoreCaller, zeros
from .requests import Join, Plan, Request

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["Joiner"]

_PATIENCE_S: Final = 1.0
"""How long a sequence that is waited for may stand still."""
_LEAST_WAIT_S: Final = 0.001


@dataclass
class _Waiter:
    """A request that waits for a sequence.

    Attributes:
        request: to tell it from a later one in the same place of memory.
        since_s: when it first waited.
        moved_s: when the sequence was last seen to have moved.
        position: where it stood then.
    """

    request: weakref.ref[Request]
    since_s: float
    moved_s: float
    position: int


class Joiner:
    """Finds what to wait for, and says when to look again.

    Args:
        manager: the manager.
        call: runs compiled calls.
    """

    def __init__(self, manager: "CacheManager", call: CoreCaller) -> None:
        self._manager = manager
        self._call = call
        self._waiters: dict[int, _Waiter] = {}

    def find(self, plan: Plan) -> Join | None:
        """The running sequence that is computing most of a plan's prefix, where waiting pays.

        It pays where that sequence stands further in the prefix than the plan would resume: what is
        left of it is then there no later than this request could have computed it. One that stands
        still is not waited for.

        Returns:
            The sequence, the tokens it will have, and how long that takes; None where none pays.
        """
        manager = self._manager
        tokens, request = manager.layout.block_tokens, plan.request
        limit = (plan.prompt_tokens - 1) // tokens
        if request.max_resume is not None:
            limit = min(limit, request.max_resume // tokens)
        best: Join | None = None
        for row in manager.running_rows():
            holder = manager.tables.holders[row]
            if holder[HOLDER_KIND] != HOLDER_SEQUENCE or holder[HOLDER_TAINTED]:
                continue
            common = min(_common(plan.keys, manager.plan_of_row(row).keys), limit) * tokens
            position = int(manager._steps[row, STEP_POSITION])
            if common <= max(plan.history_tokens, position) or position <= plan.resume_at:
                continue
            if best is None or common > best.tokens:
                left = (common - position) / rates_of(manager.arena).tokens_per_s
                best = Join(int(holder[HOLDER_ID]), common, max(left, _LEAST_WAIT_S))
        return None if best is None or self._is_weary(request, best) else best

    def _waiter(self, request: Request) -> _Waiter | None:
        waiter = self._waiters.get(id(request))
        return waiter if waiter is not None and waiter.request() is request else None

    def _is_weary(self, request: Request, join: Join) -> bool:
        """Whether a request has waited past its deadline, or for a sequence that stands still."""
        waiter, now_s = self._waiter(request), time.monotonic()
        if waiter is None:
            return request.deadline_s == 0.0
        if request.deadline_s is not None and now_s - waiter.since_s > request.deadline_s:
            return True
        stands = int(self._manager._steps[join.sequence & 0xFFFF, STEP_POSITION]) == waiter.position
        return stands and now_s - waiter.moved_s > max(_PATIENCE_S, 2 * join.seconds)

    def wait(self, plan: Plan) -> None:
        """Let a request wait, if there still is something to wait for.

        Raises:
            Deferred: says when it will be there.
        """
        join, request = self.find(plan), plan.request
        if join is None:
            self._waiters.pop(id(request), None)
            return
        position = int(self._manager._steps[join.sequence & 0xFFFF, STEP_POSITION])
        waiter, now_s = self._waiter(request), time.monotonic()
        if waiter is None:
            self._drop_lost()
            self._waiters[id(request)] = _Waiter(weakref.ref(request), now_s, now_s, position)
            self._log(join)
        elif waiter.position != position:
            waiter.position, waiter.moved_s = position, now_s
        self._ask_for_checkpoint(plan, join)
        raise Deferred(
            f"sequence {join.sequence:#x} is computing this prefix up to token {join.tokens}: "
            f"match again in {join.seconds:.3f} s",
            join.seconds,
            1,
        )

    def _drop_lost(self) -> None:
        lost = [key for key, waiter in self._waiters.items() if waiter.request() is None]
        for key in lost:
            del self._waiters[key]

    def _log(self, join: Join) -> None:
        payload = zeros(4)
        payload[0] = join.sequence
        payload[3] = int(join.seconds * 1e6)
        self._call.note(EventType.ADMISSION_DEFERRED, payload, Reason.JOINING)

    def _ask_for_checkpoint(self, plan: Plan, join: Join) -> None:
        """Let the sequence that is waited for take a checkpoint where the waiter will resume."""
        manager = self._manager
        steps = manager._steps[join.sequence & 0xFFFF]
        key = plan.keys[join.tokens // manager.layout.block_tokens - 1]
        captures = steps[STEP_CAPTURES : STEP_CAPTURES + NUM_CAPTURES]
        passed = int(steps[STEP_POSITION] + steps[STEP_PENDING])
        if join.tokens in captures or not manager.layout.state_groups or join.tokens <= passed:
            return
        # What was passed is not wanted any more. With no place left the waiter replays a window.
        free = np.flatnonzero(captures <= int(steps[STEP_POSITION]))
        if len(free) and not find_unit(manager.arena, False, int(key[0]), int(key[1])):
            captures[free[-1]] = join.tokens


def _common(mine: npt.NDArray[np.int64], theirs: npt.NDArray[np.int64]) -> int:
    """How many leading keys two prompts share."""
    count = min(len(mine), len(theirs))
    same = np.all(mine[:count] == theirs[:count], axis=1)
    return count if same.all() else int(np.argmin(same))
