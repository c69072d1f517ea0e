"""What is on a dashboard, as its JSON has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.models.dashboard import Dashboard

from kvstrata.dashboard.grafana import as_json


def panels_of(board: Dashboard) -> list[dict[str, Any]]:
    """Its panels, rows left out."""
    return [panel for panel in as_json(board)["panels"] if panel["type"] != "row"]


def queries_of(board: Dashboard) -> Iterator[tuple[str, int, str]]:
    """Title of the panel, number of the query and PromQL; the annotations' too."""
    for panel in panels_of(board):
        for number, target in enumerate(panel["targets"]):
            yield panel["title"], number, target["expr"]
    for number, annotation in enumerate(as_json(board)["annotations"]["list"]):
        yield "annotations", number, annotation["target"]["expr"]
