"""docs/drift.md is true: its Python prints what it says, and it names every setting."""

import re
import subprocess
import sys
from pathlib import Path

from kvstrata import CacheConfig
from kvstrata.upkeep import SLICE_BYTES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "drift.md").read_text(encoding="utf-8")


def test_the_example_prints_what_its_comments_say(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    promised = re.findall(r"print\(.*\)\s+# (.*)$", example, re.MULTILINE)
    assert len(promised) == 3
    assert found.stdout.splitlines() == promised


def test_settings_and_sizes() -> None:
    config = CacheConfig(budget_bytes=1)
    assert f"`digest_bytes_per_s`, {config.digest_bytes_per_s >> 20} MiB/s" in PAGE
    assert config.scrub_bytes_per_s == 0
    assert "`scrub_bytes_per_s`, never" in PAGE
    assert f"A slice has {SLICE_BYTES >> 10} KiB" in PAGE
