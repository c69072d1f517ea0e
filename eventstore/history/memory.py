"""The file that keeps a tally across restarts of its follower."""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import ConfigError

from .tally import Tally

__all__ = ["TallyMemory"]

_VERSION: Final = 2
_FIELDS: Final = "fields"


class TallyMemory:
    """Stores a tally whole or not at all; what does not hold counts as nothing kept.

    Args:
        path: the file; its folder must exist.

    Raises:
        ConfigError: there is no such folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.parent.is_dir():
            raise ConfigError(f"memory: expected a file in an existing folder, found {path}")

    def save(self, tally: Tally, epoch: str) -> None:
        """Store a tally. Raises OSError."""
        fields, arrays = tally.state()
        text = json.dumps({"version": _VERSION, "epoch": epoch, **fields})
        packed = io.BytesIO()
        named: dict[str, npt.NDArray[Any]] = {
            _FIELDS: np.frombuffer(text.encode(), dtype=np.uint8),
            **arrays,
        }
        np.savez(packed, **named)  # type: ignore[arg-type]
        temporary = self._path.with_name(self._path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(packed.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)

    def load(self, tally: Tally, epoch: str) -> bool:
        """Take up a tally of the same log.

        Returns:
            Whether there was one.

        Mutates:
            tally.
        """
        try:
            with np.load(self._path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            fields = json.loads(arrays.pop(_FIELDS).tobytes())
            if (fields["version"], fields["epoch"]) != (_VERSION, epoch):
                return False
            tally.restore(fields, arrays)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
            return False
        return True
