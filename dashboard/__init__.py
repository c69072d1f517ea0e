"""What operators watch: metrics, alerts with runbooks, dashboards; made from tables in code."""
