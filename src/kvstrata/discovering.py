"""Finding out what lies in the tiers: from the catalogue, from the folders, for today's readers."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from kvstrata.core.events import Reason
from kvstrata.core.keys import key_words, words_key
from kvstrata.core.stored import tiers_of, walk_stored
from kvstrata.core.words import (
    CHECKPOINT_TIERS,
    STORED_KEY_0,
    STORED_KEY_1,
    STORED_TIERS,
    TIERS_MASK,
)
from kvstrata.tiers.format import ObjectId
from kvstrata.tiers.tierset import TierSet

from .requests import Plan, Request
from .shelves import Shelves

if TYPE_CHECKING:
    from .tiering import Tiering

__all__ = ["Discovery"]

_PROBED: Final = 128
"""Keys asked for in the tiers, where the first of them was found there."""
_ASKED_AT_ONCE: Final = 8
"""Of these, before it is looked whether one was missing."""
_ANSWER_S: Final = 2.0
"""How long a request waits for tiers to say what they have."""

_Found = tuple[ObjectId, int, int]
"""An object, the position where it ends in tokens, and a bit for each tier that has it."""


class Discovery:
    """What one manager knows of its tiers beside what it stored there itself.

    Args:
        tiering: what it is part of.
        shelves: the tiers' places and their catalogue.
        readers: the words of ABIs and mappings for which the log says that objects are stored.

    Attributes:
        looked_up: objects ``found`` in the tiers that this manager had not known there.
    """

    def __init__(self, tiering: "Tiering", shelves: Shelves, readers: bytes) -> None:
        self._tiering = tiering
        self._shelves = shelves
        self._readers = readers
        self._known_namespace = ""
        self._asking: dict[bytes, float] = {}
        """By the first key asked for: until when its requests wait for the answer."""
        self.looked_up: Counter[str] = Counter()

    def find_more(self, plan: Plan) -> bool:
        """Whether the folders hold more of a prefix than this manager knew; learn it.

        They are asked for the next block alone, which costs one system call; only where it is
        there is more asked.
        """
        first, last = self._unknown(plan)
        if last <= 0:
            return False
        if first >= last:
            return self._found_checkpoint(plan, last)
        schema, folders = self._tiering.objects.schema(), self._tiering.folders
        if not self._shelves.has(schema, self._id(plan, first, False)):
            return False
        found = self._ask(self._tiering.tierset(), folders, self._ids(plan, first, last))
        self._learned(found)
        return bool(found)

    def ask_others(self, plan: Plan) -> bool:
        """Have the tiers that are no folders asked for more of a prefix, by a worker.

        Requests of its prefix wait for the answer, for a while; what is found is loaded ahead.

        Returns:
            Whether they are being asked.
        """
        others = self._tiering.readable() & ~self._tiering.folders
        first, last = self._unknown(plan)
        if not others or first >= last:
            return False
        tierset, ids = self._tiering.tierset(), self._ids(plan, first, last)
        key = ids[0][0].key
        if self._is_asking(key):
            return True
        self._asking[key] = self._tiering.clock() + _ANSWER_S
        found: list[_Found] = []
        self._tiering.workers.submit(
            "load",
            lambda: found.extend(self._ask(tierset, others, ids)),
            lambda _: self._tiering.completed(
                lambda: self._answered(tierset, key, plan.request, found)
            ),
        )
        return True

    def knows_more(self, plan: Plan) -> bool:
        """Whether more of a prefix is known to be stored than a plan reuses.

        The plan may have been made before that was known; or it does without, as the cheaper way.
        """
        return self._unknown(plan)[0] * self._tiering.layout.block_tokens > plan.reused_tokens

    def is_asking(self, plan: Plan) -> bool:
        """Whether tiers are being asked for a prefix, and its request should wait for it."""
        if not self._asking:
            return False
        first, last = self._unknown(plan)
        return first < last and self._is_asking(self._id(plan, first, False).key)

    def _is_asking(self, key: bytes) -> bool:
        return self._tiering.clock() < self._asking.get(key, 0.0)

    def _answered(
        self, tierset: TierSet, key: bytes, request: Request, found: list[_Found]
    ) -> None:
        self._asking.pop(key, None)
        if tierset.schema == self._tiering.objects.schema():
            self._learned(found)
            if found:
                self._tiering.load_ahead(request)

    def _unknown(self, plan: Plan) -> tuple[int, int]:
        """The blocks of a prompt that are not known to be anywhere: first, end; zeros for none."""
        tokens = self._tiering.layout.block_tokens
        last = (plan.prompt_tokens - 1) // tokens
        if plan.request.max_resume is not None:
            last = min(last, plan.request.max_resume // tokens)
        if self._tiering.is_books_only or last <= 0:
            return 0, 0
        arena, reused = self._tiering.arena, plan.reused_tokens // tokens
        return int(walk_stored(arena, plan.keys, reused, last, self._tiering.all_tiers)), last

    def _ids(self, plan: Plan, first: int, last: int) -> list[tuple[ObjectId, int]]:
        """The next blocks of a prompt: who they are, and where they end, in tokens."""
        tokens = self._tiering.layout.block_tokens
        end = min(first + _PROBED, last)
        return [(self._id(plan, index, False), (index + 1) * tokens) for index in range(first, end)]

    def _ask(self, tierset: TierSet, tiers: int, ids: list[tuple[ObjectId, int]]) -> list[_Found]:
        """Ask tiers for blocks until one is not there, and for the checkpoints of those that are.

        From any thread.
        """
        found: list[_Found] = []
        for at in range(0, len(ids), _ASKED_AT_ONCE):
            some = ids[at : at + _ASKED_AT_ONCE]
            masks = tierset.find([identity for identity, _ in some], tiers)
            length = masks.index(0) if 0 in masks else len(masks)
            found += [(*one, mask) for one, mask in zip(some[:length], masks, strict=False)]
            if length < len(some):
                break
        if tierset.schema.checkpoints:
            images = [ObjectId(identity.key, True) for identity, _, _ in found]
            positions = [position for _, position, _ in found]
            for image, position, mask in zip(
                images, positions, tierset.find(images, tiers), strict=True
            ):
                if mask:
                    found.append((image, position, mask))
        return found

    def _learned(self, found: list[_Found]) -> None:
        self.looked_up["found"] += len(found)
        self._tiering.stored.add(found)

    def _found_checkpoint(self, plan: Plan, last: int) -> bool:
        """Whether a folder holds a checkpoint at the end of a prefix that is known; learn it."""
        position = last * self._tiering.layout.block_tokens
        if not self._tiering.layout.state_groups or plan.resume_at >= position:
            return False
        identity = self._id(plan, last - 1, True)
        if tiers_of(self._tiering.arena, True, *key_words(identity.key)):
            return False
        if not self._shelves.has(self._tiering.objects.schema(), identity):
            return False
        (mask,) = self._tiering.tierset().find([identity], self._tiering.folders)
        if mask:
            self._tiering.stored.add([(identity, position, mask)])
        return bool(mask)

    def _id(self, plan: Plan, index: int, is_checkpoint: bool) -> ObjectId:
        return ObjectId(words_key(*plan.keys[index].tolist()), is_checkpoint)

    def follow(self) -> None:
        """Forget what is stored for other readers than those of now.

        What is stored is known by key alone, and a key does not tell who can read its pages.
        """
        readers = self._tiering.objects.readers()
        if readers == self._readers:
            return
        self._readers = readers
        reason, found = Reason.ABI_MISMATCH, self._tiering.tables.stored[1:]
        found = found[found[:, STORED_TIERS] != 0]
        self._tiering.stored.forget(
            (
                ObjectId(words_key(*row[[STORED_KEY_0, STORED_KEY_1]].tolist()), bool(shift)),
                tiers,
                reason,
            )
            for row in found
            for shift in (0, CHECKPOINT_TIERS)
            if (tiers := int(row[STORED_TIERS]) >> shift & TIERS_MASK)
        )
        self._tiering.spiller.look_back()  # what nobody could read may be what is read now

    def learn(self) -> bool:
        """Read from the catalogue, once, what others or this engine before have stored."""
        if self._tiering.is_books_only:
            return False
        namespace = self._tiering.objects.schema().namespace
        if namespace == self._known_namespace:
            return False
        known = self._shelves.entries(namespace, self._tiering.config.objects)
        if known is None:
            return False
        self._known_namespace = namespace
        new = self._tiering.stored.lacking(known)
        self._tiering.stored.add(new)
        return bool(new)
