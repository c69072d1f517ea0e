"""What was reserved and never written is not read; what only looks so, is."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from kvstrata.eventstore.log.scan import _read_data

SIZE = 1 << 20
PARTS = ((0, 5000), (300_000, 4096), (700_001, 77))
"""Where data stands in the file, and how much."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    with path.open("wb") as out:
        out.truncate(SIZE)
        for number, (start, count) in enumerate(PARTS):
            out.seek(start)
            out.write(bytes([number + 1]) * count)
    return path


@pytest.mark.parametrize("before", [0, 255], ids=["zeros", "what was read before"])
def test_holes_are_zeros(file: Path, before: int) -> None:
    memory = np.full(SIZE, before, dtype=np.uint8)
    with file.open("rb", buffering=0) as opened:
        end = _read_data(opened, memory, before == 0)
    assert memory.tobytes() == file.read_bytes()
    assert PARTS[-1][0] + PARTS[-1][1] <= end <= SIZE


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENXIO])
def test_a_file_system_that_cannot_tell_or_lies_loses_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """EINVAL: it knows no holes. ENXIO: it says that all is one."""

    def lies(*_: int) -> int:
        raise OSError(number, "")

    monkeypatch.setattr(os, "lseek", lies)
    memory = np.zeros(SIZE, dtype=np.uint8)
    with file.open("rb", buffering=0) as opened:
        assert _read_data(opened, memory, True) == SIZE
    assert memory.tobytes() == file.read_bytes()
