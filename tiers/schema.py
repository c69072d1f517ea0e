"""What objects are called and how large they are: the part of the format an engine knows ahead.

docs/format.md is the page to this module and to :mod:`.format`.
"""

import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from kvstrata.core.errors import ConfigError
from kvstrata.core.groups import Kind

__all__ = [
    "DIGEST_BYTES",
    "FORMAT_VERSION",
    "HEAD_BYTES",
    "KEY_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_PARTS",
    "POSITIONS",
    "ROW_BYTES",
    "SEAL_BYTES",
    "TRAILER_BYTES",
    "ObjectId",
    "Part",
    "Schema",
    "facts_digest",
    "namespace_of",
    "pack_facts",
    "parse_name",
]

FORMAT_VERSION: Final = 1
KEY_BYTES: Final = 16
DIGEST_BYTES: Final = 16
HEAD_BYTES: Final = 128
ROW_BYTES: Final = 64
SEAL_BYTES: Final = 64
TRAILER_BYTES: Final = 16
MAX_PARTS: Final = 255
POSITIONS: Final = 1 << 32
"""A position is less: events and tables have 32 bits for it."""
MAX_HEADER_BYTES: Final = HEAD_BYTES + MAX_PARTS * ROW_BYTES + SEAL_BYTES
"""No header is longer: so many first bytes of an object are enough for ``read_any``."""

_MAX_WORD: Final = (1 << 64) - 1
_MAX_TOKENS: Final = (1 << 32) - 1
_FACTS: Final = struct.Struct("<16sQQII")
_NAMESPACE: Final = struct.Struct("<II16s16s16s")
# The folder below the namespace repeats the key's first two digits.
_NAME: Final = re.compile(
    r"([0-9a-f]{32})/(?=(..)/\2)[0-9a-f]{2}/([0-9a-f]{32})\.(block|checkpoint)"
)


class ObjectId(NamedTuple):
    """Which object: a block's history pages or a checkpoint's state pages, under a prefix key."""

    key: bytes
    is_checkpoint: bool


@dataclass(frozen=True)
class Part:
    """One group's page inside an object.

    Args:
        group: number of the group in the layout.
        name: of the group, for messages; not stored.
        kind: name of a :class:`~kvstrata.core.groups.Kind`, such as "COMPRESSED".
        page_bytes: bytes of the page.
        abi: digest of the group's ABI, 16 bytes.
        version: word of the group's compression mapping, 0 for none.

    Raises:
        ConfigError: a value that the header cannot hold.
    """

    group: int
    name: str
    kind: str
    page_bytes: int
    abi: bytes
    version: int

    def __post_init__(self) -> None:
        _expect(0 <= self.group <= MAX_PARTS, "group", f"0 to {MAX_PARTS}", self.group)
        _expect(self.kind in Kind.__members__, "kind", "the name of a kind", self.kind)
        _expect(self.page_bytes > 0, "page_bytes", "at least 1", self.page_bytes)
        _expect(len(self.abi) == DIGEST_BYTES, "abi", "16 bytes", self.abi)
        _expect(0 <= self.version <= _MAX_WORD, "version", "64 bits", self.version)

    @property
    def facts(self) -> bytes:
        """What readers of the page must agree on, packed."""
        return pack_facts(
            self.abi, self.page_bytes, self.version, self.group, Kind[self.kind].value
        )


@dataclass(frozen=True)
class Schema:
    """What all objects of one engine agree on.

    Args:
        layout: the layout's digest, 16 bytes.
        block_tokens: tokens of a block.
        blocks: parts of a block's object: the history groups in group order.
        checkpoints: parts of a checkpoint's object: the state groups in group order, none where
            the layout has none.

    Raises:
        ConfigError: a value that the header cannot hold, or groups out of order.
    """

    layout: bytes
    block_tokens: int
    blocks: tuple[Part, ...]
    checkpoints: tuple[Part, ...]

    def __post_init__(self) -> None:
        _expect(len(self.layout) == DIGEST_BYTES, "layout", "16 bytes", self.layout)
        _expect(0 < self.block_tokens <= _MAX_TOKENS, "block_tokens", "32 bits", self.block_tokens)
        _expect(bool(self.blocks), "blocks", "at least one part", "none")
        for parts in (self.blocks, self.checkpoints):
            groups = [part.group for part in parts]
            in_order = groups == sorted(set(groups)) and len(groups) <= MAX_PARTS
            _expect(in_order, "groups", f"up to {MAX_PARTS}, ascending", groups)

    def parts(self, is_checkpoint: bool) -> tuple[Part, ...]:
        """The pages of an object, in the order in which they lie in it."""
        return self.checkpoints if is_checkpoint else self.blocks

    def header_bytes(self, is_checkpoint: bool) -> int:
        """Bytes of the header, a multiple of 64."""
        return HEAD_BYTES + ROW_BYTES * len(self.parts(is_checkpoint)) + SEAL_BYTES

    def object_bytes(self, is_checkpoint: bool) -> int:
        """Bytes of a whole object: header, pages and trailer."""
        pages = sum(part.page_bytes for part in self.parts(is_checkpoint))
        return self.header_bytes(is_checkpoint) + pages + TRAILER_BYTES

    @cached_property
    def block_facts(self) -> bytes:
        """Digest of the parts of blocks."""
        return facts_digest(part.facts for part in self.blocks)

    @cached_property
    def checkpoint_facts(self) -> bytes:
        """Digest of the parts of checkpoints."""
        return facts_digest(part.facts for part in self.checkpoints)

    @cached_property
    def namespace(self) -> str:
        """32 hex digits that only engines with an equal schema share."""
        return namespace_of(
            FORMAT_VERSION, self.block_tokens, self.layout, self.block_facts, self.checkpoint_facts
        )

    def object_name(self, identity: ObjectId) -> str:
        """Where an object stands in every store, such as ``<namespace>/3f/3f...9c.block``."""
        digits = identity.key.hex()
        suffix = "checkpoint" if identity.is_checkpoint else "block"
        return f"{self.namespace}/{digits[:2]}/{digits}.{suffix}"


def pack_facts(abi: bytes, page_bytes: int, version: int, group: int, kind: int) -> bytes:
    """What readers of one page must agree on, as the namespace takes it: 40 bytes."""
    return _FACTS.pack(abi, page_bytes, version, group, kind)


def facts_digest(facts: Iterable[bytes]) -> bytes:
    """The first 16 bytes of sha256 over the parts' packed facts, in part order."""
    return hashlib.sha256(b"".join(facts)).digest()[:DIGEST_BYTES]


def namespace_of(
    version: int, block_tokens: int, layout: bytes, block_facts: bytes, checkpoint_facts: bytes
) -> str:
    """The namespace, from facts that stand in every header.

    Args:
        version: of the format.
        block_tokens: tokens of a block.
        layout: the layout's digest, 16 bytes.
        block_facts: digest of the parts of blocks, 16 bytes.
        checkpoint_facts: digest of the parts of checkpoints, 16 bytes.
    """
    packed = _NAMESPACE.pack(version, block_tokens, layout, block_facts, checkpoint_facts)
    return hashlib.sha256(packed).hexdigest()[: 2 * DIGEST_BYTES]


def parse_name(name: str) -> tuple[str, ObjectId] | None:
    """Namespace and identity that a name stands for, or None where it is no object's name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    namespace, _, key, suffix = match.groups()
    return namespace, ObjectId(bytes.fromhex(key), suffix == "checkpoint")


def _expect(holds: bool, what: str, expected: str, found: object) -> None:
    if not holds:
        raise ConfigError(f"object format: {what}: expected {expected}, found {found!r}")
