"""Adapters to inference engines."""
