"""One load of one object: reads, checks, sets aside what is bad, fetches once a node."""

from collections.abc import Callable, Sequence
from typing import Final

from kvstrata.core.errors import InvariantViolation
from kvstrata.core.events import Reason

from .format import Fault, Header, ObjectId, Schema, decode
from .outcomes import TierFaults
from .store import Buffer
from .tier import Failure, Tier

__all__ = ["Fetch", "check_pages"]

# The object's own bytes are wrong: it would be so at every further read.
_BAD: Final = frozenset(
    {
        Reason.ABI_MISMATCH,
        Reason.CHECKSUM_MISMATCH,
        Reason.COMPRESSOR_VERSION,
        Reason.OBJECT_HEADER,
        Reason.OBJECT_KEY,
        Reason.OBJECT_LAYOUT,
        Reason.OBJECT_NOT_A_FILE,
        Reason.OBJECT_TOO_LONG,
        Reason.OBJECT_TRAILER,
        Reason.OBJECT_TRUNCATED,
        Reason.OBJECT_VERSION,
    }
)
# Nothing to set aside, or not ours to move; but asking again for this object does not help.
_LOST: Final = frozenset({Reason.OBJECT_MISSING, Reason.OBJECT_FORBIDDEN, Reason.OBJECT_UNREADABLE})


def check_pages(schema: Schema, is_checkpoint: bool, pages: Sequence[Buffer]) -> None:
    """Refuse buffers that are not the pages of such an object.

    Raises:
        InvariantViolation: another number of pages, or one of another size.
    """
    expected = [part.page_bytes for part in schema.parts(is_checkpoint)]
    found = [page.nbytes for page in pages]
    if expected != found:
        raise InvariantViolation(f"tiers: expected pages of {expected} bytes, found {found}")


class Fetch:
    """One load. Not shared between threads.

    A read goes straight into the caller's pages and is checked after it. An exception that the
    store does not promise is answered by one more read, once in the whole load.

    Args:
        schema: what the objects agree on.
        identity: which object.
        pages: one buffer a part, in part order; filled by each read, good or bad.
        checksum: that of the page of part i, computed from the buffer as it is now.
        dead: whether the load was cancelled; asked before every read.

    Raises:
        InvariantViolation: the buffers do not fit.
    """

    def __init__(
        self,
        schema: Schema,
        identity: ObjectId,
        pages: Sequence[Buffer],
        checksum: Callable[[int], int],
        dead: Callable[[], bool],
    ) -> None:
        check_pages(schema, identity.is_checkpoint, pages)
        self.name = schema.object_name(identity)
        self.num_bytes = schema.object_bytes(identity.is_checkpoint)
        self.gone = 0
        self.gained = 0
        self.is_cancelled = False
        self._schema = schema
        self._identity = identity
        self._checksum = checksum
        self._dead = dead
        self._faults: list[tuple[int, Fault]] = []
        self._may_retry = True
        header_bytes = schema.header_bytes(identity.is_checkpoint)
        page_bytes = sum(page.nbytes for page in pages)
        self._header = bytearray(header_bytes)
        self._trailer = bytearray(self.num_bytes - header_bytes - page_bytes)
        self._parts = [memoryview(self._header), *pages, memoryview(self._trailer)]

    @property
    def faults(self) -> TierFaults:
        """Met so far, in order."""
        return tuple(self._faults)

    def read(self, tier: Tier) -> Header | None:
        """Read from one tier and check; None if that failed, and then the last fault says why.

        Mutates: the pages, this fetch, the tier's outage and counters; a bad object is set aside.
        """
        if self._dead():
            self.is_cancelled = True
            self._faults.append((tier.index, _fault(Reason.LOAD_CANCELLED, "was cancelled")))
            return None
        failure = tier.refusal() or tier.read(self.name, self._parts)
        if failure is not None and failure.is_unexpected and self._may_retry:
            self._may_retry = False
            self._faults.append((tier.index, failure.fault))
            failure = tier.read(self.name, self._parts)
        if failure is not None:
            self._failed(tier, failure)
            return None
        header = self._checked()
        if isinstance(header, Fault):
            tier.counters.fault(header.reason)
            self._failed(tier, Failure(header, False))
            return None
        return header

    def once(self, tier: Tier, folder: Tier, timeout_s: float) -> tuple[Tier, Header] | None:
        """Read from a tier that only one process of the node shall ask, through a folder.

        Whoever holds the folder's claim on the name fetches the object and puts it there; the
        others find it there. A holder that dies leaves its claim to the next.

        Args:
            tier: has the object, slowly.
            folder: above it.
            timeout_s: how long to wait for a process that holds the claim, in seconds.

        Returns:
            Which of the two served it, and the header; None if both failed.

        Mutates: as :meth:`read`, and the folder.
        """
        for _ in range(2):
            with folder.claim(self.name, timeout_s, self._dead):
                if folder.size(self.name) is None:
                    header = self.read(tier)
                    if header is not None:
                        self._promote(folder)
                        return tier, header
                    return None
            header = self.read(folder)  # after the claim: those who wait read side by side
            if header is not None:
                folder.counters.count("shared")
                self.gained |= folder.bit
                return folder, header
            if self.is_cancelled:
                return None
        header = self.read(tier)
        return None if header is None else (tier, header)

    def _promote(self, folder: Tier) -> None:
        answer = folder.put(self.name, self._parts)
        if isinstance(answer, Failure):
            self._faults.append((folder.index, answer.fault))
            return
        if answer:
            folder.counters.count("promotions")
        self.gained |= folder.bit
        self.gone &= ~folder.bit

    def _checked(self) -> Header | Fault:
        header = decode(self._schema, self._identity, bytes(self._header), bytes(self._trailer))
        if isinstance(header, Fault):
            return header
        parts = self._schema.parts(self._identity.is_checkpoint)
        for index, (part, expected) in enumerate(zip(parts, header.checksums, strict=True)):
            found = self._checksum(index)
            if found != expected:
                detail = f"page of {part.name}: expected checksum {expected}, found {found}"
                return Fault(Reason.CHECKSUM_MISMATCH, part.group, expected, found, detail)
        return header

    def _failed(self, tier: Tier, failure: Failure) -> None:
        self._faults.append((tier.index, failure.fault))
        if failure.is_outage:
            return
        if failure.fault.reason in _BAD:
            tier.set_aside(self.name)
            self.gone |= tier.bit
        elif failure.fault.reason in _LOST:
            self.gone |= tier.bit


def _fault(reason: Reason, detail: str) -> Fault:
    return Fault(reason, 0, 0, 0, detail)
