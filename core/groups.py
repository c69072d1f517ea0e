"""What a layout is made of: kinds, components and groups, with the bytes each takes.

A *page* holds one group's share of a block (history) or one state image (state). It is the
group's components one after the other, each a dense array ``[layers, rows, *shape]`` that begins
at a multiple of 64 bytes; the page as a whole is padded to 64 bytes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from .errors import ConfigError

__all__ = [
    "DTYPE_BYTES",
    "HISTORY_KINDS",
    "PAGE_ALIGNMENT",
    "STATE_KINDS",
    "Component",
    "GroupSpec",
    "Kind",
    "dtype_name",
]

PAGE_ALIGNMENT = 64
DTYPE_BYTES: Mapping[str, int] = {"bf16": 2, "fp16": 2, "fp32": 4, "u8": 1}
OVERLAP_PREFIX = "overlap_"

_LONG_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "uint8": "u8"}
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


class Kind(IntEnum):
    """The five kinds of cached state; the numbers are stored and never change."""

    COMPRESSED = 1
    TAIL = 2
    SWA = 3
    INDEXER = 4
    DISK = 5


HISTORY_KINDS = frozenset({Kind.COMPRESSED, Kind.INDEXER})
STATE_KINDS = frozenset({Kind.SWA, Kind.TAIL})


def dtype_name(dtype: object) -> str:
    """Bring a dtype to its name in a layout.

    Args:
        dtype: a layout name ("bf16"), a long name ("bfloat16"), or a torch dtype.

    Returns:
        One of the keys of ``DTYPE_BYTES``.

    Raises:
        ConfigError: no such dtype.
    """
    found = str(dtype).removeprefix("torch.")
    name = _LONG_DTYPES.get(found, found)
    if name not in DTYPE_BYTES:
        raise ConfigError(f"dtype: expected one of {', '.join(DTYPE_BYTES)}, found {found!r}")
    return name


def padded(num_bytes: int) -> int:
    """Round a size in bytes up to a multiple of ``PAGE_ALIGNMENT``."""
    return -(-num_bytes // PAGE_ALIGNMENT) * PAGE_ALIGNMENT


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not be part of a file name.

    Raises:
        ConfigError: the name has other characters than ``a-z 0-9 . _ -``.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what}: expected a name of lower-case letters, digits, '.', '_' and '-', "
            f"found {name!r}"
        )


@dataclass(frozen=True)
class Component:
    """One tensor inside a page: per layer ``rows`` rows of ``shape`` elements.

    Args:
        name: unique in its group.
        dtype: "bf16", "fp16", "fp32" or "u8".
        rows: rows of one layer in one page.
        shape: shape of one row.

    Raises:
        ConfigError: unknown dtype, or a size below one.
    """

    name: str
    dtype: str
    rows: int
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        check_name("component", self.name)
        if self.dtype not in DTYPE_BYTES:
            raise ConfigError(
                f"component {self.name}: expected dtype one of {', '.join(DTYPE_BYTES)}, "
                f"found {self.dtype!r}"
            )
        if self.rows < 1 or not self.shape or min(self.shape) < 1:
            raise ConfigError(
                f"component {self.name}: expected rows and every dimension to be at least 1, "
                f"found rows={self.rows}, shape={self.shape}"
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of one layer."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]

    @property
    def is_overlap(self) -> bool:
        """Whether a row stands for one closed compression window instead of one token."""
        return self.name.startswith(OVERLAP_PREFIX)


@dataclass(frozen=True)
class GroupSpec:
    """Layers that share one cache lifecycle, and what one page of them holds.

    Args:
        name: unique in its layout; also the stem of the pool's file name.
        kind: COMPRESSED, INDEXER (history), SWA or TAIL (state).
        layers: model layers in ascending order; a layer's index here is its index in a page.
        ratio: tokens one history entry stands for; for TAIL, of the compressor it feeds; 1 for SWA.
        window: tokens a query sees, itself included; SWA only, 0 elsewhere.
        overlap: the compressor of this TAIL also reads the last closed window.
        components: the tensors of a page, in storage order.

    Raises:
        ConfigError: the parts contradict each other.
    """

    name: str
    kind: Kind
    layers: tuple[int, ...]
    ratio: int
    window: int
    overlap: bool
    components: tuple[Component, ...]

    def __post_init__(self) -> None:
        check_name("group", self.name)
        if self.kind not in HISTORY_KINDS | STATE_KINDS:
            raise self._error("kind COMPRESSED, INDEXER, SWA or TAIL", repr(self.kind))
        if not self.layers or list(self.layers) != sorted(set(self.layers)) or self.layers[0] < 0:
            raise self._error("one or more ascending layer numbers", str(self.layers))
        if self.ratio < 1:
            raise self._error("ratio of at least 1", str(self.ratio))
        if self.kind is Kind.SWA and (self.window < 2 or self.ratio != 1):
            raise self._error(
                "a SWA group with window of at least 2 and ratio 1",
                f"window {self.window}, ratio {self.ratio}",
            )
        if self.kind is not Kind.SWA and self.window != 0:
            raise self._error(f"window 0 in a {self.kind.name} group", str(self.window))
        names = [component.name for component in self.components]
        if not names or len(set(names)) != len(names):
            raise self._error("one or more components of different names", str(names))
        has_overlap = any(component.is_overlap for component in self.components)
        if self.overlap != has_overlap or (self.overlap and self.kind is not Kind.TAIL):
            raise self._error(
                "components named overlap_* exactly where overlap is set, in a TAIL group",
                f"overlap={self.overlap}, kind {self.kind.name}, components {names}",
            )

    def _error(self, expected: str, found: str) -> ConfigError:
        return ConfigError(f"group {self.name}: expected {expected}, found {found}")

    @property
    def is_history(self) -> bool:
        """Whether a resume needs every block of this group, not only the image at its end."""
        return self.kind in HISTORY_KINDS

    @property
    def num_layers(self) -> int:
        """Layers in one page."""
        return len(self.layers)

    @property
    def rows(self) -> int:
        """Rows of the first component: entries (history) or ring rows (state) of one page."""
        return self.components[0].rows

    @property
    def entry_bytes(self) -> int:
        """Bytes of one row of every component in all layers, without padding."""
        return self.num_layers * sum(component.row_bytes for component in self.components)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, a multiple of 64."""
        last = self.components[-1]
        return padded(self.component_offset(last.name) + self._component_bytes(last))

    def component(self, name: str) -> Component:
        """Look a component up.

        Raises:
            ConfigError: no component of that name.
        """
        for component in self.components:
            if component.name == name:
                return component
        names = ", ".join(component.name for component in self.components)
        raise self._error(f"component one of {names}", repr(name))

    def component_offset(self, name: str) -> int:
        """Byte at which a component begins in a page, a multiple of 64.

        Raises:
            ConfigError: no component of that name.
        """
        wanted = self.component(name)
        offset = 0
        for component in self.components:
            if component is wanted:
                break
            offset = padded(offset + self._component_bytes(component))
        return offset

    def component_shape(self, name: str) -> tuple[int, ...]:
        """Shape ``(layers, rows, *shape)`` of a component in a page.

        Raises:
            ConfigError: no component of that name.
        """
        component = self.component(name)
        return (self.num_layers, component.rows, *component.shape)

    def _component_bytes(self, component: Component) -> int:
        return self.num_layers * component.rows * component.row_bytes
