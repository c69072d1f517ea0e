"""The shapes of panels: each takes what it shows and gives a builder in the house look."""

from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    heatmap,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueColorMode,
    BigValueGraphMode,
    GraphDrawStyle,
    GraphThresholdsStyleMode,
    HeatmapCellLayout,
    StackingMode,
    TableCellHeight,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    FieldColorModeId,
    ValueMapping,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import Dataquery, PromQueryFormat

from .look import (
    BAD,
    GOOD,
    NEUTRAL,
    NOTHING_YET,
    colour_of,
    dress,
    legend,
    query,
    thresholds,
    tooltip,
)

__all__ = [
    "Queries",
    "bars",
    "heat",
    "lines",
    "number",
    "rows",
    "stacked",
    "states",
]

Queries = list[Builder[Dataquery]]
_Steps = tuple[tuple[float | None, str], ...]
_PLAIN: _Steps = ((None, NEUTRAL),)


def number(
    title: str,
    description: str,
    expression: str,
    unit: str = "short",
    steps: _Steps = _PLAIN,
    words: list[ValueMapping] | None = None,
    name: str = "",
    **facts: Any,
) -> stat.Panel:
    """One value now, large, on a ground of its threshold's colour."""
    panel = (
        stat.Panel()
        .color_mode(BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).fields(""))
        .thresholds(thresholds(*steps))
        .height(4)
        .span(4)
    )
    if words is not None:
        panel = panel.mappings(words)
    return dress(panel, title, description, [query(expression, name, instant=True)], unit, **facts)


def bars(
    title: str, description: str, queries: Queries, unit: str, steps: _Steps, **facts: Any
) -> bargauge.Panel:
    """A bar for each series, as it is now."""
    panel = (
        bargauge.Panel()
        .display_mode(BarGaugeDisplayMode.BASIC)
        .orientation(VizOrientation.HORIZONTAL)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).fields(""))
        .thresholds(thresholds(*steps))
        .min(0)
        .max(1)
        .height(8)
        .span(8)
    )
    return dress(panel, title, description, queries, unit, **facts)


def lines(
    title: str,
    description: str,
    queries: Queries,
    unit: str = "short",
    limit: _Steps | None = None,
    colours: dict[str, str] | None = None,
    **facts: Any,
) -> timeseries.Panel:
    """Lines over time; with a limit, its thresholds are drawn as dashed lines."""
    panel = (
        timeseries.Panel()
        .draw_style(GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(8)
        .show_points(VisibilityMode.NEVER)
        .min(0)
        .legend(legend("lastNotNull", "max"))
        .tooltip(tooltip())
        .color_scheme(
            dashboard_builders.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME)
        )
        .height(8)
        .span(8)
    )
    if limit is not None:
        dashed = common_builders.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(thresholds(*limit)).thresholds_style(dashed)
    for name, colour in (colours or {}).items():
        panel = panel.override_by_name(name, colour_of(colour))
    return dress(panel, title, description, queries, unit, **facts)


def stacked(
    title: str,
    description: str,
    queries: Queries,
    unit: str = "short",
    colours: dict[str, str] | None = None,
    **facts: Any,
) -> timeseries.Panel:
    """Areas one upon the other, where the parts sum to a whole."""
    panel = lines(title, description, queries, unit, colours=colours, **facts)
    return panel.fill_opacity(70).stacking(
        common_builders.StackingConfig().mode(StackingMode.NORMAL).group("A")
    )


def states(
    title: str,
    description: str,
    queries: Queries,
    words: list[ValueMapping],
    steps: _Steps = ((None, GOOD), (1, BAD)),
    unit: str = "short",
    **facts: Any,
) -> statetimeline.Panel:
    """A band for each series whose colour and word tell its state over time."""
    panel = (
        statetimeline.Panel()
        .mappings(words)
        .thresholds(thresholds(*steps))
        .color_scheme(dashboard_builders.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .show_value(VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.8)
        .fill_opacity(80)
        .legend(legend())
        .height(8)
        .span(12)
    )
    return dress(panel, title, description, queries, unit, **facts)


def heat(
    title: str, description: str, expression: str, bucket_unit: str, **facts: Any
) -> heatmap.Panel:
    """A histogram over time: a column a moment, a row a bucket, darker where more lie in it."""
    panel = (
        heatmap.Panel()
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
        )
        .rows_frame(heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.LE))
        .y_axis(heatmap.YAxisConfig().unit(bucket_unit))
        .cell_gap(1)
        .show_legend()
        .tooltip(heatmap.HeatmapTooltip().mode(TooltipDisplayMode.SINGLE).y_histogram(True))
        .height(8)
        .span(12)
    )
    queries = [query(expression, "{{le}}", form=PromQueryFormat.HEATMAP)]
    return dress(panel, title, description, queries, "short", **facts)


def rows(
    title: str,
    description: str,
    expression: str,
    columns: dict[str, str],
    no_value: str = NOTHING_YET,
    **facts: Any,
) -> table.Panel:
    """A table of the series there are now: their labels as columns, in the order given."""
    order = {label: place for place, label in enumerate(columns)}
    hidden = {"Time": True, "Value": True, "__name__": True}
    panel = (
        table.Panel()
        .show_header(True)
        .cell_height(TableCellHeight.SM)
        .with_transformation(
            DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": hidden,
                    "indexByName": order,
                    "renameByName": columns,
                },
            )
        )
        .height(8)
        .span(12)
    )
    queries = [query(expression, instant=True, form=PromQueryFormat.TABLE)]
    return dress(panel, title, description, queries, "short", no_value=no_value, **facts)
