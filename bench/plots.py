"""The plots of docs/benchmarks.md."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from tables import MEASURES, OURS, Results, ratio

Points = dict[str, list[tuple[int, float]]]


def draw_all(
    peers: Results | None,
    store: Results | None,
    tiers: Results | None,
    folder: Path,
    flat_points: Callable[[Results], Points],
) -> None:
    """Draw every plot there are results for."""
    folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"svg.hashsalt": "kvstrata", "svg.fonttype": "none", "font.size": 9})
    if peers is not None:
        draw_ratios(peers, folder / "ratios.svg")
        draw_flat(flat_points(peers), folder / "flat.svg")
    if store is not None:
        draw_store(store, folder / "event_store.svg")
    if tiers is not None:
        draw_restored(tiers, folder / "tiers.svg")


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_ratios(results: Results, path: Path) -> None:
    """Each peer's time by kvstrata's; the line at 1 is kvstrata."""
    peers = [key for key in results["subjects"] if not key.startswith(OURS)]
    measures = [m for m in MEASURES if m.work in results["works"]]
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(measures) + 1))
    height = 0.8 / max(len(peers), 1)
    for number, peer in enumerate(peers):
        values = [ratio(results, measure, peer) or 0 for measure in measures]
        places = [row + number * height for row in range(len(measures))]
        axes.barh(places, values, height, label=results["labels"][peer])
    axes.set_yticks([row + 0.4 for row in range(len(measures))], [m.title for m in measures])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("times kvstrata's CPU time")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    save(figure, path)


def draw_flat(points: Points, path: Path) -> None:
    """Microseconds a block by prompt length."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for verb, found in points.items():
        axes.plot(*zip(*sorted(found), strict=True), marker="o", markersize=3, label=verb)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("prompt tokens")
    axes.set_ylabel("us a block of 128 tokens")
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    save(figure, path)


def draw_store(store: Results, path: Path) -> None:
    """Durable events a second, by what keeps them."""
    durable = store["durable"]
    names = list(durable)
    rates = [durable[name]["events_per_s"] / 1e6 for name in names]
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(names) + 1))
    axes.barh(names, rates)
    axes.invert_yaxis()
    axes.set_xlabel("million durable events a second")
    save(figure, path)


def draw_restored(results: Results, path: Path) -> None:
    """Seconds to have a prompt, by its length: computed, and restored from disk."""
    points = results["restore"]
    tokens = [one["tokens"] for one in points]
    figure, axes = plt.subplots(figsize=(7, 3.5))
    for key, label in (("computed_wall_s", "computed"), ("restored_wall_s", "restored from disk")):
        axes.plot(tokens, [one[key] for one in points], marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel("seconds")
    axes.legend()
    save(figure, path)
