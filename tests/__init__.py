"""Tests, in the folders they test."""
