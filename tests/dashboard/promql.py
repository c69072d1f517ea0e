"""Reads PromQL: which series an expression selects, and whether the catalogue knows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import promql_parser

from kvstrata.dashboard.alerts import RECORDING_RULES
from kvstrata.dashboard.metrics import LABELS, METRICS, metric_of_series

TARGET_LABELS = {"job", "instance"}
OF_PROMETHEUS = {"up": TARGET_LABELS, "ALERTS": {"alertname", "alertstate", "severity"}}
RECORDED = {rule.name: rule.expression for rule in RECORDING_RULES}
NOT_A_LABEL = re.compile(r"\$\w+|\.\*|\.\+")


@dataclass(frozen=True)
class Selector:
    """One selection of series: a name, and what its labels must be."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


def parse(expression: str) -> Any:
    """The expression's tree; Grafana's variables stand for something first."""
    for variable, value in {
        "$__rate_interval": "5m",
        "$__range": "1h",
        "$__interval": "1m",
    }.items():
        expression = expression.replace(variable, value)
    return promql_parser.parse(expression)


def visit(expression: str) -> list[Any]:
    """Every node of an expression's tree."""
    nodes: list[Any] = []
    promql_parser.walk(
        parse(expression), pre_visit=lambda node: nodes.append(node), post_visit=None
    )
    return nodes


def selectors(expression: str) -> list[Selector]:
    """Every selection of an expression."""
    found: list[Selector] = []
    for node in visit(expression):
        if isinstance(node, promql_parser.VectorSelector):
            matchers = tuple(
                (matcher.name, str(matcher.op).rpartition(".")[2], matcher.value)
                for matcher in node.matchers.matchers
            )
            found.append(Selector(node.name, matchers))
    return list(dict.fromkeys(found))


def labels_of(name: str) -> set[str]:
    """Labels that a series may have.

    Raises:
        KeyError: neither the catalogue, nor a recording rule, nor Prometheus itself gives it.
    """
    if name in OF_PROMETHEUS:
        return OF_PROMETHEUS[name]
    if name in RECORDED:
        return set(name.partition(":")[0].split("_")) | TARGET_LABELS | {"kind"}
    labels = {*metric_of_series(name).labels, *TARGET_LABELS}
    return labels | {"le"} if name.endswith("_bucket") else labels


def faults(expression: str) -> list[str]:
    """What an expression has that the catalogue has not."""
    found = []
    for selector in selectors(expression):
        try:
            known = labels_of(selector.name)
        except KeyError:
            found.append(f"no metric {selector.name}")
            continue
        for label, _, value in selector.matchers:
            if label not in known:
                found.append(f"{selector.name} has no label {label}")
            elif label in LABELS and LABELS[label].values:
                wanted = [part for part in value.split("|") if not NOT_A_LABEL.fullmatch(part)]
                found += [
                    f"{label} is never {part!r}"
                    for part in wanted
                    if part and part not in LABELS[label].values
                ]
            elif label == "le":
                buckets = METRICS[selector.name.removesuffix("_bucket")].buckets
                if float(value) not in buckets:
                    found.append(f"{selector.name} has no bucket {value}")
    return found
