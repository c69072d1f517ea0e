"""Draws a dashboard with Grafana's own front-end packages, from a live Prometheus.

``python -m tests.dashboard.drawing.draw NAME PNG [FAULT ...]`` starts a plant, lets it work, breaks
what it is told to, and takes a picture. It needs npm and Chromium; the packages are installed into
a folder that is kept: ``KVSTRATA_DRAWING_FOLDER``, or one in the user's cache.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kvstrata.dashboard.grafana import as_json, dashboards
from tests.dashboard.live.plant import plant

HERE: Final = Path(__file__).parent
WORK_S: Final = 40.0
FAULT_S: Final = 8.0
SIZE: Final = "1600,1160"
PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<link rel="stylesheet" href="main.css">
<style>html, body, #root { height: 100%; margin: 0; overflow: hidden }</style>
<div id="root"></div>
<script src="main.js"></script>
"""


def workshop() -> Path:
    """A folder with the packages in it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = Path(os.environ.get("KVSTRATA_DRAWING_FOLDER", cache / "kvstrata-drawing"))
    folder.mkdir(parents=True, exist_ok=True)
    for path in HERE.glob("*.js*"):
        shutil.copy(path, folder / path.name)
    if not (folder / "node_modules" / "@grafana" / "scenes").is_dir():
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps"]
        subprocess.run(["npm", "install", *options], cwd=folder, check=True)
    return folder


def bundle(folder: Path) -> Path:
    """The page's script and style, in a folder to be served."""
    out = folder / "out"
    command = [
        folder / "node_modules/.bin/esbuild",
        "main.jsx",
        "--bundle",
        "--outfile=out/main.js",
        "--format=iife",
        "--jsx=automatic",
        "--log-level=error",
        *(f"--loader:.{kind}=dataurl" for kind in ("svg", "ttf", "woff2")),
        '--define:process.env.NODE_ENV="production"',
        "--define:global=window",
        "--alias:react-router-dom-v5-compat=react-router-dom",
        "--alias:@grafana/plugin-compat/datasources=./compat.js",
    ]
    subprocess.run(command, cwd=folder, check=True)
    (out / "index.html").write_text(PAGE, encoding="utf-8")
    return out


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder at an address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
    finally:
        server.shutdown()
        server.server_close()


def photograph(address: str, picture: Path) -> None:
    """What Chromium shows at an address, after its queries were answered."""
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    command = [
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={SIZE}",
        "--virtual-time-budget=20000",
        "--enable-logging=stderr",
        f"--screenshot={picture.resolve()}",
        address,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=180)
    for line in done.stderr.splitlines():
        if "CONSOLE" in line:
            sys.stderr.write(f"{line}\n")


def draw(name: str, picture: Path, faults: Sequence[str]) -> None:
    """Draw one dashboard."""
    out = bundle(workshop())
    board = as_json(dashboards()[name])
    (out / "dashboard.json").write_text(json.dumps(board), encoding="utf-8")
    with plant() as it, served(out) as address:
        time.sleep(WORK_S)
        for fault in faults:
            it.tell(fault)
        time.sleep(FAULT_S if faults else 0.0)
        now = datetime.now(UTC)
        begin = datetime.fromtimestamp(it.began_s + 6, UTC)
        query = {
            "prometheus": it.prometheus.url,
            "from": begin.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "to": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        photograph(f"{address}?{urllib.parse.urlencode(query)}", picture)


if __name__ == "__main__":
    draw(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
