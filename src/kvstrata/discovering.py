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

from .requests import Plan
from .shelves import Shelves

if TYPE_CHECKING:
    from .tiering import Tiering

__all__ = ["Discovery"]

_PROBED: Final = 128
"""Keys asked for at once in the tiers, where the first of them was found there."""


class Discovery:
    """What one manager knows of its tiers beside what it stored there itself.

    Args:
        tiering: what it is part of.
        shelves: the tiers' places and their catalogue.
        readers: the words of ABIs and mappings for which the log says that objects are stored.

    Attributes:
        looked_up: objects asked for in the tiers, and found there.
    """

    def __init__(self, tiering: "Tiering", shelves: Shelves, readers: bytes) -> None:
        self._tiering = tiering
        self._shelves = shelves
        self._readers = readers
        self._known_namespace = ""
        self.looked_up: Counter[str] = Counter()

    def find_more(self, plan: Plan, everywhere: bool = False) -> bool:
        """Whether the tiers hold more of a prefix than this manager knew; learn it.

        Folders are asked for the next block alone, which costs one system call; only where it is
        there is more asked.
        """
        tokens = self._tiering.layout.block_tokens
        last = (plan.prompt_tokens - 1) // tokens
        if plan.request.max_resume is not None:
            last = min(last, plan.request.max_resume // tokens)
        if self._tiering.is_books_only or last <= 0:
            return False
        reused = plan.reused_tokens // tokens
        first = int(
            walk_stored(self._tiering.arena, plan.keys, reused, last, self._tiering.all_tiers)
        )
        if first >= last:
            return self._found_checkpoint(plan, last)
        ids = [self._id(plan, index, False) for index in range(first, min(first + _PROBED, last))]
        if not (everywhere or self._shelves.has(self._tiering.objects.schema(), ids[0])):
            return False
        tierset = self._tiering.tierset()
        masks = tierset.find(ids)
        length = masks.index(0) if 0 in masks else len(masks)
        found = [
            (ids[index], (first + index + 1) * tokens, masks[index]) for index in range(length)
        ]
        if self._tiering.layout.state_groups and length:
            images = [self._id(plan, first + index, True) for index in range(length)]
            for index, mask in enumerate(tierset.find(images)):
                if mask:
                    found.append((images[index], (first + index + 1) * tokens, mask))
        self.looked_up["asked"] += len(ids)
        self.looked_up["found"] += len(found)
        self._tiering.note_stored(found)
        return bool(found)

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
        (mask,) = self._tiering.tierset().find([identity])
        if mask:
            self._tiering.note_stored([(identity, position, mask)])
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
        self._tiering.forget(
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
        new = [one for one in known if self._is_new(one[0], one[2])]
        self._tiering.note_stored(new)
        return bool(new)

    def _is_new(self, identity: ObjectId, tiers: int) -> bool:
        known = int(tiers_of(self._tiering.arena, identity.is_checkpoint, *key_words(identity.key)))
        return tiers & ~known != 0
