"""Handles an engine holds: sequences, steps, leases. Small values; the manager owns the state."""

from collections.abc import Mapping
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import ConfigError, StaleLease
from kvstrata.core.steps import ACCEPTED, FITS, ID, READ_IMAGE, START, STATUS, TOKENS, WRITE_IMAGE

from .integers import int32s

if TYPE_CHECKING:
    from .completions import Completions
    from .leasing import Lessor
    from .manager import CacheManager
    from .requests import Plan, Request
    from .stepping import Stepper
    from .topology import PoolAddress

__all__ = ["Lease", "Sequence", "Step", "Suspended", "Transfer"]


class Sequence:
    """A running request.

    Attributes:
        id: the manager's number for it, never used again.
        plan: the plan it really began on (its resume point may lie below the plan asked for where
            a page failed its checksum).
    """

    def __init__(self, manager: "CacheManager", identity: int, plan: "Plan") -> None:
        self._manager = manager
        self.id = identity
        self.plan = plan

    @property
    def position(self) -> int:
        """Committed tokens.

        Raises:
            StaleLease: the sequence has ended.
        """
        return self._manager.position(self.id)

    @property
    def resumed_at(self) -> int:
        """Where it resumed."""
        return self.plan.resume_at

    @property
    def origin(self) -> int:
        """Where its state begins: before it there are no rows of windows and tails; else 0."""
        return self.plan.resume_at if self.plan.source == "replay" else 0

    @property
    def protected(self) -> int:
        """Position below which history pages are shared: a step computes there for state alone."""
        return self.plan.reused_tokens

    @property
    def captures(self) -> tuple[int, ...]:
        """Positions at which a step must end so that a checkpoint is taken there."""
        return self._manager.captures(self.id)

    def finish(self) -> None:
        """End it normally: what it sealed stays findable, its rolling image becomes a checkpoint.

        Raises:
            StaleLease: it has ended, or steps of it are in flight.
        """
        self._manager.finish(self)

    def suspend(self) -> "Suspended":
        """End it for now; its exact state is kept, as long as there is room for it.

        Returns:
            What :meth:`.manager.CacheManager.resume` takes.

        Raises:
            StaleLease: it has ended, or steps of it are in flight.
        """
        return self._manager.suspend(self)

    def fork(self) -> "Sequence":
        """Begin another sequence from here, which shares what is sealed and copies what is open.

        Raises:
            StaleLease: it has ended, steps of it are in flight, or its prefix was withdrawn.
            OutOfPages: there is no row, image or block for one more; nothing changed.
        """
        return self._manager.fork(self)

    def cancel(self) -> None:
        """End it now; steps in flight may still touch its pages, which are freed after them.

        Raises:
            StaleLease: it has ended.
        """
        self._manager.cancel(self)

    def __repr__(self) -> str:
        return f"Sequence(id={self.id:#x}, resumed_at={self.resumed_at})"


class Suspended:
    """A sequence that was suspended.

    Attributes:
        request: its request.
        position: tokens it had computed.
        kept: whether its exact state was kept there.
    """

    def __init__(self, request: "Request", position: int, kept: bool) -> None:
        self.request = request
        self.position = position
        self.kept = kept
        self._resumed: Request | None = None

    def with_tokens(self, tokens: npt.ArrayLike | None) -> "Request":
        """Its request over prompt and output so far; see :meth:`.manager.CacheManager.resume`."""
        given = self.request.tokens if tokens is None else int32s("tokens", tokens)
        prompt = self.request.tokens
        if len(given) <= self.position:
            raise ConfigError(
                f"resume: expected more than the {self.position} tokens that were computed, found "
                f"{len(given)}; give prompt and output, with the token to compute next"
            )
        if not np.array_equal(given[: len(prompt)], prompt):
            raise ConfigError("resume: expected tokens that begin with the prompt, found others")
        # The same request again, so that it keeps its place where it has to wait.
        if self._resumed is None or not np.array_equal(self._resumed.tokens, given):
            self._resumed = self.request.continued(given, self.position)
        return self._resumed

    def __repr__(self) -> str:
        return f"Suspended(position={self.position}, kept={self.kept})"


class Transfer:
    """I/O or a remote writer at work on a sequence's pages; they are not freed before it ends.

    Attributes:
        id: its number, never used again; no sequence or lease has it.
    """

    def __init__(self, completions: "Completions", identity: int) -> None:
        self._completions = completions
        self.id = identity

    def complete(self) -> None:
        """Say that it has ended, from any thread; saying it again is counted and harmless."""
        self._completions.report(self.id)


