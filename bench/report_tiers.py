"""The part of docs/benchmarks.md on prefixes on disk, out of bench/results/tiers.json."""

from typing import Any

from markdown import table
from report_store import goals

Results = dict[str, Any]

ROWS = {
    "write": "writing, synced",
    "read_cold": "reading, cold",
    "read_warm": "reading, warm",
}
NAMES = {
    "kvstrata": "kvstrata",
    "fio": "fio, the limit",
    "safetensors": "safetensors",
    "plain": "plain files",
}


def tier_parts(tiers: Results) -> list[str]:
    """Headings, tables and the plot."""
    machine, prefix = tiers["machine"], tiers["prefix"]
    even = tiers["break_even_tokens"]
    from_where = "at every length measured" if not even else f"from about {even:,.0f} tokens on"
    return [
        "\n## Prefixes on disk\n",
        f"Measured on {machine['date']} on {machine['disk']}; medians of {tiers['rounds']} rounds "
        f"in alternating order. A prefix of {prefix['tokens']:,} tokens of DeepSeek-V4-Flash's "
        f"geometry, {prefix['blocks']:,} objects of {prefix['object_bytes']:,} bytes and a "
        f"checkpoint, {prefix['bytes'] / 1e6:,.0f} MB. kvstrata writes with two threads, each "
        "object synced and named, and reads with four straight into the pools, every page "
        "checksummed; fio writes (made anew, synced at close, in one folder that is not "
        "synced) and reads as many files of that size with as many jobs; safetensors and plain "
        "files are read into pages by four threads, unchecked.\n",
        rates(tiers),
        "\n### A prompt restored, and computed again\n",
        "The demo's model, on the CPU, from the match to the last token's logits; restored in the "
        f"same time as computed, by straight lines through these, {from_where}.\n",
        restored(tiers),
        "\n![Seconds by prompt length](benchmarks/tiers.svg)\n",
        "### Goals of the tiers\n",
        goals(tiers),
    ]


def rates(tiers: Results) -> str:
    """Megabytes a second by subject."""
    body = []
    for what, title in ROWS.items():
        found = tiers["rates"].get(what, {})
        cells = [title]
        for name in NAMES:
            one = found.get(name)
            cells.append("-" if one is None else f"{one['bytes_per_s'] / 1e6:,.0f}")
        ours = found["kvstrata"]
        begun = ours["begun_wall_s"]
        cells.append("-" if not begun else f"{tiers['prefix']['bytes'] / begun / 1e6:,.0f}")
        body.append(cells)
    return table(["MB/s", *NAMES.values(), "kvstrata, until the request has begun"], body)


def restored(tiers: Results) -> str:
    """Seconds by length."""
    body = [
        [
            f"{one['tokens']:,}",
            f"{one['computed_wall_s']:.2f}",
            f"{one['restored_wall_s'] * 1e3:,.1f}",
            f"{one['bytes'] / 1e6:,.1f}",
            f"{one['computed_wall_s'] / one['restored_wall_s']:,.0f}",
        ]
        for one in tiers["restore"]
    ]
    return table(["tokens", "computed, s", "restored, ms", "MB", "times quicker"], body)
