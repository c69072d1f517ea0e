"""Instructions of kvstrata's hot calls, counted by valgrind: figures that no machine's load moves.

    python bench/instructions.py            writes bench/results/instructions.json
    python bench/instructions.py --quick    fewer calls, nothing written

Each call is counted by difference: the same work with few and with many of it. Interpreter, numpy
and compiled core are all in it; the core is compiled for any x86-64, since valgrind knows no newer
instructions, and so takes some more of them than in production. The log writer's thread is in it;
digests of the tables, made by the clock, are not: under valgrind they would be most of it.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import compare
from compare import K
from process import ENTRIES, RUNNER, SubjectFailed, SubjectProcess

HERE = Path(__file__).resolve().parent
GEOMETRY = {**compare.GEOMETRY, "max_tokens": 140_000}
OPTIONS = {"digests": False}
DUMP_S = 60

Work = dict[str, Any]


class NotCounted(Exception):
    """Callgrind runs here but does not answer; some machines forbid one process to stop another."""


def pairs(quick: bool) -> dict[str, tuple[Work, Work, int]]:
    """What is counted: a little of it, more of it, and how many calls lie between."""
    few, many = (2, 12) if quick else (10, 138)
    found: dict[str, tuple[Work, Work, int]] = {}

    def add(name: str, work: Work, argument: str, less: int, more: int) -> None:
        found[name] = ({**work, argument: less}, {**work, argument: more}, more - less)

    for name, tokens in (("8k", 8 * K),) if quick else (("8k", 8 * K), ("128k", 128 * K)):
        hit = {"do": "full_hit", "tokens": tokens, "repeats": 1}
        add(f"match, full hit, {name} tokens", hit, "inner", few, many)
    for batch in (1,) if quick else (1, 32, 256):
        step = {"do": "decode_steps", "batch": batch, "prompt": 500}
        add(f"decode step, batch {batch}", step, "steps", few, many)
    prompt = {"do": "long_prompt", "tokens": 8 * K}
    add("a cold prompt of 8,192 tokens, whole", prompt, "repeats", 2, 4 if quick else 12)
    return found


def start(folder: Path) -> SubjectProcess:
    """kvstrata's runner under callgrind, its core compiled before."""
    environment = os.environ | {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "KVSTRATA_CACHE_DIR": str(HERE / ".environments" / "compiled-generic"),
    }
    native = SubjectProcess(ENTRIES[0], folder, folder / "native.log", environment=environment)
    native.ask("open", geometry=GEOMETRY, options=OPTIONS)
    native.close()
    command = [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        f"--callgrind-out-file={folder / 'counts'}",
        sys.executable,
        str(RUNNER),
        ENTRIES[0].adapter,
    ]
    return SubjectProcess(ENTRIES[0], folder, folder / "valgrind.log", command, environment)


def count(process: SubjectProcess, work: Work, folder: Path) -> int:
    """Instructions of one work."""
    command = dict(work)
    process.ask("open", geometry=GEOMETRY, options=OPTIONS)
    for old in folder.glob("counts*"):  # the next dump may take the same name
        old.unlink()
    control(process, folder, "--instr=on")
    process.ask(command.pop("do"), **command)
    control(process, folder, "--dump=work")
    control(process, folder, "--instr=off")
    return total_of(folder)


def total_of(folder: Path) -> int:
    """Instructions in what callgrind dumps next; it may still be writing when it has answered."""
    deadline_s = time.monotonic() + DUMP_S
    while time.monotonic() < deadline_s:
        for dump in folder.glob("counts*"):
            totals = re.search(r"^totals: (\d+)\n", dump.read_text(), re.MULTILINE)
            if totals is not None:
                return int(totals[1])
        time.sleep(0.1)
    found = ", ".join(sorted(file.name for file in folder.iterdir()))
    raise NotCounted(f"expected a dump of callgrind within {DUMP_S} s, found only {found}")


def control(process: SubjectProcess, folder: Path, what: str) -> None:
    """Tell callgrind something; it listens in its process's folder for temporary files."""
    done = subprocess.run(
        ["callgrind_control", what, str(process.pid)],
        env=os.environ | {"TMPDIR": str(folder)},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "Error" in done.stdout:  # its exit code is 0
        raise NotCounted(f"{what}: expected callgrind to listen, found {done.stdout.strip()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer calls; write nothing")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not here, so nothing is counted: apt-get install valgrind")
        return
    with tempfile.TemporaryDirectory(prefix="kvstrata-counts-") as name:
        folder = Path(name)
        process = start(folder)
        results = {}
        try:
            for title, (less, more, calls) in pairs(arguments.quick).items():
                found = (count(process, more, folder) - count(process, less, folder)) / calls
                results[title] = round(found)
                print(f"{title:42} {found:12,.0f} instructions")
        except (NotCounted, SubjectFailed, subprocess.SubprocessError) as error:
            print(f"valgrind does not count here, so the results stay as they are: {error}")
            return
        finally:
            process.close()
    if not arguments.quick:
        out = HERE / "results" / "instructions.json"
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps({"instructions": results}, indent=1) + "\n")
        print(f"written: {out.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
