"""What operators watch: metrics, alerts and their runbooks, dashboards; made from tables in code."""
