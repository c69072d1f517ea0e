"""TypeScript that compiles if, and only if, the dashboards have the types Grafana publishes."""

from __future__ import annotations

import json
from typing import Any, Final

from kvstrata.dashboard.grafana import as_json, dashboards

PACKAGES: Final = ("@grafana/schema@13.2.3", "typescript@5.9.3")
PANELS: Final = {
    "bargauge": "BarGauge",
    "heatmap": "Heatmap",
    "stat": "Stat",
    "state-timeline": "StateTimeline",
    "table": "Table",
    "timeseries": "TimeSeries",
}
"""Files of panel options by the type of the panel."""
_FIELDS: Final = {
    "heatmap": "FieldConfig",
    "state-timeline": "FieldConfig",
    "timeseries": "FieldConfig",
}
_PLAIN: Final = """
// A JSON file has an enum's text, not the enum: T with each enum of texts as its texts.
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
// What the data source adds to queries and annotations; the schema leaves it open.
interface Query extends schema.DataQuery {
  expr: string;
  format?: 'heatmap' | 'table' | 'time_series';
  instant?: boolean;
  interval?: string;
  legendFormat?: string;
  range?: boolean;
}
interface Annotation extends Omit<schema.AnnotationQuery, 'target'> {
  tagKeys?: string;
  target: Query;
  textFormat?: string;
  titleFormat?: string;
}
interface Board extends Omit<schema.Dashboard, 'annotations'> {
  annotations: { list: Annotation[] };
}
"""


def source() -> str:
    """The whole file."""
    lines = ["import type * as schema from '@grafana/schema';"]
    for kind, name in PANELS.items():
        path = f"@grafana/schema/dist/esm/raw/composable/{kind.replace('-', '')}/panelcfg/x"
        lines.append(f"import type * as {name} from '{path}/{name}PanelCfg_types.gen';")
    lines.append(_PLAIN)
    for name, board in dashboards().items():
        plain = as_json(board)
        lines.append(_constant(f"board_{name}", "Board", plain))
        for panel in plain["panels"]:
            lines += _parts(f"{name}_{panel['id']}", panel)
    return "\n".join(lines)


def _parts(name: str, panel: dict[str, Any]) -> list[str]:
    """What the type of a dashboard leaves open: each panel's own options and field settings."""
    kind = str(panel["type"])
    if kind == "row":
        return [_constant(f"row_{name}", "schema.RowPanel", panel)]
    parts = [
        _constant(f"panel_{name}", "schema.Panel", panel),
        _constant(f"options_{name}", f"Partial<{PANELS[kind]}.Options>", panel["options"]),
    ]
    for number, target in enumerate(panel["targets"]):
        parts.append(_constant(f"query_{name}_{number}", "Query", target))
    custom = panel["fieldConfig"]["defaults"].get("custom")
    if custom and kind in _FIELDS:
        parts.append(_constant(f"custom_{name}", f"{PANELS[kind]}.{_FIELDS[kind]}", custom))
    return parts


def _constant(name: str, kind: str, value: Any) -> str:
    name = name.replace("-", "_")
    return f"export const {name}: Plain<{kind}> = {json.dumps(value, indent=1)};"
