"""What a configuration gives a layout: pools, and every setting with its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from kvstrata import CacheConfig, CacheLayout, ConfigError

from .sizes import format_bytes

__all__ = ["HEADER", "parse_slots", "pool_rows", "pools_json", "settings_json", "settings_rows"]

HEADER = ("pool", "kind", "slots", "bytes", "holds")


def parse_slots(texts: Sequence[str]) -> dict[str, int]:
    """Read ``c4=1000`` pairs, each on its own or several with commas.

    Raises:
        ConfigError: a text is no such pair, or a group is named twice.
    """
    slots: dict[str, int] = {}
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        group, separator, number = text.partition("=")
        if not separator or not number.isdecimal():
            raise ConfigError(f"slots: expected GROUP=NUMBER, such as c4=1000, found {text!r}")
        if group in slots:
            raise ConfigError(f"slots: expected each group once, found {group!r} twice")
        slots[group] = int(number)
    return slots


def pools_json(layout: CacheLayout, config: CacheConfig) -> dict[str, Any]:
    """Pools by group and what they hold together, as JSON values.

    Raises:
        ConfigError: the memory does not suffice for one sequence.
    """
    params = config.arena_params(layout)
    blocks = params.num_blocks(layout)
    return {
        "slots": {group.name: params.slots[group.name] for group in layout.groups},
        "bytes": sum(params.slots[group.name] * group.page_bytes for group in layout.groups),
        "blocks": blocks,
        "tokens": blocks * layout.block_tokens,
        "images": params.num_images(layout),
    }


def pool_rows(layout: CacheLayout, slots: Mapping[str, int]) -> list[tuple[str, ...]]:
    """One row a pool, for the table under :data:`HEADER`; one slot of each is scratch."""
    rows: list[tuple[str, ...]] = []
    for group in layout.groups:
        pages = slots[group.name] - 1
        holds = (
            f"{pages * layout.block_tokens:,} tokens" if group.is_history else f"{pages:,} images"
        )
        rows.append(
            (
                group.name,
                group.kind.name,
                f"{slots[group.name]:,}",
                format_bytes(slots[group.name] * group.page_bytes),
                holds,
            )
        )
    return rows


def settings_json(config: Any) -> dict[str, Any]:
    """Every field of a configuration, nested ones as nested objects."""
    return {field.name: _plain(getattr(config, field.name)) for field in fields(config)}


def settings_rows(config: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Every field of a configuration as a pair of dotted name and value."""
    rows: list[tuple[str, str]] = []
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            rows += settings_rows(value, f"{prefix}{field.name}.")
        else:
            rows.append((f"{prefix}{field.name}", "-" if value is None else str(_plain(value))))
    return rows


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return settings_json(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, Path) else value
