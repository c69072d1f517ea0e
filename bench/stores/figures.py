"""Times, medians, goals, and the machine they were measured on."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("kvstrata", "numpy", "numba", "torch", "sqlalchemy", "lmdb", "duckdb")


@dataclass(frozen=True)
class Goal:
    """What a figure is to reach, and whether it does."""

    name: str
    value: float
    limit: float
    unit: str
    at_most: bool = True

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}

    def __str__(self) -> str:
        mark, sign = ("ok  ", "MISS")[not self.holds], ("<=", ">=")[not self.at_most]
        return (
            f"{mark} {self.name:48s} {self.value:10,.3f} {self.unit} (goal {sign} {self.limit:g})"
        )


def timed(function: Callable[[], Any], name: str = "") -> tuple[Any, dict[str, float]]:
    """What a function gives, and wall and process CPU seconds it took."""
    cpu, start = time.process_time(), time.perf_counter()
    answer = function()
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    return answer, {f"{name}wall_s": wall_s, f"{name}cpu_s": cpu_s}


def medians(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """The median of every figure, and the rounds themselves."""
    return {
        **{name: statistics.median(one[name] for one in rounds) for name in rounds[0]},
        "rounds": rounds,
    }


def in_turn(number: int, subjects: list[Any]) -> list[Any]:
    """Subjects in this round's order: every other round begins with the last one."""
    return subjects if number % 2 == 0 else subjects[::-1]


def machine(folder: Path) -> dict[str, Any]:
    """What it was measured on; ``disk`` is the file system of the logs."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": _versions(),
        "disk": _file_system(folder),
        "load_average_1min": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def _versions() -> dict[str, str]:
    """Of the packages that are there."""
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _file_system(folder: Path) -> str:
    """Type of the file system that holds a folder: the mount with the longest matching path."""
    place = folder.resolve()
    best, found = -1, "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if place.is_relative_to(mount) and len(mount) > best:
            best, found = len(mount), kind
    return found
