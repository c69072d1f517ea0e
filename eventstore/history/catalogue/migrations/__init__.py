"""Alembic's folder of the catalogue of history."""
