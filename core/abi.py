"""How the bytes of one group are laid out and which kernel reads them, as a value with a digest.

Pages may be read only by the kernel they were laid out for. The digest of an :class:`Abi` stands
in every stored object, its :meth:`~Abi.word` in every page's stamp.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .errors import ConfigError
from .groups import DTYPE_BYTES, GroupSpec, Kind, check_name
from .layout import CacheLayout

__all__ = ["Abi", "AbiComponent", "Rope", "abi_of"]

WORD_MASK = 0x7FFF_FFFF


def _expect(holds: bool, what: str, expected: str, found: object) -> None:
    if not holds:
        raise ConfigError(f"abi: {what}: expected {expected}, found {found!r}")


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True)
class Rope:
    """The rotary embedding baked into cached keys.

    Args:
        theta: base of the frequencies.
        dim: rotated elements of a head.
        scaling: parameters of the scaling by name, such as ``(("factor", 16.0), ("type",
            "yarn"))``, sorted by name; empty where nothing is scaled. Numbers are kept as floats.

    Raises:
        ConfigError: a number that is not finite, a size below one, or unsorted names.
    """

    theta: float
    dim: int
    scaling: tuple[tuple[str, float | str], ...] = ()

    def __post_init__(self) -> None:
        # One number has one digest, whether it was written 16 or 16.0.
        object.__setattr__(self, "theta", _number("rope theta", self.theta))
        _expect(_is_count(self.dim, 1), "rope dim", "at least 1", self.dim)
        names = [name for name, _ in self.scaling]
        _expect(names == sorted(set(names)), "rope scaling", "names sorted, each once", names)
        scaling = tuple(
            (name, value if isinstance(value, str) else _number(f"rope scaling {name}", value))
            for name, value in self.scaling
        )
        object.__setattr__(self, "scaling", scaling)


def _number(what: str, value: object) -> float:
    finite = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    )
    _expect(finite, what, "a finite number", value)
    return float(value) + 0.0  # type: ignore[arg-type]  # -0.0 becomes 0.0, its equal


@dataclass(frozen=True)
class AbiComponent:
    """One tensor of a page: per layer ``rows`` rows of ``shape`` elements, from byte ``offset``.

    Raises:
        ConfigError: unknown dtype, or a size that cannot be.
    """

    name: str
    dtype: str
    rows: int
    shape: tuple[int, ...]
    offset: int

    def __post_init__(self) -> None:
        check_name("abi: component", self.name)
        _expect(
            self.dtype in DTYPE_BYTES, f"dtype of {self.name}", " or ".join(DTYPE_BYTES), self.dtype
        )
        _expect(_is_count(self.rows, 1), f"rows of {self.name}", "at least 1", self.rows)
        _expect(
            bool(self.shape) and all(_is_count(size, 1) for size in self.shape),
            f"shape of {self.name}",
            "sizes of at least 1",
            self.shape,
        )
        _expect(_is_count(self.offset), f"offset of {self.name}", "at least 0", self.offset)

    @property
    def layer_bytes(self) -> int:
        """Bytes of one layer: its rows one after the other."""
        return self.rows * math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Abi:
    """One group's bytes and their reader; equal exactly when one can read the other's pages.

    Args:
        group: name of the group.
        kind: name of its :class:`~kvstrata.core.groups.Kind`.
        layers: model layers in ascending order; a layer's index here is its index in a page.
        components: the tensors of a page in storage order.
        heads: key-value heads of a row.
        head_dim: elements of one head in a row.
        page_bytes: bytes of a page, which is also the distance of two pages.
        ratio: tokens one entry stands for.
        window: tokens a query sees, itself included; 0 where nothing slides.
        overlap: whether the compressor also reads the last closed window.
        quantisation: name of the scheme, "none" where elements are plain numbers.
        rope: the rotary embedding of cached keys; None where keys are not rotated.
        kernel: name of the kernel family that reads the pages.
        kernel_version: its version; another version may read other bytes.

    Raises:
        ConfigError: a field that no group can have; says what was expected and found.
    """

    group: str
    kind: str
    layers: tuple[int, ...]
    components: tuple[AbiComponent, ...]
    heads: int
    head_dim: int
    page_bytes: int
    ratio: int
    window: int
    overlap: bool
    quantisation: str
    rope: Rope | None
    kernel: str
    kernel_version: str

    def __post_init__(self) -> None:
        check_name("abi: group", self.group)
        _expect(self.kind in Kind.__members__, "kind", " or ".join(Kind.__members__), self.kind)
        _expect(
            bool(self.layers)
            and all(_is_count(layer) for layer in self.layers)
            and list(self.layers) == sorted(set(self.layers)),
            "layers",
            "ascending layer numbers",
            self.layers,
        )
        names = [component.name for component in self.components]
        _expect(
            bool(names) and len(set(names)) == len(names),
            "components",
            "one or more of different names",
            names,
        )
        for name in ("heads", "head_dim", "page_bytes", "ratio"):
            value = getattr(self, name)
            _expect(_is_count(value, 1), name, "at least 1", value)
        _expect(_is_count(self.window), "window", "at least 0", self.window)
        _expect(isinstance(self.overlap, bool), "overlap", "true or false", self.overlap)
        for name in ("quantisation", "kernel", "kernel_version"):
            value = getattr(self, name)
            _expect(isinstance(value, str) and bool(value), name, "a name", value)

    def component(self, name: str) -> AbiComponent | None:
        """Look a component up; None where the group has no such component."""
        return next((part for part in self.components if part.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """The descriptor as plain dicts, lists, strings and numbers; :meth:`from_json` reads it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Abi":
        """Build a descriptor from what :meth:`to_json` gave.

        Raises:
            ConfigError: a field is missing, unknown or of the wrong type; says what was expected
                and found.
        """
        try:
            return cls._from_json(found)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"abi: expected the fields that Abi.to_json writes, found {error!r}"
            ) from error

    @classmethod
    def _from_json(cls, found: Mapping[str, Any]) -> "Abi":
        _expect_fields("fields", cls, found)
        parts = found["components"]
        _expect(isinstance(parts, list), "components", "a list", parts)
        for part in parts:
            _expect_fields("fields of a component", AbiComponent, part)
        components = tuple(
            AbiComponent(**{**part, "shape": _tuple("shape", part["shape"])}) for part in parts
        )
        rope = found["rope"]
        if rope is not None:
            _expect_fields("fields of rope", Rope, rope)
            pairs = _tuple("rope scaling", rope["scaling"])
            scaling = tuple((name, value) for name, value in pairs)
            rope = Rope(**{**rope, "scaling": scaling})
        layers = _tuple("layers", found["layers"])
        return cls(**{**found, "layers": layers, "components": components, "rope": rope})

    def canonical(self) -> bytes:
        """The descriptor as canonical JSON: sorted keys, no spaces, ASCII."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":")).encode()

    def digest(self) -> bytes:
        """Identity: the first 16 bytes of sha256 over :meth:`canonical`."""
        return hashlib.sha256(self.canonical()).digest()[:16]

    def word(self) -> int:
        """31 bits of the digest, never 0, for the stamp of a page."""
        return int.from_bytes(self.digest()[:4], "little") & WORD_MASK or 1


def _tuple(what: str, value: object) -> tuple[Any, ...]:
    _expect(isinstance(value, list), what, "a list", value)
    return tuple(value)  # type: ignore[arg-type]


def _expect_fields(what: str, cls: type[Any], found: object) -> None:
    expected = sorted(field.name for field in fields(cls))
    _expect(isinstance(found, Mapping), what, ", ".join(expected), found)
    if isinstance(found, Mapping):
        _expect(sorted(map(str, found)) == expected, what, ", ".join(expected), sorted(found))


def abi_of(
    layout: CacheLayout,
    group_name: str,
    *,
    heads: int = 1,
    rope: Rope | None = None,
    quantisation: str = "none",
    kernel: str = "reference",
    kernel_version: str = "1",
) -> Abi:
    """Describe one group of a layout.

    Args:
        layout: the cache's.
        group_name: of the group.
        heads: key-value heads of a row; ``head_dim`` is the elements of a row of the first
            component divided by it.
        rope: of the cached keys; None where they are not rotated.
        quantisation: name of the scheme.
        kernel: name of the kernel family that reads the pages.
        kernel_version: of that family.

    Raises:
        ConfigError: no group of that name, or heads that do not divide a row.
    """
    group: GroupSpec = layout.group(group_name)
    elements = math.prod(group.components[0].shape)
    divides = _is_count(heads, 1) and elements % heads == 0
    _expect(divides, f"heads of {group_name}", f"a divisor of {elements}", heads)
    return Abi(
        group=group.name,
        kind=group.kind.name,
        layers=group.layers,
        components=tuple(
            AbiComponent(c.name, c.dtype, c.rows, c.shape, group.component_offset(c.name))
            for c in group.components
        ),
        heads=heads,
        head_dim=elements // heads,
        page_bytes=group.page_bytes,
        ratio=group.ratio,
        window=group.window,
        overlap=group.overlap,
        quantisation=quantisation,
        rope=rope,
        kernel=kernel,
        kernel_version=kernel_version,
    )
