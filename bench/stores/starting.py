"""Starting: a fresh process imports kvstrata and opens an empty cache, from its very beginning.

Wall time counts from before the process was made, CPU time is all of the process's own. Machine
code and bytecode are on disk, as they are once an installed package was used.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .figures import in_turn, medians

_REPORT = """
import json, sys, time
began = float(sys.argv[1])
def now():
    return time.monotonic() - began, time.process_time()
python = now()
{imports}
imported = now()
{work}
ended = now()
print(json.dumps({{
    "wall_s": ended[0], "cpu_s": ended[1],
    "python_wall_s": python[0], "python_cpu_s": python[1],
    "import_wall_s": imported[0] - python[0], "import_cpu_s": imported[1] - python[1],
    "open_wall_s": ended[0] - imported[0], "open_cpu_s": ended[1] - imported[1],
}}))
"""
_OPEN = _REPORT.format(
    imports="from kvstrata import CacheConfig, CacheManager, LogConfig, preset",
    work="""
log = LogConfig(shared_memory_root=sys.argv[3])
config = CacheConfig(budget_bytes=40_000_000_000, log=log)
cache = CacheManager.open(preset("deepseek-v4-flash"), config, sys.argv[2])
""",
)


def _run(code: str, folder: Path, shared_memory: Path) -> dict[str, float]:
    with TemporaryDirectory(dir=folder) as disk, TemporaryDirectory(dir=shared_memory) as memory:
        command = [sys.executable, "-c", code, repr(time.monotonic()), f"{disk}/log", memory]
        child = subprocess.run(
            command, check=True, capture_output=True, text=True, env=_environment()
        )
    found: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    return found


def _environment() -> dict[str, str]:
    """This process's, but bytecode is kept even where it was asked not to be."""
    kept = dict(os.environ)
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def measure(
    rounds: int, folder: Path, shared_memory: Path, packages: tuple[str, ...]
) -> dict[str, Any]:
    """Medians of an import and open, its code compiled before, and of imports of others alone."""
    codes = {"warm": _OPEN}
    for package in packages:
        codes[f"import_{package}"] = _REPORT.format(imports=f"import {package}", work="")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in codes}
    for code in codes.values():
        _run(code, folder, shared_memory)  # compiles what is not compiled yet
    for number in range(rounds):
        for name in in_turn(number, list(codes)):
            found[name].append(_run(codes[name], folder, shared_memory))
    return {name: medians(one) for name, one in found.items()}


def measure_compile() -> dict[str, float]:
    """``kvstrata warmup`` where nothing was ever compiled."""
    with TemporaryDirectory(prefix="kvstrata-bench-") as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "from kvstrata.api.cli import main; main()", "warmup"],
            env={**os.environ, "KVSTRATA_CACHE_DIR": folder},
            check=True,
            capture_output=True,
        )
        wall_s = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall_s": wall_s, "cpu_s": spent, "cache_bytes": size}
