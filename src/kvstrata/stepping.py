"""Steps of a batch: reserve, commit, abort. In order, several in flight."""

from collections import deque
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from kvstrata.core.captures import (
    CAPTURE_IMAGE,
    CAPTURE_SOURCE,
    CAPTURE_SUMS,
    plan_captures,
)
from kvstrata.core.commit import PROGRESS_WORDS, abort, commit
from kvstrata.core.commit_at_once import NOT_AT_ONCE, commit_at_once
from kvstrata.core.commit_check import IDS_DIFFER, IDS_MISSING, check_commit, complaint_about
from kvstrata.core.errors import ConfigError, StaleLease
from kvstrata.core.events import NO_CHECKSUM
from kvstrata.core.layout import CacheLayout
from kvstrata.core.quiet import commit_quietly
from kvstrata.core.reserve import NO_TOKENS, TWICE, reserve, take_blocks
from kvstrata.core.room import MORE, STALE
from kvstrata.core.steps import (
    ACCEPTED,
    ID,
    STATUS,
    STEP_ROW_WORDS,
    TOKENS,
    WORK_INDEX,
    WORK_ROW,
    WORK_SUMS,
)
from kvstrata.core.tokens import keep_tokens
from kvstrata.core.words import (
    Arena,
)

from .caller import CoreCaller, zeros
from .handles import Step
from .integers import int32s, int64s
from .prompts import NO_IDS, Prompts
from .storage import Storage

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["Stepper"]


