"""Compiled code never outlives the sources it was made from, whichever file was edited."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from .copies import copy_package, edit, run_python

PROBE = """
import numba
from .compile import compiled
from .states import NEXT_STATE
from .steps import LONG


def probe(state, event):
    return NEXT_STATE[state, event]


@compiled
def constant():
    return LONG


guarded = compiled(probe)
unguarded = numba.njit(cache=True)(probe)
"""
"""Functions that read a table and a constant of other modules; one also under numba's cache."""

RUN = """
import json
from kvstrata.core import probe
from kvstrata.core.compile import cache_folder
from kvstrata.core.events import EventType
from kvstrata.core.states import PageState

event = (int(PageState.SEALED), int(EventType.PAGE_FREED))
print(json.dumps({
    "guarded": PageState(probe.guarded(*event)).name,
    "unguarded": PageState(probe.unguarded(*event)).name,
    "constant": int(probe.constant()),
    "cache hits": sum(probe.guarded.stats.cache_hits.values()),
    "folder": str(cache_folder()),
}))
"""

READY = """
import json
from kvstrata.core import probe
from kvstrata.core.compile import get_ready

get_ready(probe.guarded, probe.constant)
print(json.dumps({
    "forms": [len(one.overloads) for one in (probe.guarded, probe.constant)],
    "compiled": sum(probe.guarded.stats.cache_misses.values()),
}))
"""


@pytest.fixture
def core(tmp_path: Path) -> Path:
    core = copy_package(tmp_path / "copy")
    (core.parent / "__init__.py").write_text("")  # the core alone starts faster than the face
    (core / "probe.py").write_text(PROBE)
    return core


def run(core: Path, tmp_path: Path, script: str = RUN) -> dict[str, Any]:
    environment = {
        "KVSTRATA_CACHE_DIR": str(tmp_path / "cache"),
        "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
        "NUMBA_DISABLE_JIT": "0",
    }
    finished = run_python(["-c", script], tmp_path / "copy", environment)
    assert finished.returncode == 0, finished.stderr
    found: dict[str, Any] = json.loads(finished.stdout)
    assert found.get("folder", str(tmp_path)).startswith(str(tmp_path))
    return found


def test_an_edited_table_of_another_module_is_used(core: Path, tmp_path: Path) -> None:
    before = run(core, tmp_path)
    assert (before["guarded"], before["cache hits"]) == ("FREE", 0)

    again = run(core, tmp_path)
    assert (again["guarded"], again["cache hits"]) == ("FREE", 1)

    edit(
        core / "states.py",
        "(_S.SEALED, _E.PAGE_FREED): (_S.FREE,",
        "(_S.SEALED, _E.PAGE_FREED): (_S.OPEN,",
    )
    after = run(core, tmp_path)
    assert (after["guarded"], after["cache hits"]) == ("OPEN", 0)
    # Why it takes a cache of our own: numba's looks only at the file of the function itself.
    assert after["unguarded"] == "FREE"


def test_what_was_compiled_before_is_loaded_ahead_and_nothing_is_compiled(
    core: Path, tmp_path: Path
) -> None:
    assert run(core, tmp_path, READY) == {"forms": [0, 0], "compiled": 0}
    run(core, tmp_path)
    assert run(core, tmp_path, READY) == {"forms": [1, 1], "compiled": 0}
    (core / "steps.py").write_text((core / "steps.py").read_text() + "\n")
    assert run(core, tmp_path, READY) == {"forms": [0, 0], "compiled": 0}


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "a folder"])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_file_of_compiled_code_costs_a_compile_and_nothing_else(
    core: Path, tmp_path: Path, suffix: str, damage: str
) -> None:
    before = run(core, tmp_path)
    for file in list(Path(before["folder"]).glob(f"probe.*.{suffix}")):
        data = file.read_bytes()
        file.unlink()
        if damage == "a folder":
            file.mkdir()
        else:
            file.write_bytes({"empty": b"", "cut": data[:-20], "garbage": b"\x07" * 99}[damage])
    assert run(core, tmp_path, READY) == {"forms": [0, 0], "compiled": 0}
    after = run(core, tmp_path)
    assert (after["guarded"], after["constant"]) == (before["guarded"], before["constant"])
    if damage != "a folder":
        assert run(core, tmp_path)["cache hits"] == 1, "it was kept again"


def test_a_flipped_bit_in_compiled_code_is_never_run(core: Path, tmp_path: Path) -> None:
    """LLVM ends the process over some of them, and would run the others."""
    (code,) = Path(run(core, tmp_path)["folder"]).glob("probe.probe-*.nbc")
    (index,) = code.parent.glob("probe.probe-*.nbi")
    whole, kept = code.read_bytes(), index.read_bytes()
    for place in random.Random(1).sample(range(len(whole)), 12):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        code.write_bytes(damaged)
        index.write_bytes(kept)
        assert run(core, tmp_path, READY) == {"forms": [0, 1], "compiled": 0}, place


def test_another_function_s_code_under_this_one_s_name_is_not_run(
    core: Path, tmp_path: Path
) -> None:
    """As two processes that compile at once may leave it."""
    before = run(core, tmp_path)
    (one,) = Path(before["folder"]).glob("probe.probe-*.nbc")
    (other,) = one.parent.glob("probe.constant-*.nbc")
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    assert run(core, tmp_path, READY) == {"forms": [0, 0], "compiled": 0}
    after = run(core, tmp_path)
    assert (after["guarded"], after["constant"]) == (before["guarded"], before["constant"])
    assert run(core, tmp_path)["cache hits"] == 1


def test_an_edited_constant_of_another_module_is_used(core: Path, tmp_path: Path) -> None:
    assert run(core, tmp_path)["constant"] == 1
    edit(
        core / "steps.py",
        "FITS, LONG, BUSY, PAGES = range(4)",
        "LONG, FITS, BUSY, PAGES = range(4)",
    )
    assert run(core, tmp_path)["constant"] == 0
