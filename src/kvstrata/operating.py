"""What operators can ask an engine for, carried out by the mutating thread a piece at a time.

A kind ends at once, or is a generator: it yields where the engine may go on (`None`), or where
something is to be done outside the mutating thread (a function, whose result it is sent), and
returns how it ended.
What it does is safe to be done again, where :data:`REPEATABLE` has it.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kvstrata.core.ask import (
    ASK_CHECKPOINT,
    ASK_CHECKPOINT_GENERATION,
    ASK_KEY_0,
    ASK_KEY_1,
    ASK_NUM_BLOCKS,
    ASK_OWNER,
    ASK_WORDS,
)
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EventType, Reason
from kvstrata.core.index import find_unit
from kvstrata.core.keys import key_words
from kvstrata.core.leases import grant, release_grant
from kvstrata.core.quarantine import quarantine
from kvstrata.core.room import NO_ROOM, STALE
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    HOLDER_BLOCKS,
    HOLDER_CHECKPOINT,
    HOLDER_ID,
    HOLDER_KIND,
    HOLDER_LEASE,
    HOLDER_OWNER,
    META_LAST_SEQNO,
    META_NUM_HISTORY,
    META_NUM_SEQUENCES,
    PAGE_GENERATION,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_FIRST,
    POOL_SLOTS,
    UNIT_GENERATION,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_PARENT_KEY_0,
    UNIT_PARENT_KEY_1,
    UNIT_POSITION,
    Arena,
)
from kvstrata.eventstore.commands import CommandKind, CommandOutcome

from .caller import zeros
from .dropping import drop, find_below

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["PIN_OWNER", "REPEATABLE", "Ended", "Operations", "Operator"]

PIN_OWNER: Final = 0x7069_6E00_0000_0000  # "pin"; the owner of pins, the command's number below it
_OWNER_MASK: Final = ~0xFFFF_FFFF

REPEATABLE: Final = frozenset(CommandKind) - {CommandKind.REPORT_DIVERGENCE}
"""Kinds that do no harm when they are carried out twice."""

_SCRUB_BYTES: Final = 64 << 20
_MOST_SCRUB_BYTES: Final = 1 << 40
_SLICE_BYTES: Final = 4 << 20
"""So much is checksummed between two calls of the engine."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        outcome: done, refused or failed.
        text: in words, for people.
        changed: pages, blocks, leases or bytes, by the kind.
    """

    outcome: CommandOutcome
    text: str
    changed: int = 0


Operations = Generator[Callable[[], Any] | None, Any, Ended]


class _Refusal(Exception):
    """Why a command is not carried out, in words."""


class Operator:
    """Carries out commands on one manager's mutating thread.

    Args:
        manager: the manager.
    """

    def __init__(self, manager: "CacheManager") -> None:
        self._manager = manager
        self.is_draining = False
        self._verbs: dict[CommandKind, Callable[[int, Mapping[str, Any]], Ended | Operations]] = {
            CommandKind.QUARANTINE: self._quarantine,
            CommandKind.UNQUARANTINE: self._unquarantine,
            CommandKind.DROP_PREFIX: self._drop_prefix,
            CommandKind.PIN: self._pin,
            CommandKind.UNPIN: self._unpin,
            CommandKind.SCRUB: self._scrub,
            CommandKind.SNAPSHOT: self._snapshot,
            CommandKind.DRAIN: self._drain,
            CommandKind.REPORT_DIVERGENCE: self._report_divergence,
        }

    def begin(self, kind: CommandKind, number: int, arguments: Mapping[str, Any]) -> Operations:
        """Carry out a command; what is wrong with it ends it, and changes nothing."""
        try:
            begun = self._verbs[kind](number, arguments)
            return begun if isinstance(begun, Ended) else (yield from begun)
        except (_Refusal, ConfigError) as refusal:
            return Ended(CommandOutcome.REFUSED, str(refusal))

    # pages

    def _quarantine(self, number: int, arguments: Mapping[str, Any]) -> Ended:
        group, slot, page = self._page(arguments)
        generation = int(page[PAGE_GENERATION])
        if page[PAGE_STATE] == PageState.QUARANTINED:
            return Ended(CommandOutcome.DONE, "it was quarantined before")
        if page[PAGE_STATE] != PageState.SEALED:
            state = PageState(int(page[PAGE_STATE])).name
            raise _Refusal(
                f"expected a sealed page, found it {state}; only sealed pages can be hit"
            )
        call = self._manager._call
        verdict = np.array([int(Reason.OPERATOR), 0, 0, 0], dtype=np.int64)
        code = call.run(quarantine, call.arena, call.ring, group, slot, generation, verdict)
        if code == STALE:
            raise _Refusal("the page has changed since; look at it again")
        call.drain_limbo(code)
        return Ended(CommandOutcome.DONE, "withdrawn, with what hung from its block", 1)

    def _unquarantine(self, number: int, arguments: Mapping[str, Any]) -> Operations:
        group, _, page = self._page(arguments)
        if page[PAGE_STATE] == PageState.FREE:
            return Ended(CommandOutcome.DONE, "it is in its pool already")
        if page[PAGE_STATE] != PageState.QUARANTINED:
            state = PageState(int(page[PAGE_STATE])).name
            raise _Refusal(f"expected a quarantined page, found it {state}")
        is_block = group < int(self._manager.arena[META_NUM_HISTORY])
        unit = int(page[PAGE_UNIT])
        released = 0
        for row in self._pins():
            if self._holds(row, is_block, unit):
                self._release(row)
                released += 1
                yield None
        if page[PAGE_STATE] == PageState.QUARANTINED:
            raise _Refusal(
                f"{released} pins were ended, and sequences or leases still read the page; it goes "
                "back to its pool by itself when the last of them ends"
            )
        return Ended(CommandOutcome.DONE, f"back in its pool, {released} pins ended", 1)

    def _page(self, arguments: Mapping[str, Any]) -> tuple[int, int, Arena]:
        layout, tables = self._manager.layout, self._manager.tables
        group = layout.group_id(str(arguments.get("group")))
        slot = _whole(arguments, "page", 1, int(tables.pools[group, POOL_SLOTS]) - 1)
        page = tables.pages[int(tables.pools[group, POOL_FIRST]) + slot]
        if arguments.get("generation") is not None:
            wanted = _whole(arguments, "generation", 0, 2**32 - 1)
            if wanted != page[PAGE_GENERATION]:
                raise _Refusal(
                    f"expected generation {wanted} of {arguments['group']} page {slot}, found "
                    f"{int(page[PAGE_GENERATION])}: it holds something else by now"
                )
        return group, slot, page

    # prefixes

    def _drop_prefix(self, number: int, arguments: Mapping[str, Any]) -> Operations:
        below = find_below(self._manager.arena, _key(arguments))
        if not below.block:
            return Ended(CommandOutcome.DONE, "nothing is indexed under the key")
        dropped = yield from drop(self._manager._call, below)
        text = f"{dropped.blocks} blocks and {dropped.images} checkpoints dropped"
        if dropped.kept_blocks or dropped.kept_images:
            text += f", {dropped.kept_blocks} and {dropped.kept_images} kept: they are in use"
        return Ended(CommandOutcome.DONE, text, dropped.blocks + dropped.images)

    def _pin(self, number: int, arguments: Mapping[str, Any]) -> Ended:
        key = _key(arguments)
        for row in self._pins():
            if self._pinned_key(row) == key:
                return Ended(CommandOutcome.DONE, "it is pinned already")
        call, arena = self._manager._call, self._manager.arena
        plan = self._plan(key)
        ask = zeros(ASK_WORDS)
        ask[ASK_NUM_BLOCKS] = len(plan)
        ask[ASK_KEY_0], ask[ASK_KEY_1] = key
        ask[ASK_OWNER] = PIN_OWNER | number & 0xFFFF_FFFF
        image = int(find_unit(arena, False, *key))
        if image:
            generation = self._manager.tables.images.rows[image, UNIT_GENERATION]
            ask[ASK_CHECKPOINT], ask[ASK_CHECKPOINT_GENERATION] = image, generation
        row = call.run(grant, call.arena, call.ring, plan, ask)
        if row == NO_ROOM:
            raise _Refusal("expected a free lease row, found none; unpin or release another")
        if row == STALE:
            raise _Refusal("the prefix has changed since; look at it again")
        return Ended(
            CommandOutcome.DONE, f"{len(plan)} blocks pinned until the engine ends", len(plan)
        )

    def _plan(self, key: tuple[int, int]) -> Arena:
        """The blocks of a prefix from the root, as a lease wants them: int64[n, 4]."""
        arena, rows = self._manager.arena, self._manager.tables.blocks.rows
        block = int(find_unit(arena, True, *key))
        if not block:
            raise _Refusal("expected a block indexed under the key, found none")
        size = self._manager.layout.block_tokens
        if rows[block, UNIT_POSITION] % size:
            raise _Refusal(
                f"expected the key of a whole block of {size} tokens, found a part of one"
            )
        found = []
        while block:
            row = rows[block]
            first, second = int(row[UNIT_KEY_0]), int(row[UNIT_KEY_1])
            found.append((block, int(row[UNIT_GENERATION]), first, second))
            parent = int(row[UNIT_PARENT_KEY_0]), int(row[UNIT_PARENT_KEY_1])
            block = int(find_unit(arena, True, *parent)) if parent != (0, 0) else 0
        if len(found) * size != rows[found[0][0], UNIT_POSITION]:
            raise _Refusal("expected every block of the prefix, found some gone; it is no hit")
        return np.array(found[::-1], dtype=np.int64)

    def _unpin(self, number: int, arguments: Mapping[str, Any]) -> Operations:
        key = _key(arguments)
        released = 0
        for row in self._pins():
            if self._pinned_key(row) == key:
                self._release(row)
                released += 1
                yield None
        text = f"{released} pins ended" if released else "nothing is pinned under the key"
        return Ended(CommandOutcome.DONE, text, released)

    def _pins(self) -> list[int]:
        """Rows of the leases that operators' pins are."""
        holders = self._manager.tables.holders
        first = int(self._manager.arena[META_NUM_SEQUENCES]) + 1
        is_lease = holders[first:, HOLDER_KIND] == HOLDER_LEASE
        is_pin = holders[first:, HOLDER_OWNER] & _OWNER_MASK == PIN_OWNER
        return [first + int(row) for row in np.flatnonzero(is_lease & is_pin)]

    def _pinned_key(self, row: int) -> tuple[int, int]:
        tables = self._manager.tables
        last = tables.holder_blocks[row, int(tables.holders[row, HOLDER_BLOCKS]) - 1]
        found = tables.blocks.rows[last]
        return int(found[UNIT_KEY_0]), int(found[UNIT_KEY_1])

    def _holds(self, row: int, is_block: bool, unit: int) -> bool:
        tables = self._manager.tables
        if not is_block:
            return bool(tables.holders[row, HOLDER_CHECKPOINT] == unit)
        num_blocks = int(tables.holders[row, HOLDER_BLOCKS])
        return bool(np.any(tables.holder_blocks[row, :num_blocks] == unit))

    def _release(self, row: int) -> None:
        call = self._manager._call
        identity = int(self._manager.tables.holders[row, HOLDER_ID])
        call.drain_limbo(call.run(release_grant, call.arena, call.ring, row, identity))

    # the cache as a whole

    def _scrub(self, number: int, arguments: Mapping[str, Any]) -> Operations:
        left = _SCRUB_BYTES
        if arguments.get("max_bytes") is not None:
            left = _whole(arguments, "max_bytes", 1, _MOST_SCRUB_BYTES)
        sealed = self._manager.scrub_progress().sealed_pages
        pages = num_bytes = bad = wraps = 0
        # Once around from wherever it stands: over the end of all pools at most once.
        while left > 0 and pages < sealed and wraps < 2:
            report = self._manager.scrub(min(left, _SLICE_BYTES))
            pages, num_bytes, bad = (
                pages + report.pages,
                num_bytes + report.num_bytes,
                bad + report.bad,
            )
            left -= max(report.num_bytes, 1)
            wraps += report.wrapped
            yield None
        text = f"{pages} pages of {num_bytes:,} bytes checksummed, {bad} bad and quarantined"
        return Ended(CommandOutcome.DONE, text, bad)

    def _snapshot(self, number: int, arguments: Mapping[str, Any]) -> Operations:
        log = self._manager.log
        if log is None:
            raise _Refusal("expected a manager with a log directory, found none")
        seqno = int(self._manager.arena[META_LAST_SEQNO])
        path = yield partial(log.snapshot, self._manager.arena.copy(), seqno)
        return Ended(CommandOutcome.DONE, f"the tables as of event {seqno}: {path.name}", 1)

    def _drain(self, number: int, arguments: Mapping[str, Any]) -> Ended:
        wanted = arguments.get("drain", True)
        if not isinstance(wanted, bool):
            raise _Refusal(f"drain: expected true or false, found {wanted!r}")
        before, self.is_draining = self.is_draining, wanted
        running = len(self._manager.running_rows())
        says = "no new request is let in" if wanted else "requests are let in again"
        changed = int(before is not wanted)
        return Ended(CommandOutcome.DONE, f"{says}; {running} sequences run", changed)

    def _report_divergence(self, number: int, arguments: Mapping[str, Any]) -> Ended:
        most = 2**63 - 1
        words = zeros(4)
        words[0] = _whole(arguments, "first_seqno", 0, most)
        words[1] = _whole(arguments, "last_seqno", int(words[0]), most)
        words[2] = _whole(arguments, "slice", 0, most)
        self._manager._call.note(EventType.DIVERGENCE_REPORTED, words, int(Reason.DRIFTED))
        text = f"events {words[0]} to {words[1]} of slice {words[2]}"
        return Ended(CommandOutcome.DONE, f"written into the log: {text}", 1)


def _whole(arguments: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = arguments.get(name)
    if type(value) is not int or not least <= value <= most:
        raise _Refusal(f"{name}: expected a whole number from {least} to {most}, found {value!r}")
    return value


def _key(arguments: Mapping[str, Any]) -> tuple[int, int]:
    value = arguments.get("key")
    try:
        key = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        key = b""
    if len(key) != 16:
        raise _Refusal(f"key: expected 32 hexadecimal digits, found {value!r}")
    return key_words(key)
