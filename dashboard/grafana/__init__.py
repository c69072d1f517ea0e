"""Grafana dashboards, made from code."""
