"""Writes what is made from the tables in dashboard/: pages of docs/, and the files of deploy/.

``python -m tools.dashboard_pages`` brings them up to date; a test fails where they are not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kvstrata.dashboard.alerts import ALERTS, GROUPS, RECORDING_RULES, runbook
from kvstrata.dashboard.grafana import build_files, dashboards
from kvstrata.dashboard.metrics import LABELS, SECTIONS, Metric

from .markdown import between, table

__all__ = ["DEPLOY", "DOCS", "deployed", "filled", "pages", "runbooks"]

_ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = _ROOT / "docs"
DEPLOY: Final = _ROOT / "deploy"
END: Final = "<!-- end -->"


def _metrics() -> str:
    parts = []
    for title, metrics in SECTIONS:
        rows = [_metric(metric) for metric in metrics]
        parts.append(f"### {title}\n\n{table('metric | type | labels | meaning | source', rows)}")
    return "\n\n".join(parts)


def _metric(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return (f"`{metric.name}`", metric.type, labels, metric.help, metric.source)


def _labels() -> str:
    rows = []
    for label in LABELS.values():
        values = ", ".join(f"`{value}`" for value in label.values) or "as configured"
        if len(label.values) > 12:
            values = f"{len(label.values)} values, listed in events.md"
        rows.append((f"`{label.name}`", label.help, values))
    return table("label | meaning | values", rows)


def _buckets() -> str:
    rows = [
        (f"`{metric.name}`", ", ".join(f"{bound:g}" for bound in metric.buckets))
        for _, metrics in SECTIONS
        for metric in metrics
        if metric.buckets
    ]
    return table("histogram | upper bounds", rows)


def _alerts() -> str:
    rows = [
        (
            f"[{alert.name}](runbooks/{alert.name}.md)",
            alert.severity,
            alert.hold,
            alert.runbook.meaning,
        )
        for group in GROUPS.values()
        for alert in group
    ]
    return table("alert | severity | for | what was observed", rows)


def _recordings() -> str:
    rows = [(f"`{rule.name}`", f"`{rule.expression}`") for rule in RECORDING_RULES]
    return table("recorded series | expression", rows)


def _dashboards() -> str:
    rows = []
    for name, board in dashboards().items():
        count = sum(1 for panel in board.panels or [] if panel.type_val != "row")
        title, text = str(board.title), str(board.description)
        rows.append((title, f"`{board.uid}`", f"{name}.json", str(count), text))
    return table("dashboard | uid | file | panels | what it answers", rows)


def _tables() -> dict[str, str]:
    return {
        "metrics": _metrics(),
        "labels": _labels(),
        "buckets": _buckets(),
        "alerts": _alerts(),
        "recordings": _recordings(),
        "dashboards": _dashboards(),
    }


def filled(text: str) -> str:
    """A page with every table between its markers made anew.

    Raises:
        ValueError: a marker has no end.
    """
    for name, made in _tables().items():
        begin = f"<!-- {name} -->\n"
        if begin in text:
            text = between(text, begin, END, f"{made}\n")
    return text


def pages() -> list[Path]:
    """The pages of docs/ that hold such tables."""
    return [DOCS / f"{name}.md" for name in ("metrics", "alerts", "dashboards")]


def runbooks() -> dict[Path, str]:
    """Every runbook by its file."""
    return {DOCS / "runbooks" / f"{name}.md": runbook(name) for name in ALERTS}


def deployed() -> dict[Path, str]:
    """The files of deploy/ that ``kvstrata dashboards build`` writes."""
    return {DEPLOY / name: text for name, text in build_files().items()}


def main() -> None:
    """Write everything."""
    for path in pages():
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path, text in {**runbooks(), **deployed()}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