class Stepper:
    """The steps of one manager.

    Args:
        manager: the manager.
        layout: its layout.
        call: runs compiled calls.
        steps: the step table.
        prompts: tokens of running sequences.
    """

    def __init__(
        self,
        manager: "CacheManager",
        layout: CacheLayout,
        call: CoreCaller,
        steps: Arena,
        prompts: Prompts,
    ) -> None:
        self._manager = manager
        self._layout = layout
        self._call = call
        self._steps = steps
        self._prompts = prompts
        self._marks = zeros(len(steps))
        self._in_flight: deque[Step] = deque()
        self._serial = 0
        self._work = zeros(2 * len(steps), WORK_SUMS + len(layout.history_groups))
        self._captures = zeros(len(self._work), CAPTURE_SUMS + max(len(layout.state_groups), 1))
        self._no_captures = self._captures[:0]
        self._numbers, self._progress = zeros(4), zeros(PROGRESS_WORDS)
        self.storage: Storage | None = None

    def reserve(self, sequences: npt.ArrayLike | Items[int], num_tokens: npt.ArrayLike) -> Step:
        """See :meth:`.manager.CacheManager.reserve`."""
        ids = int64s("sequences", sequences)
        tokens = int64s("num_tokens", num_tokens)
        if tokens.shape != ids.shape or len(ids) == 0:
            raise ConfigError(
                "expected as many num_tokens as sequences, at least one, found shapes "
                f"{ids.shape} and {tokens.shape}"
            )
        rows = zeros(len(ids), STEP_ROW_WORDS)
        call = self._call
        code = call.run(reserve, call.arena, self._steps, call.ring, rows, ids, tokens, self._marks)
        if code in (STALE, TWICE, NO_TOKENS):
            self._refuse(code, rows)
        try:
            while code == MORE:
                code = call.run(take_blocks, call.arena, call.ring, rows)
        except BaseException as error:
            call.interrupted("reserve", error)
            raise
        self._serial += 1
        step = Step(self._manager, self, self._serial, rows)
        self._in_flight.append(step)
        return step

    @staticmethod
    def _refuse(code: int, rows: Arena) -> NoReturn:
        culprit = rows[np.flatnonzero(rows[:, STATUS] == -1)[0]]
        identity, tokens = int(culprit[ID]), int(culprit[TOKENS])
        if code == STALE:
            raise StaleLease(f"expected ids of running sequences, found {identity:#x}")
        if code == TWICE:
            raise ConfigError(f"expected each sequence once in a step, found {identity:#x} twice")
        raise ConfigError(
            f"num_tokens: expected at least 1 for sequence {identity:#x}, found {tokens}"
        )

    def commit(
        self,
        step: Step,
        accepted: npt.ArrayLike | Items[int] | None,
        tokens: npt.ArrayLike | Items[int] | None,
    ) -> None:
        """See :meth:`.handles.Step.commit`."""
        call = self._call
        call.check()
        self._manager.apply_completions()
        step.check()
        if self._in_flight[0] is not step:
            raise StaleLease(
                f"step {step.serial}: steps commit in order, expected step "
                f"{self._in_flight[0].serial} first"
            )
        try:
            if not (accepted is None and self._at_once(step, tokens)):
                self._fully(step, accepted, tokens)
        except ConfigError:
            step.rows[:, ACCEPTED] = 0
            raise
        except BaseException as error:
            call.interrupted("commit", error)
            raise

    def _at_once(self, step: Step, tokens: npt.ArrayLike | Items[int] | None) -> bool:
        """Commit all of a step in one compiled call; False, and nothing changed, where it cannot.

        It can where nothing is sealed or logged, the common step; and where pages have no bytes.
        """
        call, prompts = self._call, self._prompts
        if self.storage is not None or not prompts.can_hash_outputs:
            return tokens is not None and self._quietly(step, tokens)
        ids = NO_IDS if tokens is None else int32s("tokens", tokens)
        if len(ids) and prompts.some_inside:
            return self._quietly(step, ids)
        numbers, progress = self._numbers, self._progress
        numbers[0], numbers[1] = step.serial, self._serial
        code = call.run(
            commit_at_once,
            call.arena,
            self._steps,
            call.ring,
            step.rows,
            numbers,
            ids,
            prompts.lengths,
            prompts.keys,
            prompts.open_tokens,
            prompts.functions,
            prompts.scratch,
            self._work,
            self._captures,
            progress,
            NO_CHECKSUM,
        )
        if code == NOT_AT_ONCE:
            return False
        if code == MORE:
            work, captures = self._work[: numbers[2]], self._captures[: numbers[3]]
            self._go_on(step, ids, work, captures, progress)
        self._ended(step)
        return True

    def _quietly(self, step: Step, tokens: npt.ArrayLike | Items[int]) -> bool:
        """Commit a step of which nothing is sealed or logged."""
        prompts = self._prompts
        if not commit_quietly(
            self._call.arena,
            self._steps,
            step.rows,
            step.serial,
            int32s("tokens", tokens),
            prompts.lengths,
            prompts.open_tokens,
        ):
            return False
        self._ended(step)
        return True

    def _ended(self, step: Step) -> None:
        self._in_flight.popleft()
        step.ended = True
        self._prompts.passed(step.rows, self._steps)
        self._manager.end_drained()

    def _fully(
        self,
        step: Step,
        accepted: npt.ArrayLike | Items[int] | None,
        tokens: npt.ArrayLike | Items[int] | None,
    ) -> None:
        rows = step.rows
        if accepted is None:
            rows[:, ACCEPTED] = rows[:, TOKENS]
        else:
            given = int64s("accepted", accepted)
            if given.shape != (len(rows),):
                raise ConfigError(f"accepted: expected {len(rows)} numbers, found {given.shape}")
            rows[:, ACCEPTED] = given
        self._commit(step, self._prompts.ids(rows, tokens))
        self._ended(step)

    def _commit(self, step: Step, ids: npt.NDArray[np.int32]) -> None:
        """A commit that seals, emits, or accepts in part."""
        work = self._work_of(step, ids)
        captures = self._capture(step.rows, work) if len(work) else self._no_captures
        self._go_on(step, ids, work, captures, zeros(PROGRESS_WORDS))

    def _go_on(
        self,
        step: Step,
        ids: npt.NDArray[np.int32],
        work: Arena,
        captures: Arena,
        progress: Arena,
    ) -> None:
        """Commit what was worked out, call by call."""
        call, rows = self._call, step.rows
        code = MORE
        while code == MORE:
            code = call.run(
                commit,
                call.arena,
                self._steps,
                call.ring,
                rows,
                step.serial,
                self._serial,
                work,
                captures,
                progress,
                NO_CHECKSUM if self.storage is None else 0,
            )
        if len(ids):
            keep_tokens(call.arena, rows, ids, self._prompts.lengths, self._prompts.open_tokens)

    def _work_of(self, step: Step, ids: npt.NDArray[np.int32]) -> Arena:
        """Blocks a commit seals, with their keys and checksums."""
        arena, rows, prompts = self._call.arena, step.rows, self._prompts
        arguments = (arena, self._steps, rows, step.serial, len(ids), prompts.lengths, prompts.keys)
        count = int(check_commit(*arguments, self._work))
        if count < 0:
            self._complain(count, rows, len(ids))
        if count > len(self._work):
            self._work = zeros(2 * count, self._work.shape[1])
            self._captures = zeros(2 * count, self._captures.shape[1])
            check_commit(*arguments, self._work)
        work = self._work[:count]
        if count:
            tables = self._manager.tables
            prompts.hash_outputs(arena, rows, ids, work, tables)
            work[:, WORK_SUMS:] = 0
            if self.storage is not None:
                blocks = tables.holder_blocks[work[:, WORK_ROW], work[:, WORK_INDEX]]
                work[:, WORK_SUMS:] = self.storage.block_checksums(blocks)
        return work

    def _complain(self, code: int, rows: Arena, num_ids: int) -> NoReturn:
        complaint, number = complaint_about(code)
        if complaint == IDS_DIFFER:
            raise ConfigError(
                f"tokens: expected {number} ids, those of every sequence that fits one after "
                f"another, found {num_ids}"
            )
        identity = int(rows[number, ID])
        if complaint == IDS_MISSING:
            raise ConfigError(
                f"tokens: sequence {identity:#x} has passed its prompt: expected the ids of the "
                "tokens this step computed, found none"
            )
        raise ConfigError(
            f"accepted: sequence {identity:#x} reserved {int(rows[number, TOKENS])} tokens; "
            f"expected at most that, and at most {self._layout.rollback_tokens} rolled back where "
            f"any is kept, found {int(rows[number, ACCEPTED])} accepted"
        )

    def _capture(self, rows: Arena, work: Arena) -> Arena:
        """Copy the state images that become checkpoints or rolling images with a commit."""
        if not self._layout.state_groups:
            return self._no_captures
        call = self._call
        captures = zeros(len(work), self._no_captures.shape[1])
        count = call.run(plan_captures, call.arena, self._steps, call.ring, rows, work, captures)
        captures = captures[:count]
        if self.storage is not None and count:
            images = captures[:, CAPTURE_IMAGE]
            self.storage.copy_images(captures[:, CAPTURE_SOURCE], images)
            captures[:, CAPTURE_SUMS:] = self.storage.image_checksums(images)
        return captures

    def abort(self, step: Step) -> None:
        """See :meth:`.handles.Step.abort`."""
        call = self._call
        call.check()
        self._manager.apply_completions()
        step.check()
        try:
            while not step.ended:
                latest = self._in_flight[-1]
                progress = zeros(PROGRESS_WORDS)
                code = MORE
                while code == MORE:
                    code = call.run(
                        abort,
                        call.arena,
                        self._steps,
                        call.ring,
                        latest.rows,
                        latest.serial,
                        progress,
                    )
                self._in_flight.pop()
                latest.ended = True
            self._manager.end_drained()
        except BaseException as error:
            call.interrupted("abort", error)
            raise

    def abort_all(self) -> None:
        """Abort every step in flight."""
        if self._in_flight:
            self.abort(self._in_flight[0])
