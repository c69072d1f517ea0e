"""The house look, defined once: colours, legends, thresholds, words for no data."""

from typing import Any, Final, Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    DataSourceRef,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardRangeMapOptions,
    DynamicConfigValue,
    RangeMap,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.dashboard import Panel as PanelModel
from grafana_foundation_sdk.models.prometheus import Dataquery, PromQueryFormat

from ..alerts import runbook_url

__all__ = [
    "BAD",
    "GOOD",
    "NEUTRAL",
    "NOTHING_YET",
    "SOURCE",
    "STATE_COLOURS",
    "WARN",
    "Panel",
    "colour_of",
    "dress",
    "legend",
    "mappings",
    "query",
    "ranges",
    "thresholds",
    "tooltip",
]

GOOD, WARN, BAD, NEUTRAL = "green", "orange", "red", "blue"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The Prometheus that the dashboard's variable names."""
NOTHING_YET: Final = "nothing yet"

STATE_COLOURS: Final = {
    "free": "#5a6570",
    "reserved": "#b7a0e0",
    "writing": "#7c5cc4",
    "open": "#4a90d9",
    "sealed_idle": "#8fc9a8",
    "sealed_pinned": "#2f8f5b",
    "loading": "#e8b84a",
    "draining": "#d98a3d",
    "quarantined": "#d64545",
}
"""A page's state has one colour on every dashboard."""


class Panel(Protocol):
    """What every panel's builder can do, of what the look sets."""

    def title(self, title: str) -> Self:
        """What it shows."""

    def description(self, description: str) -> Self:
        """How to read it."""

    def datasource(self, datasource: DataSourceRef) -> Self:
        """Whom it asks."""

    def no_value(self, no_value: str) -> Self:
        """Words for no data."""

    def links(self, links: list[Builder[Any]]) -> Self:
        """Where it leads."""

    def with_target(self, target: Builder[Any]) -> Self:
        """One more query."""

    def unit(self, unit: str) -> Self:
        """Of its values."""

    def height(self, h: int) -> Self:
        """In rows of the grid."""

    def span(self, w: int) -> Self:
        """In columns of the grid."""

    def build(self) -> PanelModel:
        """The panel."""


AnyPanel = TypeVar("AnyPanel", bound=Panel)


def dress(
    panel: AnyPanel,
    title: str,
    description: str,
    queries: list[Builder[Dataquery]],
    unit: str,
    no_value: str = NOTHING_YET,
    alerts: tuple[str, ...] = (),
) -> AnyPanel:
    """Give a panel what all panels have.

    Args:
        panel: its builder.
        title: what it shows.
        description: how to read it, and what is normal.
        queries: what it asks.
        unit: Grafana's id of the values' unit.
        no_value: words where there is no data.
        alerts: names of alerts whose runbooks it links to.
    """
    panel = panel.title(title).description(description).datasource(SOURCE).unit(unit)
    panel = panel.no_value(no_value)
    for number, wanted in enumerate(queries):
        named: Any = wanted
        panel = panel.with_target(named.ref_id(chr(ord("A") + number)))
    links: list[Builder[Any]] = [
        dashboard_builders.DashboardLink(f"Runbook {name}")
        .url(runbook_url(name))
        .target_blank(True)
        for name in alerts
    ]
    return panel.links(links) if links else panel


def query(
    expression: str,
    name: str = "",
    instant: bool = False,
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> Builder[Dataquery]:
    """A query of Prometheus.

    Args:
        expression: PromQL.
        name: of its series, with labels in double braces.
        instant: only now, for single values and tables.
        form: of the answer.
    """
    found = prometheus.Dataquery().expr(expression).datasource(SOURCE).format(form)
    found = found.legend_format(name) if name else found
    return found.instant() if instant else found.range()


def thresholds(*steps: tuple[float | None, str]) -> dashboard_builders.ThresholdsConfig:
    """Colours by value, ascending; the first begins at None."""
    return (
        dashboard_builders.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=colour) for value, colour in steps])
    )


def mappings(words: dict[str, tuple[str, str]]) -> list[ValueMapping]:
    """Words and colours for single values."""
    options = {
        value: ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(words.items())
    }
    return [ValueMap(options=options)]


def ranges(*steps: tuple[float | None, float | None, str, str]) -> list[ValueMapping]:
    """Words and colours for ranges of values: from, to, text, colour."""
    return [
        RangeMap(
            options=DashboardRangeMapOptions(
                from_val=low,
                to=high,
                result=ValueMappingResult(text=text, color=colour, index=index),
            )
        )
        for index, (low, high, text, colour) in enumerate(steps)
    ]


def legend(*calculations: str) -> common_builders.VizLegendOptions:
    """A list below the panel; a table of calculations where any are wanted."""
    found = common_builders.VizLegendOptions().placement(LegendPlacement.BOTTOM).show_legend(True)
    mode = LegendDisplayMode.TABLE if calculations else LegendDisplayMode.LIST
    return found.display_mode(mode).calcs(list(calculations))


def tooltip() -> common_builders.VizTooltipOptions:
    """All series at once, the greatest first."""
    return (
        common_builders.VizTooltipOptions()
        .mode(TooltipDisplayMode.MULTI)
        .sort(SortOrder.DESCENDING)
    )


def colour_of(colour: str) -> list[DynamicConfigValue]:
    """An override that gives a series one colour."""
    return [DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})]
