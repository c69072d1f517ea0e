"""The layout of a cache: which groups a model has, and what a page of each holds.

History pages: page ``i`` holds entries ``[i*E, (i+1)*E)`` with ``E = block_tokens // ratio``.

State pages are rings addressed by absolute position, so that an image taken at ``P`` also serves
every ``P'`` in ``[P - rollback_tokens, P]``; rolling back moves the position and no bytes:

=====================  ======================================  ==========================
component              rows                                    row of position or window
=====================  ======================================  ==========================
of SWA                 ``window - 1 + rollback_tokens``        ``position % rows``
of TAIL                ``ratio + rollback_tokens``             ``position % rows``
of TAIL, ``overlap_``  ``ceil(rollback_tokens / ratio) + 1``   ``closed window % rows``
=====================  ======================================  ==========================
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from .errors import ConfigError
from .groups import Component, GroupSpec, Kind, check_name

__all__ = [
    "CacheLayout",
    "Component",
    "GroupSpec",
    "Kind",
    "expected_rows",
    "preset",
    "render",
    "render_totals",
]

MAX_GROUPS = 255  # an event names its group in one byte


def expected_rows(
    group: GroupSpec, component: Component, block_tokens: int, rollback_tokens: int
) -> int:
    """Rows that a component must have, by the table at the top of this module."""
    if group.is_history:
        return block_tokens // group.ratio
    if group.kind is Kind.SWA:
        return group.window - 1 + rollback_tokens
    if component.is_overlap:
        return -(-rollback_tokens // group.ratio) + 1
    return group.ratio + rollback_tokens


@dataclass(frozen=True)
class CacheLayout:
    """All groups of a model, history groups first; a group's id is its index.

    Args:
        name: for people and messages; part of the digest.
        groups: history groups, then state groups.
        block_tokens: tokens of a block, a multiple of the lcm of the history groups' ratios.
        rollback_tokens: how many tokens a state image can be rolled back, at least 1 so that
            decoding writes its image in place.
        num_layers: layers of the model.

    Raises:
        ConfigError: the parts contradict each other; says what was expected and found.
    """

    name: str
    groups: tuple[GroupSpec, ...]
    block_tokens: int
    rollback_tokens: int
    num_layers: int

    def __post_init__(self) -> None:
        check_name("layout", self.name)
        self._check_order()
        self._check_sizes()
        for group in self.groups:
            self._check_group(group)

    def _error(self, expected: str, found: object) -> ConfigError:
        return ConfigError(f"layout {self.name}: expected {expected}, found {found}")

    def _check_order(self) -> None:
        names = [group.name for group in self.groups]
        if len(set(names)) != len(names):
            raise self._error("unique group names", ", ".join(names))
        if not self.history_groups:
            raise self._error("at least one COMPRESSED group", f"groups {names}")
        if self.groups != self.history_groups + self.state_groups:
            raise self._error("history groups before state groups", ", ".join(names))
        if len(names) > MAX_GROUPS:
            raise self._error(f"at most {MAX_GROUPS} groups", len(names))

    def _check_sizes(self) -> None:
        if self.num_layers < 1 or self.rollback_tokens < 1:
            raise self._error(
                "num_layers and rollback_tokens of at least 1",
                f"{self.num_layers} and {self.rollback_tokens}",
            )
        if self.block_tokens < 1 or self.block_tokens % self.lcm:
            raise self._error(
                f"block_tokens to be a multiple of {self.lcm}, the lcm of the ratios",
                self.block_tokens,
            )

    def _check_group(self, group: GroupSpec) -> None:
        if group.layers[-1] >= self.num_layers:
            raise self._error(
                f"layers of group {group.name} below {self.num_layers}", group.layers[-1]
            )
        partners = {Kind.INDEXER: {Kind.COMPRESSED}, Kind.TAIL: {Kind.COMPRESSED, Kind.INDEXER}}
        wanted = partners.get(group.kind)
        if wanted is not None and not any(
            other.kind in wanted and other.ratio == group.ratio and other.layers == group.layers
            for other in self.history_groups
        ):
            kinds = " or ".join(sorted(kind.name for kind in wanted))
            raise self._error(
                f"a {kinds} group with the ratio {group.ratio} and the layers of {group.name}",
                "none",
            )
        for component in group.components:
            rows = expected_rows(group, component, self.block_tokens, self.rollback_tokens)
            if component.rows != rows:
                raise self._error(f"{rows} rows in {group.name}.{component.name}", component.rows)

    def __str__(self) -> str:
        """The layout as a table: groups, bytes of a page and of a block, hit unit."""
        rows = render(self)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self.name, *lines, *(": ".join(total) for total in render_totals(self))])

    @cached_property
    def history_groups(self) -> tuple[GroupSpec, ...]:
        """The groups of which a resume needs every block: ids ``[0, len(history_groups))``."""
        return tuple(group for group in self.groups if group.is_history)

    @cached_property
    def state_groups(self) -> tuple[GroupSpec, ...]:
        """The groups of which a resume needs only the image at its end."""
        return tuple(group for group in self.groups if not group.is_history)

    @cached_property
    def lcm(self) -> int:
        """Least common multiple of the history groups' ratios, in tokens."""
        return math.lcm(*(group.ratio for group in self.history_groups))

    @property
    def bytes_per_token(self) -> float:
        """Bytes of history that one token costs, page padding not counted."""
        return sum(group.entry_bytes / group.ratio for group in self.history_groups)

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of one block: one page of every history group."""
        return sum(group.page_bytes for group in self.history_groups)

    @cached_property
    def image_bytes(self) -> int:
        """Bytes of one state image: one page of every state group."""
        return sum(group.page_bytes for group in self.state_groups)

    @cached_property
    def replay_tokens(self) -> int:
        """So many tokens before a point give its state again when computed from nothing.

        Layer ``l`` is exact from ``l * (window - 1)`` tokens after the start on, since its input is
        exact from there minus one window. The image needs the last ``window - 1`` rows of every
        layer, and of an overlapped compressor the raw rows of the window closed last. (Measured:
        see the adapter's tests.) 0 without state groups.
        """
        if not self.state_groups:
            return 0
        reach = max((group.window - 1 for group in self.state_groups if group.window), default=0)
        overlap = max((group.ratio for group in self.state_groups if group.overlap), default=0)
        return (self.num_layers - 1) * reach + max(reach, overlap)

    @property
    def hit_unit(self) -> int:
        """Tokens to which a hit is rounded down: the block."""
        return self.block_tokens

    def group_id(self, name: str) -> int:
        """Look a group's id up.

        Raises:
            ConfigError: no group of that name.
        """
        for index, group in enumerate(self.groups):
            if group.name == name:
                return index
        raise self._error(f"group one of {', '.join(g.name for g in self.groups)}", repr(name))

    def group(self, name: str) -> GroupSpec:
        """Look a group up by name.

        Raises:
            ConfigError: no group of that name.
        """
        return self.groups[self.group_id(name)]

    def page_bytes(self, group: int) -> int:
        """Bytes of one page of the group with this id."""
        return self.groups[group].page_bytes

    def to_json(self) -> dict[str, Any]:
        """The layout as plain dicts, lists, strings and numbers; :meth:`from_json` reads it."""
        fields = asdict(self)
        for group in fields["groups"]:
            group["kind"] = Kind(group["kind"]).name
        plain: dict[str, Any] = json.loads(json.dumps(fields))
        return plain

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "CacheLayout":
        """Build a layout from what :meth:`to_json` gave.

        Raises:
            ConfigError: a field is missing, unknown or of the wrong type, or the layout is
                invalid.
        """
        try:
            groups = tuple(_group_from_json(group) for group in fields["groups"])
            return cls(**{**fields, "groups": groups})
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"layout: expected the fields that CacheLayout.to_json writes, found {error!r}"
            ) from error

    def digest(self) -> bytes:
        """Identity of the layout: the first 16 bytes of sha256 over its canonical JSON."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).digest()[:16]

    @classmethod
    def from_hf_config(
        cls,
        config: Any,
        dtype: object,
        block_tokens: int | None = None,
        rollback_tokens: int = 8,
        component_dtypes: Mapping[str, str] | None = None,
    ) -> "CacheLayout":
        """Build the layout of a DeepSeek-V4 model as transformers runs it.

        Args:
            config: a ``DeepseekV4Config`` or anything with its attributes.
            dtype: the model's dtype, "bf16" or a torch dtype.
            block_tokens: tokens of a block; the lcm of the compression ratios if None.
            rollback_tokens: how many tokens a state image can be rolled back.
            component_dtypes: ``"<group>.<component>"`` to dtype, where the loaded model differs
                from the defaults. By default everything has the model's dtype but the overlap
                gates, which are fp32: right for a model loaded with a fp32 position bias, and
                without loss for one that was cast whole.

        Returns:
            The layout, its history groups named ``c<ratio>`` and ``c<ratio>.index``.

        Raises:
            ConfigError: the config is of another architecture, or names an unknown component.
        """
        from .presets import layout_from_hf_config

        return layout_from_hf_config(
            config,
            dtype=dtype,
            block_tokens=block_tokens,
            rollback_tokens=rollback_tokens,
            component_dtypes=component_dtypes or {},
        )


def _group_from_json(fields: Mapping[str, Any]) -> GroupSpec:
    components = tuple(
        Component(**{**component, "shape": tuple(component["shape"])})
        for component in fields["components"]
    )
    layers = tuple(fields["layers"])
    kind = Kind[fields["kind"]]
    return GroupSpec(**{**fields, "kind": kind, "layers": layers, "components": components})


def preset(name: str, block_tokens: int | None = None, rollback_tokens: int = 8) -> CacheLayout:
    """Build a published model's layout by name: "deepseek-v4-flash" or "deepseek-v4-pro".

    Args:
        name: the preset.
        block_tokens: tokens of a block; the lcm of the compression ratios if None.
        rollback_tokens: how many tokens a state image can be rolled back.

    Raises:
        ConfigError: no preset of that name, or sizes that do not fit it.
    """
    from .presets import layout_from_preset

    return layout_from_preset(name, block_tokens, rollback_tokens)


def render(layout: CacheLayout) -> list[tuple[str, ...]]:
    """The layout as a table of text: a header, then a row a group.

    Returns:
        Rows of equal length: group, kind, ratio, layers, rows a page, page bytes, bytes a block
        ("-" for state groups, whose pages are images).
    """
    header = ("group", "kind", "ratio", "layers", "rows a page", "page bytes", "bytes a block")
    rows: list[tuple[str, ...]] = [header]
    for group in layout.groups:
        rows.append(
            (
                group.name,
                group.kind.name,
                "-" if group.kind is Kind.SWA else str(group.ratio),
                str(group.num_layers),
                str(group.rows),
                f"{group.page_bytes:,}",
                f"{group.page_bytes:,}" if group.is_history else "-",
            )
        )
    return rows


def render_totals(layout: CacheLayout) -> list[tuple[str, str]]:
    """The sums below the table of :func:`render`, as pairs of label and value."""
    return [
        ("bytes a token", f"{layout.bytes_per_token:,.2f}"),
        ("bytes a block", f"{layout.block_bytes:,}"),
        ("image bytes", f"{layout.image_bytes:,}"),
        ("lcm of ratios", f"{layout.lcm} tokens"),
        ("effective hit unit", f"{layout.hit_unit} tokens"),
    ]
