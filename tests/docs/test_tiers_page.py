"""docs/tiers.md is true: its Python prints what it says, and its commands run."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tiers.md").read_text(encoding="utf-8")


def blocks(language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


def test_the_example_and_the_commands_run(tmp_path: Path) -> None:
    example = blocks("python")
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    promised = re.findall(r"print\(.*\)\s+# (.*)$", example, re.MULTILINE)
    assert len(promised) == 3
    assert found.stdout.splitlines() == promised
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = blocks("sh").splitlines()
    assert len(commands) >= 4
    for command in commands:
        done = subprocess.run(
            command.split(),
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
