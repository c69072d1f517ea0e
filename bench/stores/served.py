"""``kvstrata serve`` as a process of its own, asked by a benchmark."""

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit


class Served:
    """``kvstrata serve`` as a process of its own, and one connection to it.

    Args:
        directory: of the log.
        shared: where its ring is.
    """

    def __init__(self, directory: Path, shared: Path) -> None:
        program = "from kvstrata.api.cli import main; main()"
        command = [sys.executable, "-c", program, "serve", str(directory), "--port", "0", "--json"]
        command += ["--shared-memory-root", str(shared)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        place = urlsplit(json.loads(self._process.stdout.readline())["url"])
        self._connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)

    def ask(self, path: str) -> bytes:
        while True:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            body = answer.read()
            if answer.status != 429:  # no more than a client may: the goal is a server's cost
                assert answer.status in (200, 503), (path, answer.status, body[:200])
                return body
            time.sleep(0.2)

    def wait_until_ready(self) -> int:
        """The last event applied, once nothing is left to apply."""
        while True:
            found = json.loads(self.ask("/readyz"))
            if found["is_ready"] and not found["lag_events"] and found["seqno"]:
                return int(found["seqno"])
            time.sleep(0.2)

    def cpu_s(self) -> float:
        """CPU time of all its threads so far."""
        threads = Path(f"/proc/{self._process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def close(self) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait(30)
