"""The dashboards hold together, and what is deployed is what the code makes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kvstrata.api.cli import app
from kvstrata.dashboard.alerts import ALERTS, DEFAULT_RUNBOOKS_URL, uid_of
from kvstrata.dashboard.grafana import DATASOURCE_UID, as_json, build_files, dashboards
from kvstrata.dashboard.grafana.board import WIDTH, Row, make_dashboard
from kvstrata.dashboard.grafana.shapes import lines
from tools import dashboard_pages

from .panels import panels_of

BOARDS = dashboards()
PANELS = [(name, panel) for name, board in BOARDS.items() for panel in panels_of(board)]
IDS = [f"{name}/{panel['title']}" for name, panel in PANELS]


def test_uids_and_titles_are_unique() -> None:
    uids = [board.uid for board in BOARDS.values()]
    assert len(set(uids)) == len(uids)
    assert all(uid is not None and len(uid) <= 40 for uid in uids)
    assert len({board.title for board in BOARDS.values()}) == len(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str) -> None:
    panels = as_json(BOARDS[name])["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in panels]
    for place in places:
        assert place["x"] + place["w"] <= WIDTH
    for one, other in itertools.combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=IDS)
def test_a_panel_says_what_it_shows(name: str, panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["targets"]
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    assert defaults["noValue"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_links_to_runbooks_lead_to_alerts_and_every_alert_is_linked() -> None:
    links = [
        link["url"].removeprefix(f"{DEFAULT_RUNBOOKS_URL}/")
        for _, panel in PANELS
        for link in panel.get("links", [])
    ]
    assert set(links) <= set(ALERTS)
    assert set(ALERTS) - set(links) == {"KVCacheExporterAbsent"}, "it has nothing to show"


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_has_variables_annotations_and_links(name: str) -> None:
    board = as_json(BOARDS[name])
    variables = [variable["name"] for variable in board["templating"]["list"]]
    assert variables[:2] == ["datasource", "instance"]
    assert [each["name"] for each in board["annotations"]["list"]] == ["Crashes", "Recoveries"]
    assert board["links"][0]["type"] == "dashboards"
    used = json.dumps(board["panels"])
    assert ("$pool" in used) == ("pool" in variables)


def test_panels_that_do_not_fit_begin_a_new_line() -> None:
    def panels(count: int) -> list[Any]:
        return [lines("Panel", "One of them.", []).span(14).height(5) for _ in range(count)]

    rows = [Row("first", panels(1)), Row("second", panels(2))]
    board = make_dashboard("uid", "title", "text", rows)
    places = [panel["gridPos"] for panel in as_json(board)["panels"]]
    assert [(place["x"], place["y"]) for place in places] == [
        (0, 0),
        (0, 1),
        (0, 6),
        (0, 7),
        (0, 12),
    ]


def test_managed_alerts_are_the_table_s() -> None:
    text = build_files()["grafana/provisioning/alerting/kvstrata.yaml"]
    document = yaml.safe_load(text)
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert [rule["title"] for rule in rules] == list(ALERTS)
    uids = [rule["uid"] for rule in rules]
    assert len(set(uids)) == len(uids)
    assert all(
        len(uid) <= 40 and uid == uid_of(title) for uid, title in zip(uids, ALERTS, strict=True)
    )
    for rule in rules:
        query, condition = rule["data"]
        assert query["datasourceUid"] == DATASOURCE_UID
        assert query["model"]["expr"] == ALERTS[rule["title"]].expression
        assert (condition["refId"], condition["model"]["expression"][:14]) == (
            "B",
            "is_number($A) ",
        )
        assert rule["condition"] == "B"
        assert "{{ $value " not in json.dumps(rule["annotations"])


def test_building_twice_gives_the_same_bytes() -> None:
    assert build_files() == build_files()


def test_the_deployed_copy_is_up_to_date() -> None:
    made = dashboard_pages.deployed()
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "run python -m tools.dashboard_pages"
    kept = {
        path
        for folder in ("prometheus", "grafana/dashboards", "grafana/provisioning")
        for path in (dashboard_pages.DEPLOY / folder).rglob("*")
        if path.is_file() and "kvstrata dashboards build" in path.read_text(encoding="utf-8")
    }
    assert kept <= set(made)


@pytest.mark.parametrize("page", dashboard_pages.pages(), ids=lambda page: page.name)
def test_the_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert dashboard_pages.filled(text) == text, "run python -m tools.dashboard_pages"


def test_the_command_writes_the_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--runbooks", "https://wiki/kv/", "--prometheus", "http://p:1", "--json"]
    done = CliRunner().invoke(app, ["dashboards", "build", str(out), *options])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["files"]) == set(build_files())
    text = (out / "grafana/dashboards/overview.json").read_text(encoding="utf-8")
    assert "https://wiki/kv/KVCacheEngineAbsent" in text
    assert DEFAULT_RUNBOOKS_URL not in text
    source = (out / "grafana/provisioning/datasources/kvstrata.yaml").read_text(encoding="utf-8")
    assert "http://p:1" in source
    plain = CliRunner().invoke(app, ["dashboards", "build", str(tmp_path / "plain")])
    assert plain.exit_code == 0
    kept = dashboard_pages.DEPLOY / "grafana/dashboards/overview.json"
    made = tmp_path / "plain" / "grafana/dashboards/overview.json"
    assert made.read_bytes() == kept.read_bytes()
