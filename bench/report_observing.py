"""The part of docs/benchmarks.md on being observed, out of follower, observed and admin.json."""

from typing import Any

from markdown import table
from report_store import goals

Results = dict[str, Any]

NAMES = {
    "follow": "a follower: read, check, apply, count",
    "apply": "`apply` alone, events in memory",
    "tally": "the tally alone, events in memory",
    "copy": "`memcpy` of the events, the limit",
}


def observing_parts(
    follower: Results | None, observed: Results | None, admin: Results | None
) -> list[str]:
    """Headings and tables; nothing where nothing was measured."""
    parts: list[str] = []
    if follower is not None or observed is not None or admin is not None:
        parts.append("\n## Being observed\n")
    if follower is not None:
        parts += [
            f"Measured on {follower['machine']['date']}; medians of {follower['rounds']} rounds in "
            f"alternating order. A log of {follower['events']:,} events of chats, read from memory "
            "by one thread; rates are of its CPU time. Over the second half of the log the process "
            f"grew by {follower['follow']['memory_bytes'] / 1e6:.1f} MB.\n",
            rates(follower),
            "",
            goals(follower),
        ]
    if observed is not None:
        parts += [
            "\n### What it costs the engine\n",
            "Two engines of one kind run the same requests in turns: one whose log nobody reads, "
            f"and one that digests {observed['digest_bytes_per_s'] >> 20} MiB/s of its tables and "
            f"scrubs {observed['scrub_bytes_per_s'] >> 20} MiB/s of its pages, with a follower in "
            "its process and the admin API beside it, asked for metrics and blocks. CPU time of "
            "the engine's thread a step, a tiny model's forward call included; "
            f"{observed['rounds']} rounds each, and the share that observing adds is the median "
            "over pairs of rounds. The machine was not theirs alone: load average "
            f"{observed['machine']['load_average_1min']:.0f} on {observed['machine']['cores']} "
            "cores.\n",
            table(
                ["", "ms of CPU a step", "steps"],
                [
                    [name, f"{observed[name]['cpu_s'] * 1e3:.2f}", f"{observed[name]['steps']:,}"]
                    for name in ("plain", "observed")
                ],
            ),
            "",
            goals(observed),
        ]
    if admin is not None:
        parts += ["\n### What an answer of the admin API costs\n", *asking_parts(admin)]
    return parts


def asking_parts(admin: Results) -> list[str]:
    """What the server's process takes for each question."""
    return [
        f"`kvstrata serve` over a log of {admin['events']:,} events, {admin['blocks']:,} blocks in "
        f"{admin['pages']:,} pages; medians of {admin['rounds']} rounds, CPU time of all its "
        f"threads. Asked nothing it takes {admin['idle_cpu_share']:.1%} of a core; a scrape has "
        f"{admin['series']:,} series. Load average "
        f"{admin['machine']['load_average_1min']:.0f} on {admin['machine']['cores']} cores.\n",
        table(
            ["question", "ms of CPU", "bytes"],
            [
                [name, f"{one['cpu_ms']:.1f}", f"{one['bytes']:,}"]
                for name, one in admin["questions"].items()
            ],
        ),
        "",
        goals(admin),
    ]


def rates(follower: Results) -> str:
    """Events a second of CPU."""
    body = [
        [
            title,
            f"{follower[name]['events_per_s'] / 1e6:.1f}",
            f"{follower[name]['cpu_s'] / follower['events'] * 1e9:.0f}",
        ]
        for name, title in NAMES.items()
    ]
    return table(["", "million events/s", "ns an event"], body)
