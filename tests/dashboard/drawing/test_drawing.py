"""The drawing knows every kind of panel that the Overview has, and the kept pictures are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kvstrata.dashboard.grafana import as_json, dashboards
from tests.dashboard.schema_check import PACKAGES
from tools import dashboard_pages

from .draw import HERE


def test_every_kind_of_panel_of_the_overview_can_be_drawn() -> None:
    text = (HERE / "panels.jsx").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^  (\w+): new PanelPlugin", text, re.MULTILINE))
    kinds = {panel["type"] for panel in as_json(dashboards()["overview"])["panels"]}
    assert kinds - {"row"} == drawn


def test_packages_are_pinned_and_of_one_release() -> None:
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    assert f"@grafana/schema@{wanted['@grafana/schema']}" in PACKAGES


def test_the_page_shows_pictures_that_are_kept() -> None:
    page = dashboard_pages.DOCS / "dashboards.md"
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    kept = {path.name for path in Path(page.parent / "dashboards").glob("*.png")}
    assert {Path(target).name for target in shown} == kept
    assert all((page.parent / target).stat().st_size > 50_000 for target in shown)
