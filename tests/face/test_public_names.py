"""The public names: sorted, all there, and imported only when used."""

import subprocess
import sys

import kvstrata


def test_all_is_sorted_and_complete() -> None:
    assert kvstrata.__all__ == sorted(kvstrata.__all__)
    for name in kvstrata.__all__:
        assert getattr(kvstrata, name).__name__ == name
    assert set(kvstrata._HOME_OF) == set(kvstrata.__all__)
    assert set(kvstrata.__all__) <= set(dir(kvstrata))


def test_a_layout_needs_no_torch() -> None:
    code = (
        "import sys, kvstrata; kvstrata.preset('deepseek-v4-flash').digest();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_manager_of_tables_alone_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "from kvstrata import CacheConfig, CacheManager, preset\n"
        "config = CacheConfig(budget_bytes=4_000_000_000, max_sequences=4)\n"
        "CacheManager.open(preset('deepseek-v4-flash'), config).close()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
