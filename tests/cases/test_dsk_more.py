"""Cases DSK further: keys of processes, a key in two batches, a killed engine, part blocks."""

import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager
from kvstrata import manager as manager_module
from kvstrata.core.events import EventType
from tests.cases.support import asked, compute, found, layout_of
from tests.eventstore.support import segments_of
from tests.face.tiered import (
    FULL,
    Corner,
    Hooked,
    begun,
    corner,
    hook,
    peek,
    served,
    settled,
    stored,
    text,
    tiering_of,
    told,
    until,
)

KEYS_OF_T = ["0f05c64c67721f028a8a54101af5e1d8", "cbd8415a1213b0c90046654025297625"]
"""Of T[0:512) in blocks of 256 without an extra; whatever the process, whatever its Python."""
WRITES_T = """
import sys
from tests.cases.support import layout_of, text
from tests.face.tiered import Corner, stored
from pathlib import Path
stored(Corner(Path(sys.argv[1]), layout_of(256)), text(("t", 512)))
"""


def test_dsk_05_keys_do_not_depend_on_the_process() -> None:
    """Three processes with other hash seeds store T[0:512), extra None: the same names and bytes.

    Other versions of Python are not at hand here: the keys are compared with those that were
    written down.
    """
    seeds = ["0", "1", "random"]
    with corner(layout_of(256)) as place:
        roots = [place.root / seed for seed in seeds]
        for root in roots:
            root.mkdir()
        children = [
            subprocess.Popen(
                [sys.executable, "-c", WRITES_T, str(root)],
                env={**os.environ, "PYTHONHASHSEED": seed, "NUMBA_DISABLE_JIT": "1"},
            )
            for root, seed in zip(roots, seeds, strict=True)
        ]
        assert [child.wait(120) for child in children] == [0, 0, 0]
        contents = [objects_below(root / "disk") for root in roots]
        for one, other in pairwise(contents):
            assert one == other
        names = [Path(name).stem for name in contents[0]]
        assert sorted(names) == sorted(KEYS_OF_T)
        keys = asked(text(("t", 512)), extras=None).keys(256)
        assert [key.tobytes().hex() for key in keys] == KEYS_OF_T


def objects_below(tier: Path) -> dict[str, bytes]:
    folder = tier / "objects"
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.block"))
    }


def written(*stores: Hooked) -> dict[str, int]:
    """How often each object was really written."""
    counts: dict[str, int] = {}
    for store in stores:
        for name in store.written:
            counts[name] = counts.get(name, 0) + 1
    return counts


def counts_writes(cache: CacheManager) -> Hooked:
    """Hooks before the first tier, and a list ``written`` of what puts wrote there."""
    store = hook(cache)
    inner = store.inner.put
    store.written = []

    def put(name: str, *arguments: Any) -> bool:
        wrote = inner(name, *arguments)
        if wrote:
            store.written.append(name)
        return bool(wrote)

    store.inner.put = put
    return store


@pytest.mark.parametrize("managers", [1, 2])
def test_dsk_08_one_key_in_two_batches(managers: int) -> None:
    """Batch A holds k1, k2, k3 of a prefix, batch B k3 and k4: four hits, each written once.

    With two managers over one folder B holds k1 and k2 too: a manager stores whole prefixes.
    """
    a, b = text(("p", 3 * 16), ("a", 1)), text(("p", 4 * 16), ("b", 1))
    gate = threading.Event()
    with corner(FULL) as place, place.opened("a") as first:
        stores = [counts_writes(first)]
        stores[0].hooks["put"] = lambda _: gate.wait(10)
        served(first, a)
        first.apply_completions()  # batch A has begun
        until(lambda: stores[0].count("put") > 0)
        if managers == 1:
            served(first, b)
            first.apply_completions()
            assert tiering_of(first).spiller.num_waiting == 4
            gate.set()
        else:
            with place.opened("b") as second:
                stores.append(counts_writes(second))
                served(second, b)
                threading.Timer(0.05, gate.set).start()
                settled(second)
                assert tiering_of(second).stats().tiers["disk"]["faults"] == {}
        settled(first)
        assert sorted(written(*stores).values()) == [1, 1, 1, 1]
        with place.opened("c") as third:
            assert peek(third, b) == 4 * 16
        spills = tiering_of(first).stats().spills
        assert not {name for name in spills if name not in ("written", "already_there")}


