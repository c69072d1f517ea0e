"""Prefixes on disk, beside what else can read and write the same bytes."""
