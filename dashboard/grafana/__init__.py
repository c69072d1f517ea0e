"""Grafana dashboards, made from code, and the files that provision them."""

from .provisioning import DATASOURCE_UID, DEFAULT_PROMETHEUS_URL, as_json, build_files, dashboards

__all__ = ["DATASOURCE_UID", "DEFAULT_PROMETHEUS_URL", "as_json", "build_files", "dashboards"]