def killed_with(place: Corner, prompts: list[Any]) -> int:
    """A child serves and stores prompts and is killed; its process id."""
    pid = os.fork()
    if pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        return pid
    try:
        config = place.config()
        cache = CacheManager.open(place.layout, config, place.root / "log", "private")
        for tokens in prompts:
            served(cache, tokens)
        settled(cache)
        cache.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    finally:
        os._exit(1)


def tear(place: Corner) -> None:
    """Half of a record stands behind the log's last one, and memory is as after a reboot."""
    for file in (place.root / "shared").rglob("*"):
        if file.is_file():
            file.unlink()
    segment = segments_of(place.root / "log")[-1]
    data = np.frombuffer(segment.read_bytes(), dtype=np.uint8)
    end = -(-(int(np.flatnonzero(data)[-1]) + 1) // 64) * 64
    with segment.open("r+b") as file:
        file.seek(end)
        file.write(data[4096 : 4096 + 100].tobytes())


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn last record"])
def test_dsk_10_killed_and_started_again(torn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ten objects are found by the next process; nothing is written before the replay ends."""
    prompts = [text((f"k{number}", 17)) for number in range(10)]
    with corner(FULL) as place:
        assert killed_with(place, prompts) != os.getpid()
        if torn:
            tear(place)
        before = place.files()
        assert len(before) == 10
        recover = manager_module.recover

        def watched(*arguments: Any) -> Any:
            done = recover(*arguments)
            assert arguments[4]._tiering is None, "there are tiers before the replay has ended"
            assert place.files() == before
            return done

        monkeypatch.setattr(manager_module, "recover", watched)
        with place.opened() as cache:
            assert cache.recovery is not None
            report = cache.recovery.log
            assert not report.clean
            assert ("TORN_TAIL" in [one.decision for one in report.damage]) == torn
            assert [found(cache, tokens) for tokens in prompts] == 10 * [("stored", 16, 16)]
            assert [peek(cache, tokens) for tokens in prompts] == 10 * [16]
            assert tiering_of(cache).stats().tiers["disk"]["reads"] == 10
            assert place.files() == before


def pool_bytes(cache: CacheManager) -> dict[str, bytes]:
    assert cache.pools is not None
    return {
        group.name: cache.pools.storage(group.name).numpy().tobytes()
        for group in cache.layout.groups
    }


LONG = {"blocks": 1900, "max_tokens_per_sequence": 15_040}


@pytest.mark.parametrize("local", [14_816, 14_800], ids=["all of it here", "a block less"])
def test_dsk_11_a_part_of_a_block_is_never_loaded(local: int) -> None:
    """P[0:14820) is stored, P[0:14816) is here, P[0:15000) is asked for: it resumes at 14816.

    Only whole blocks of 16 are stored, so there is no last chunk of 228 (or 4) tokens to clip;
    the range to load is empty: no load begins, and no byte of any pool changes.
    """
    with corner(FULL) as place:
        stored(place, text(("p", 14_820)), **LONG)
        assert len(place.files()) == 14_816 // 16
        with place.opened("another", tiers=None, **LONG):
            pass
        with place.opened("local", tiers=place.tiers(spill="never", catalogue=""), **LONG) as cache:
            served(cache, text(("p", local), ("x", 1)), max_resume=0)
            before, reads = pool_bytes(cache), hook(cache)
            sequence = begun(cache, text(("p", 15_000)))
            assert sequence.plan.resume_at == sequence.plan.reused_tokens == 14_816
            loads = told(cache, EventType.LOAD_BEGUN)
            assert [load["objects"] for load in loads] == [1] * (local < 14_816)
            assert reads.count("read") == len(loads)
            changed = changed_pages(before, pool_bytes(cache))
            mine = cache.block_slots(sequence, "full").tolist()
            assert changed == [("full", mine[14_800 // 16])] * len(loads)
            compute(cache, sequence)
            sequence.finish()


def changed_pages(before: dict[str, bytes], after: dict[str, bytes]) -> list[tuple[str, int]]:
    found = []
    for name, data in before.items():
        size = FULL.group(name).page_bytes
        both = np.frombuffer(data + after[name], dtype=np.uint8).reshape(2, -1, size)
        found += [(name, int(slot)) for slot in np.flatnonzero((both[0] != both[1]).any(axis=1))]
    return found