class Step:
    """A reserved step of a batch; commit in order, or abort.

    Attributes:
        serial: its number; steps commit in this order.
    """

    __slots__ = ("_manager", "_stepper", "ended", "rows", "serial")

    def __init__(
        self,
        manager: "CacheManager",
        stepper: "Stepper",
        serial: int,
        rows: npt.NDArray[np.int64],
    ) -> None:
        self._manager = manager
        self._stepper = stepper
        self.serial = serial
        self.rows = rows
        self.ended = False

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """int64[n], the sequences."""
        return self.rows[:, ID]

    @property
    def refused(self) -> npt.NDArray[np.int8]:
        """int8[n], why a sequence is not in the step.

        0: it is. 1: longer than the longest sequence. 2: busy, it could not be rolled back; commit
        what is in flight first. 3: out of pages.
        """
        return self.rows[:, STATUS].astype(np.int8)

    @property
    def start(self) -> npt.NDArray[np.int32]:
        """int32[n], position of each sequence's first token in this step."""
        return self.rows[:, START].astype(np.int32)

    @property
    def num_tokens(self) -> npt.NDArray[np.int32]:
        """int32[n], tokens reserved; 0 where refused."""
        fits = self.rows[:, STATUS] == FITS
        tokens: npt.NDArray[np.int64] = np.where(fits, self.rows[:, TOKENS], 0)
        return tokens.astype(np.int32)

    @property
    def accepted(self) -> npt.NDArray[np.int32]:
        """int32[n], tokens committed; 0 before the commit and where the row was void."""
        return self.rows[:, ACCEPTED].astype(np.int32)

    def image_slots(self, number: int) -> tuple[dict[str, int], dict[str, int]]:
        """State pages of one sequence of the step.

        Args:
            number: its place in the batch.

        Returns:
            Group name → slot to read the state before the step from, and to write the state after
            it to. The same where the step is written in place (ring rows by position); where they
            differ, the written image must end up whole.
        """
        self.check()
        read, write = int(self.rows[number, READ_IMAGE]), int(self.rows[number, WRITE_IMAGE])
        return self._manager.slots_of_image(read), self._manager.slots_of_image(write)

    def commit(
        self,
        accepted: npt.ArrayLike | Items[int] | None = None,
        tokens: npt.ArrayLike | Items[int] | None = None,
    ) -> None:
        """The step ran; keep ``accepted`` tokens of each sequence.

        Args:
            accepted: int32[n]; None keeps all.
            tokens: int32[sum of num_tokens], ids of the tokens whose KV the step wrote, the
                sequences one after another; None while every sequence is inside its prompt.

        Raises:
            StaleLease: the step has ended, or an older one is in flight.
            ConfigError: ``accepted`` or ``tokens`` do not fit the step; nothing changed.
        """
        self._stepper.commit(self, accepted, tokens)

    def abort(self) -> None:
        """The step did not run, or shall not count; later steps are aborted too.

        Raises:
            StaleLease: the step has ended.
        """
        self._stepper.abort(self)

    def check(self) -> None:
        """Raise StaleLease where the step has ended."""
        if self.ended:
            raise StaleLease(f"step {self.serial} has ended; reserve a new one")


class Lease:
    """Permission to read a prefix's pages until released.

    Attributes:
        id: the manager's number for it.
        plan: what it pins.
    """

    def __init__(self, lessor: "Lessor", identity: int, plan: "Plan") -> None:
        self._lessor = lessor
        self.id = identity
        self.plan = plan

    @property
    def state_data_ptrs(self) -> Mapping[str, "PoolAddress"]:
        """Base address, stride and slots of every pool; good until the lease is released.

        Raises:
            ConfigError: the manager has no pools.
            StaleLease: the lease was released.
        """
        return self._lessor.state_data_ptrs(self)

    def verify(self) -> None:
        """Check again, at use: every page is still the one leased, every pool where it was.

        Raises:
            StaleLease: the lease was released, or a page was reused or quarantined since.
            InvariantViolation: a pool has moved.
        """
        self._lessor.verify(self)

    def release(self) -> None:
        """End the lease.

        Raises:
            StaleLease: it was released before.
        """
        self._lessor.release(self)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.release()
