"""The raw device through fio: as many files of the same size, on the same file system."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .prefix import SPILLS, WORKERS, forget, put_away

_WARM_LOOPS = 20


def is_here() -> bool:
    """Whether fio is installed."""
    return shutil.which("fio") is not None


def fio(folder: Path, how: str, object_bytes: int, num_files: int, *options: str) -> float:
    """Bytes a second of one job of fio."""
    jobs = SPILLS if how == "write" else WORKERS
    command = [
        "fio",
        "--name=objects",
        f"--directory={folder}",
        f"--rw={how}",
        f"--bs={object_bytes // 4096 * 4096}",
        f"--filesize={object_bytes // 4096 * 4096}",
        f"--nrfiles={max(num_files // jobs, 1)}",
        f"--numjobs={jobs}",
        "--openfiles=1",
        "--file_service_type=sequential",
        "--ioengine=psync",
        "--fallocate=none",
        "--group_reporting",
        "--output-format=json",
        *options,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return float(found["jobs"][0]["write" if how == "write" else "read"]["bw_bytes"])


def write(folder: Path, object_bytes: int, num_files: int) -> float:
    """Writing files, each made anew, and synced as it is closed."""
    put_away(folder)
    folder.mkdir()
    return fio(folder, "write", object_bytes, num_files, "--fsync_on_close=1", "--create_on_open=1")


def read(folder: Path, object_bytes: int, num_files: int, is_cold: bool) -> float:
    """Reading files, forgotten by the kernel first, or held by it and then over and over again.

    Once takes 30 ms where the kernel holds them: less than jobs need to begin together.
    """
    if is_cold:
        # More jobs read than wrote: the files of the others are made, and must not be in memory.
        fio(folder, "read", object_bytes, num_files, "--create_only=1")
        forget(folder)
    else:
        fio(folder, "read", object_bytes, num_files, "--invalidate=0")
    how_often = ("--invalidate=1",) if is_cold else ("--invalidate=0", f"--loops={_WARM_LOOPS}")
    return fio(folder, "read", object_bytes, num_files, *how_often)
