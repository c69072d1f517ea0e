"""What every dashboard has: variables, annotations, links, and panels placed without overlap."""

from typing import Any, Final, NamedTuple

from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    GridPos,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.dashboard import Panel as PanelModel

from .look import BAD, NEUTRAL, SOURCE, query

__all__ = ["TAG", "WIDTH", "Row", "make_dashboard"]

WIDTH: Final = 24
TAG: Final = "kvstrata"


class Row(NamedTuple):
    """One row of a dashboard.

    Attributes:
        title: what its panels have in common.
        panels: their builders; those that do not fit begin a new line.
    """

    title: str
    panels: list[Builder[PanelModel]]


def make_dashboard(
    uid: str, title: str, description: str, rows: list[Row], with_pool: bool = False
) -> Dashboard:
    """A dashboard.

    Args:
        uid: unique, and for good: links name it.
        title: its name.
        description: what it answers.
        rows: its panels.
        with_pool: whether a pool can be chosen.
    """
    board = (
        dashboard_builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard_builders.DashboardLink("Dashboards")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(_datasource())
        .with_variable(
            _labels("instance", "Instance", "label_values(kvcache_build_info, instance)")
        )
    )
    if with_pool:
        values = 'label_values(kvcache_pool_capacity_pages{instance=~"$instance"}, pool)'
        board = board.with_variable(_labels("pool", "Pool", values))
    for name, colour, expression, text in _ANNOTATIONS:
        board = board.annotation(_annotation(name, colour, expression, text))
    _place(board, rows)
    return board.build()


def _place(board: dashboard_builders.Dashboard, rows: list[Row]) -> None:
    """Number and place rows and panels, left to right, line by line."""
    number, top = 1, 0
    for row in rows:
        place = GridPos(x=0, y=top, w=WIDTH, h=1)
        board.with_row(dashboard_builders.Row(row.title).id(number).grid_pos(place))
        number, top = number + 1, top + 1
        left = tallest = 0
        for builder in row.panels:
            panel: Any = builder
            size = panel.build().grid_pos
            if left + size.w > WIDTH:
                left, top, tallest = 0, top + tallest, 0
            place = GridPos(x=left, y=top, w=size.w, h=size.h)
            board.with_panel(panel.id(number).grid_pos(place))
            left, tallest, number = left + size.w, max(tallest, size.h), number + 1
        top += tallest


def _datasource() -> dashboard_builders.DatasourceVariable:
    return (
        dashboard_builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    )


def _labels(name: str, label: str, values: str) -> dashboard_builders.QueryVariable:
    """A variable that chooses among the values of a label; all of them at first."""
    return (
        dashboard_builders.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": values, "refId": f"Variable-{name}"})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


_ANNOTATIONS: Final = (
    (
        "Crashes",
        BAD,
        'increase(kvcache_engine_crashes_total{instance=~"$instance"}[1m]) > 0',
        "crash found",
    ),
    (
        "Recoveries",
        NEUTRAL,
        'increase(kvcache_recovery_duration_seconds_count{instance=~"$instance"}[1m]) > 0',
        "recovery ended",
    ),
)


def _annotation(
    name: str, colour: str, expression: str, text: str
) -> dashboard_builders.AnnotationQuery:
    named: Any = query(expression)
    return (
        dashboard_builders.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .enable(True)
        .hide(False)
        .icon_color(colour)
        .target(named.ref_id("Anno").interval("60s"))
        .title_format(text)
        .text_format("{{instance}}")
        .tag_keys("instance")
    )
