"""``kvstrata layout``: what a model's cache consists of."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from kvstrata import CacheConfig
from kvstrata.core.errors import ConfigError
from kvstrata.core.layout import CacheLayout, preset, render, render_totals
from kvstrata.core.presets import PRESETS

from ..output import JsonFlag, print_facts, print_json, print_table
from ..pool_table import (
    HEADER,
    parse_slots,
    pool_rows,
    pools_json,
    settings_json,
    settings_rows,
)
from ..sizes import format_bytes, parse_bytes

__all__ = ["EPILOG", "run"]

EPILOG = """
[bold]Examples[/bold]

kvstrata layout                                     (the presets)

kvstrata layout deepseek-v4-flash --budget 40GB    (what 40e9 bytes hold)

kvstrata layout --file config.json --dtype bf16     (a model's own config)
"""


def run(
    name: Annotated[
        str | None, typer.Argument(metavar="PRESET", help=f"One of {', '.join(PRESETS)}.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="JSON that this command wrote, or the config.json of a model."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="The model's dtype, for a config.json: bf16, fp16 or fp32.")
    ] = "bf16",
    block_tokens: Annotated[
        int | None, typer.Option(help="Tokens of a block, for a PRESET or a config.json.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Bytes of all pools together, such as 40GB (1 GB is 1e9).")
    ] = None,
    slots: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP=N", help="Pages of each group's pool, instead of a budget."),
    ] = None,
    max_sequences: Annotated[
        int, typer.Option(help="Running sequences at once, for --budget and --slots.")
    ] = CacheConfig.max_sequences,
    images_per_sequence: Annotated[
        int, typer.Option(help="State images of each sequence, for --budget and --slots.")
    ] = CacheConfig.images_per_sequence,
    as_json: JsonFlag = False,
) -> None:
    """Show a layout's groups and hit unit, and what a memory budget holds of it."""
    config = None
    if budget is not None or slots:
        config = CacheConfig(
            budget_bytes=None if budget is None else parse_bytes(budget),
            slots=parse_slots(slots) if slots else None,
            max_sequences=max_sequences,
            images_per_sequence=images_per_sequence,
        )
    if name is None and file is None:
        if config is not None:
            raise ConfigError("layout: expected PRESET or --file beside a budget, found neither")
        _print_presets(as_json)
        return
    if name is not None and file is not None:
        raise ConfigError("layout: expected either PRESET or --file, found both")
    layout = preset(str(name), block_tokens) if file is None else _read(file, dtype, block_tokens)
    if as_json:
        pools = {}
        if config is not None:
            pools = {"pools": pools_json(layout, config), "config": settings_json(config)}
        print_json({"layout": layout.to_json(), **_figures(layout), **pools})
        return
    _print_layout(layout, config)


def _print_layout(layout: CacheLayout, config: CacheConfig | None) -> None:
    pools = None if config is None else pools_json(layout, config)
    header, *rows = render(layout)
    print_table(header, rows, title=f"{layout.name}: {layout.num_layers} layers")
    print_facts([*render_totals(layout), ("digest", layout.digest().hex())])
    if config is None or pools is None:
        return
    print_table(HEADER, pool_rows(layout, pools["slots"]), title="\nPools")
    print_facts(
        [
            ("bytes of pools", f"{pools['bytes']:,} ({format_bytes(pools['bytes'])})"),
            ("cached tokens", f"{pools['tokens']:,} in {pools['blocks']:,} blocks"),
            ("state images", f"{pools['images']:,}"),
            *settings_rows(config),
        ]
    )


def _print_presets(as_json: bool) -> None:
    layouts = [preset(name) for name in PRESETS]
    if as_json:
        print_json({"presets": {layout.name: _figures(layout) for layout in layouts}})
        return
    rows = [
        (
            x.name,
            str(x.num_layers),
            f"{x.bytes_per_token:,.2f}",
            f"{x.block_bytes:,}",
            f"{x.hit_unit:,}",
        )
        for x in layouts
    ]
    print_table(("preset", "layers", "bytes a token", "bytes a block", "hit unit"), rows)


def _figures(layout: CacheLayout) -> dict[str, Any]:
    return {
        "digest": layout.digest().hex(),
        "bytes_per_token": layout.bytes_per_token,
        "block_bytes": layout.block_bytes,
        "image_bytes": layout.image_bytes,
        "lcm": layout.lcm,
        "hit_unit": layout.hit_unit,
        "page_bytes": {group.name: group.page_bytes for group in layout.groups},
    }


def _read(file: Path, dtype: str, block_tokens: int | None) -> CacheLayout:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file}: expected JSON, found {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{file}: expected a JSON object, found {type(fields).__name__}")
    fields = fields.get("layout", fields)
    if "groups" in fields:
        return CacheLayout.from_json(fields)
    return CacheLayout.from_hf_config(SimpleNamespace(**fields), dtype, block_tokens)
