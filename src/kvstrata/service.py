"""What runs beside requests: quarantine, scrubs, what an engine registers, completions, counts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvstrata.core.abi import Abi
from kvstrata.core.admission_terms import AdmissionStats
from kvstrata.core.arena import arena_digest
from kvstrata.core.checks import layer_of
from kvstrata.core.errors import (
    ConfigError,
    InvariantViolation,
    StaleLease,
)
from kvstrata.core.events import EventType, Reason
from kvstrata.core.integrity import find_violations
from kvstrata.core.layout import Kind
from kvstrata.core.quarantine import mark_dirty
from kvstrata.core.room import STALE
from kvstrata.core.steps import STEP_IN_FLIGHT
from kvstrata.core.words import HOLDER_ID, META_NUM_SEQUENCES
from kvstrata.eventstore.log import EventLog

from .admitting import AdmissionControl
from .caller import zeros
from .completions import Completions
from .config import CacheConfig
from .handles import Sequence, Transfer
from .quarantining import withdraw
from .reading import PageReader
from .registering import Registrar
from .scrubbing import Scrubber, ScrubReport
from .statistics import Statistics, collect
from .storage import BadPage, Storage
from .topology import Topology
from .validating import Validator, Verdict

if TYPE_CHECKING:
    from .tiering import Tiering

__all__ = ["Service"]


class Service(PageReader):
    """The part of :class:`.manager.CacheManager` that serves no request."""

    config: CacheConfig
    log: EventLog | None
    validator: Validator
    _storage: Storage | None
    _registrar: Registrar
    _completions: Completions
    _scrubber: Scrubber | None
    _topology: Topology | None
    _admission: AdmissionControl | None
    _tiering: "Tiering | None"
    _turns: list[Callable[[], None]]
    """What every call does first, in this order."""
    _closed: bool

    def quarantine(self, page: BadPage) -> None:
        """Withdraw a sealed page that failed its checksum; a page changed since is left alone."""
        self._call.check()
        self._withdraw_all([self.validator.verdict_on(page)])

    def _withdraw_all(self, verdicts: list[Verdict]) -> bool:
        """Count, log and withdraw what failed; whether anything was withdrawn."""
        for verdict in verdicts:
            self.validator.failures[verdict.layer, verdict.reason, verdict.group] += 1
        return withdraw(self._call, self.layout, verdicts, self.tables)

    def sound(self, blocks: npt.NDArray[np.int64]) -> bool:
        """Checksum blocks, by policy, and withdraw what is bad; whether all were good."""
        verdicts = self.validator.blocks(blocks)
        if verdicts:
            self._withdraw_all(verdicts)
        return not verdicts

    def mark_dirty(self, group: str, slots: npt.ArrayLike) -> None:
        """Say that sealed pages of an index were written again: no hit may adopt them any more.

        Args:
            group: name of the group.
            slots: int[n], of pages of its pool.

        Raises:
            StaleLease: one of them is not sealed; those before it are marked.
            ConfigError: the group is no index.
        """
        self._call.check()
        number = self.layout.group_id(group)
        if self.layout.groups[number].kind is not Kind.INDEXER:
            kind = self.layout.groups[number].kind.name
            raise ConfigError(f"mark_dirty: expected an INDEXER group, found {group!r}, {kind}")
        for slot in np.asarray(slots, dtype=np.int64).tolist():
            generation = self.page_generation(group, slot)
            code = self._call.run(mark_dirty, self.arena, self._call.ring, number, slot, generation)
            if code == STALE:
                raise StaleLease(f"{group} page {slot}: expected a sealed page, found another")

    def scrub(self, max_bytes: int) -> ScrubReport:
        """Checksum the next sealed pages, so many bytes of them; the bad ones are quarantined.

        Raises:
            ConfigError: the manager has no pools.
        """
        self._call.check()
        if self._scrubber is None:
            raise ConfigError("scrub: expected a manager with pools, found one of metadata alone")
        report, bad = self._scrubber.next_pages(max_bytes)
        for page in bad:
            self.quarantine(page)
        payload = zeros(4)
        payload[:3] = report.pages, report.num_bytes, report.bad
        group, slot = (0, 0) if report.wrapped else self._scrubber.place
        self._call.note(EventType.SCRUBBED, payload, 0, group, slot)
        return report

    # what the engine says of itself

    def register_abi(self, group: str, abi: Abi) -> None:
        """Say how the engine's kernel reads a group: pages written otherwise are no hit.

        What runs while it changes goes on and publishes nothing more; the same for a mapping.

        Raises:
            ConfigError: the ABI is not that of the group's pages.
        """
        self._call.check()
        self._registrar.abi(group, abi)

    def register_kernel(self, group: str, name: str, version: str, ready: bool = True) -> None:
        """Say whether the kernel that reads a group is compiled and loaded.

        A group for which nothing is registered is read by the reference kernels. What one engine
        registered, the next must register again before it hits.
        """
        self._call.check()
        self._registrar.kernel(group, name, version, ready)

    def register_mapping(self, group: str, version: str, resident: bool = True) -> None:
        """Say which compression mapping (projection, scales) a COMPRESSED group has now.

        Pages compressed by another version are no hit.
        """
        self._call.check()
        self._registrar.mapping(group, version, resident)

    def observe_compute(self, num_tokens: int, seconds: float) -> None:
        """Tell the planner how long computing so many prompt tokens took."""
        self._call.check()
        self._registrar.observe("tokens", num_tokens, seconds)

    def observe_copy(self, num_bytes: int, seconds: float) -> None:
        """Tell the planner how long copying so many bytes of pages took."""
        self._call.check()
        self._registrar.observe("bytes", num_bytes, seconds)

    def seal_topology(self) -> Topology:
        """Record every pool's address, shape and stride; from now on each step checks them.

        Raises:
            ConfigError: the manager has no pools.
        """
        self._call.check()
        if self._storage is None:
            raise ConfigError("seal_topology: expected a manager with pools, found none")
        self._topology = Topology(self._storage.pools)
        self._registrar.topology(self._topology)
        return self._topology

    def check_topology(self) -> None:
        """Check that no pool moved since the topology was sealed; O(1).

        Raises:
            InvariantViolation: one did; the manager mutates no more.
        """
        if self._topology is None or self._storage is None:
            return
        try:
            self._topology.check(self._storage.pools)
        except InvariantViolation as error:
            kind, reason = EventType.VALIDATION_FAILED, Reason.TOPOLOGY_MOVED
            payload = zeros(4)
            payload[2] = layer_of(reason) << 32
            self._call.note(kind, payload, reason)
            self.validator.failures[4, reason.name, ""] += 1
            self._call.violated([str(error)])

    # completions

    def begin_transfer(self, sequence: Sequence) -> Transfer:
        """I/O or a remote writer goes to work on a sequence's pages.

        Until it completes, a cancel frees none of them (DRAINING) and the sequence cannot finish.
        """
        self._enter()
        return self._completions.begin(self._row_of(sequence.id))

    def complete(self, identity: int) -> None:
        """Say, from any thread, that a transfer or a sequence has ended.

        It takes effect at the manager's next call. Late, duplicate and made-up ones are counted
        and harmless.
        """
        self._completions.report(identity)

    def _enter(self) -> None:
        """Begin a call: on the right thread, with every completion reported so far applied."""
        self._call.check()
        self.apply_completions()

    def apply_completions(self) -> None:
        """Do what is due between calls: tiers, completions, upkeep, operators' commands."""
        for turn in self._turns:
            turn()

    def _apply_reported(self) -> None:
        """Apply what was reported complete; sequences wait until nothing is in flight for them."""
        if not self._completions.waiting:
            return
        ended = []
        for identity in self._completions.take():
            if self._completions.is_transfer(identity):
                self._completions.end(identity)
            else:
                ended.append(identity)
        self.end_drained()
        for identity in ended:
            row = identity & 0xFFFF
            inside = 0 < row <= int(self.arena[META_NUM_SEQUENCES])
            runs = inside and self.tables.holders[row, HOLDER_ID] == identity
            if not runs or identity in self._ender.draining:
                self._completions.anomaly(identity, Reason.LATE_COMPLETION)
            elif self._steps[row, STEP_IN_FLIGHT]:
                self._completions.put_off(identity)
            else:
                self._ender.finish_id(identity)

    def end_drained(self) -> None:
        """End the cancelled sequences for which nothing is in flight any more."""
        if self._ender.draining:
            self._ender.end_drained()

    # service

    def stats(self) -> Statistics:
        """Counts of pages, units and events; see :class:`Statistics`."""
        return collect(
            self.layout,
            self.arena,
            self._call.ring,
            self.validator.failures,
            self._completions.anomalies,
            self._admission_stats(),
        )

    def _admission_stats(self) -> AdmissionStats | None:
        control = self._admission
        return None if control is None else control.admission.snapshot()

    def digest(self) -> bytes:
        """16 bytes that equal those of any arena with the same history."""
        return arena_digest(self.arena)

    def log_digest(self) -> bytes:
        """Log the digest of the tables as they are, so that a reader can compare its own.

        Returns:
            The digest, 16 bytes; it speaks of the state just before its own event.
        """
        self._call.check()
        digest = self.digest()
        payload = zeros(4)
        payload[:2] = np.frombuffer(digest, dtype="<i8")
        self._call.note(EventType.STATE_DIGEST, payload)
        return digest

    def check_integrity(self) -> None:
        """Check every law of the tables.

        Raises:
            InvariantViolation: names the laws that do not hold; the manager mutates no more.
        """
        self._call.check()
        found = find_violations(self.arena)
        if found:
            self._call.violated(found)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything logged so far is durable.

        Raises:
            LogPoisoned: it will never be.
            ConfigError: the manager keeps no log.
        """
        if self.log is None:
            raise ConfigError("flush: expected a manager with a log directory, found none")
        if self._closed:
            raise InvariantViolation("flush: the manager was closed; close() made all durable")
        self.log.flush(timeout_s)
