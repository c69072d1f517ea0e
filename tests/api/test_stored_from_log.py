"""The commands on the log directory of an engine with tiers."""

from pathlib import Path

import numpy as np

from kvstrata import CacheManager, TierConfig, TiersConfig
from tests.api.conftest import CommandLine
from tests.face.support import LAYOUT, config, request, serve


def engine(folder: Path, shared_root: Path) -> CacheManager:
    tiers = TiersConfig((TierConfig(str(folder / "objects")),), objects=64, max_loads=2)
    settings = config({"shared_memory_root": shared_root}, tiers=tiers)
    return CacheManager.open(LAYOUT, settings, folder / "log", "private")


def test_explain_and_recover_know_what_is_stored(
    kvstrata: CommandLine, tmp_path: Path, shared_root: Path
) -> None:
    wanted = request("stored", 100)
    with engine(tmp_path, shared_root) as cache:
        serve(cache, wanted)
        assert cache.settle_tiers()
    np.save(tmp_path / "prompt.npy", wanted.tokens)
    root = ("--shared-memory-root", shared_root)
    for _ in range(2):
        # The private pools died with their process, so recovery loses every page; not the objects.
        recovered = kvstrata("recover", tmp_path / "log", *root, "--json")
        assert (recovered.code, recovered.err) == (0, "")
    with engine(tmp_path, shared_root):
        pass
    found = kvstrata(
        "explain", tmp_path / "log", "--tokens", tmp_path / "prompt.npy", *root, "--json"
    )
    assert (found.code, found.err) == (0, "")
    ways = {way["source"]: way for way in found.json["ways"]}
    assert found.json["source"] == "stored"
    assert ways["stored"]["resume_at"] == ways["stored"]["reused_tokens"] == 96
    assert ways["stored"]["load_bytes"] > 0
