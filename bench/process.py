"""A subject's process, as the driver sees it."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory
from typing import Any

from peers.environments import SGLANG, SGLANG_SWA, VLLM, Environment

LIMIT_S = 300.0
"""How long a subject may take for one work."""
RUNNER = Path(__file__).resolve().parent / "runner.py"


@dataclass(frozen=True)
class Entry:
    """One row of the comparison.

    Attributes:
        key: short name in the results.
        label: as tables call it.
        adapter: module of ``bench/peers``.
        environment: None for kvstrata's own.
        options: given to the adapter.
    """

    key: str
    label: str
    adapter: str
    environment: Environment | None = None
    options: dict[str, Any] = field(default_factory=dict)


ENTRIES = (
    Entry("kvstrata", "kvstrata", "kvstrata_manager"),
    Entry(
        "kvstrata-unlogged", "kvstrata without its log", "kvstrata_manager", None, {"log": False}
    ),
    Entry("vllm", "vLLM 0.32", "vllm_manager", VLLM),
    Entry("sglang-rust", "SGLang 0.5.23, Rust + SWA", "sglang_unified", SGLANG, {"tree": "rust"}),
    Entry(
        "sglang-python", "SGLang 0.5.23, Python + SWA", "sglang_unified", SGLANG, {"tree": "python"}
    ),
    Entry("sglang-swa", "SGLang 0.5.12, SWARadixCache", "sglang_swa", SGLANG_SWA),
)


class SubjectFailed(Exception):
    """A subject answered with an error, or ended."""


class SubjectProcess:
    """Speaks JSON lines with a subject's process.

    Args:
        entry: which one.
        root: where environments are.
        log: file for what the process writes on standard error.
        command: instead of the runner in the entry's environment.
        environment: variables; those of this process if None.
    """

    def __init__(
        self,
        entry: Entry,
        root: Path,
        log: Path,
        command: list[str] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        python = sys.executable if entry.environment is None else entry.environment.python(root)
        self._arguments = (entry, root, log, command, environment)
        self._log = log
        self.limit_s = LIMIT_S
        # What a subject that is killed leaves behind goes with these two.
        self._memory = TemporaryDirectory(prefix="kvstrata-bench-", dir="/dev/shm")
        places = {"TMPDIR": str(log.parent), "KVSTRATA_BENCH_MEMORY": self._memory.name}
        self._process = subprocess.Popen(
            command or [str(python), str(RUNNER), entry.adapter],
            env={**(os.environ if environment is None else environment), **places},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            text=True,
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def again(self) -> "SubjectProcess":
        """Another process like this one, which has ended."""
        self._memory.cleanup()
        return SubjectProcess(*self._arguments)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One command and its answer; a process that takes longer than the limit is ended.

        Raises:
            SubjectFailed: says how.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            if not select([self._process.stdout], [], [], self.limit_s)[0]:
                self._process.kill()
                self._process.wait()
                raise SubjectFailed(f"{do}: took longer than {self.limit_s:g} s")
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            tail = self._log.read_text(errors="replace").strip().splitlines()[-1:]
            raise SubjectFailed(f"{do}: its process ended with {code}: {' '.join(tail)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SubjectFailed(f"{do}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            with suppress(SubjectFailed):
                self.ask("close")
            self._process.wait(timeout=60)
        self._memory.cleanup()
