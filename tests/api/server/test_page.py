"""The page at the root, as a browser shows it: from this server alone, on the first try."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from kvstrata.api.server.page import page, page_headers
from tests.api.server.support import TOKENS
from tests.api.server.test_live import live
from tests.face.support import Place
from tests.services import need


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        need("Chromium", "chromium")
    return found


def look(chromium: str, url: str, folder: Path, *more: str) -> str:
    """What the page's document is once its script has run."""
    command = [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={folder / 'profile'}", "--window-size=1280,900"),
        *("--virtual-time-budget=10000", *more, url),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_shows_every_pool(place: Place, tmp_path: Path, chromium: str) -> None:
    with live(place, tmp_path) as here:
        shown = look(chromium, here.url, tmp_path, "--dump-dom")
        stats = here.cache.stats()
    assert 'data-shown="yes"' in shown
    assert "follows the log" in shown
    assert "attention · blocks of 16 tokens" in shown
    for pool in stats.pools:
        part = shown[shown.index(f'data-pool="{pool.group}"') :]
        counts = dict(re.findall(r'data-state="(\w+)">.*?<b>(\d+)</b>', part.partition("</ul>")[0]))
        sealed = pool.pages["sealed_idle"] + pool.pages["sealed_pinned"]
        assert int(counts["SEALED"]) == sealed
        assert int(counts["FREE"]) == pool.pages["free"]


def test_a_page_that_is_named_in_the_url_is_shown_in_full(
    place: Place, tmp_path: Path, chromium: str
) -> None:
    with live(place, tmp_path) as here:
        shown = look(chromium, f"{here.url}/#full/2", tmp_path, "--dump-dom")
        row = httpx.get(f"{here.url}/v1/blocks/full/2").json()
    details = shown[shown.index('id="details"') :]
    assert "full page 2" in details
    assert f"<dd>{row['key']}</dd>" in details
    assert f"<dd>{row['checksum']}</dd>" in details
    assert "Its block" in details


def test_its_grid_has_the_colours_of_the_states(
    place: Place, tmp_path: Path, chromium: str
) -> None:
    picture = tmp_path / "page.png"
    with live(place, tmp_path) as here:
        look(chromium, here.url, tmp_path, f"--screenshot={picture}")
    assert picture.stat().st_size > 10_000
    pixels = colours_of(picture)
    assert pixels[(0x3D, 0x8F, 0xD1)] > 500  # sealed
    assert pixels[(0xE7, 0xEA, 0xEC)] > 500  # free


def colours_of(picture: Path) -> dict[tuple[int, int, int], int]:
    values = np.asarray(Image.open(picture).convert("RGB"))
    colours, counts = np.unique(values.reshape(-1, 3), axis=0, return_counts=True)
    return {
        (int(red), int(green), int(blue)): int(count)
        for (red, green, blue), count in zip(colours, counts, strict=True)
    }


def test_where_a_token_is_needed_it_asks_for_it(
    place: Place, tmp_path: Path, chromium: str
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    with live(place, tmp_path, token_file=tokens) as here:
        shown = look(chromium, here.url, tmp_path, "--dump-dom")
    assert 'data-shown="refused"' in shown
    assert "a token is needed" in shown
    assert '<section id="gate">' in shown


def test_nothing_comes_from_elsewhere() -> None:
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page())
    assert "http://" not in page()
    assert "https://" not in page()
    assert not re.findall(r"\sstyle=|\son\w+=", page())  # what the policy would not let run
    policy = page_headers()["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy
